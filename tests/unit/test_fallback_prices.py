"""What a model costs comes from a file, holds from a day on, and is unknown rather than zero."""

from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback.prices import InvalidPrices, Price, PriceTable, load_prices

DAY = date(2026, 6, 1)


def price(model: str, usd: float, since: date = date.min) -> Price:
    return Price(model, since, usd, usd / 2, 2 * usd)


def own(tmp_path: Path, text: str) -> PriceTable:
    file = tmp_path / "prices.toml"
    file.write_text(text, encoding="utf-8")
    return load_prices(file)


def input_price(table: PriceTable, model: str, day: date = DAY) -> float | None:
    found = table.of(model, day)
    return None if found is None else found.input


def test_prices_are_for_a_million_tokens_and_cached_ones_have_their_own() -> None:
    gpt = Price("gpt", date.min, input=2.0, cached_input=0.5, output=8.0)
    assert gpt.usd(1_000_000, 0, 0) == 2.0
    assert gpt.usd(1_000_000, 1_000_000, 0) == 0.5
    assert gpt.usd(1_000_000, 400_000, 250_000) == pytest.approx(1.2 + 0.2 + 2.0)
    assert gpt.usd(0, 0, 0) == 0.0


@given(prompt=st.integers(0, 10**6), cached=st.integers(0, 10**6), completion=st.integers(0, 10**6))
def test_nothing_costs_less_than_nothing_or_more_than_uncached(prompt: int, cached: int, completion: int) -> None:
    gpt, cached = Price("gpt", date.min, input=2.0, cached_input=0.5, output=8.0), min(prompt, cached)
    assert 0 <= gpt.usd(prompt, cached, completion) <= gpt.usd(prompt, 0, completion)


def test_a_model_that_stands_nowhere_has_no_price() -> None:
    assert PriceTable([]).of("gpt", DAY) is None
    assert load_prices().of("some-model-of-mine", DAY) is None
    assert PriceTable([price("gpt-4", 1)]).of("gpt-4-turbo", DAY) is None


def test_a_price_holds_from_its_day_until_the_next() -> None:
    table = PriceTable([price("gpt", 2, date(2026, 3, 1)), price("gpt", 1, date(2026, 1, 1))])
    days = [date(2025, 12, 31), date(2026, 1, 1), date(2026, 2, 28), date(2026, 3, 1), DAY]
    assert [input_price(table, "gpt", day) for day in days] == [None, 1, 1, 2, 2]


def test_of_two_prices_from_one_day_the_later_entry_counts() -> None:
    assert input_price(PriceTable([price("gpt", 1, DAY), price("gpt", 2, DAY)]), "gpt") == 2


@pytest.mark.parametrize(
    "name",
    ["gpt-4o", "gpt-4o-2024-08-06", "gpt-4o-20240806", "gpt-4o-latest", "openai/gpt-4o", "openai/gpt-4o-2024-08-06"],
)
def test_a_dated_or_routed_name_has_the_price_of_the_plain_one(name: str) -> None:
    assert input_price(PriceTable([price("gpt-4o", 3)]), name) == 3


def test_a_dated_name_with_a_price_of_its_own_has_that() -> None:
    table = PriceTable([price("gpt-4o", 3), price("gpt-4o-2024-05-13", 5), price("azure/gpt-4o", 4)])
    assert input_price(table, "gpt-4o-2024-05-13") == 5
    assert input_price(table, "azure/gpt-4o") == 4
    assert input_price(table, "azure/gpt-4o-2024-08-06") == 4


@pytest.mark.parametrize("name", ["gpt-4o-2024", "gpt-4o-20240806-mini", "2024-08-06", "-20240806", "", "/", "gpt-4o/"])
def test_what_only_looks_like_a_date_makes_no_other_model(name: str) -> None:
    assert PriceTable([price("gpt-4o", 3)]).of(name, DAY) is None


def test_the_shipped_prices_are_sound_and_cached_tokens_are_never_dearer() -> None:
    table = load_prices()
    for name in ("gpt-4o", "gpt-4o-mini", "claude-3-5-haiku-latest", "openai/gpt-5"):
        found = table.of(name, DAY)
        assert found is not None
        assert 0 < found.cached_input <= found.input <= found.output


def test_the_owner_s_file_goes_before_the_shipped_one_model_by_model(tmp_path: Path) -> None:
    table = own(tmp_path, '[[price]]\nmodel = "gpt-4o"\ninput = 0.5\noutput = 1\n')
    mine, theirs = table.of("gpt-4o", DAY), load_prices().of("gpt-4o-mini", DAY)
    assert mine == Price("gpt-4o", date.min, 0.5, 0.5, 1.0)  # cached tokens cost as others where nothing is said
    assert table.of("gpt-4o-mini", DAY) == theirs


def test_the_owner_may_say_that_a_model_is_free(tmp_path: Path) -> None:
    found = own(tmp_path, '[[price]]\nmodel = "mine"\ninput = 0\noutput = 0.0\n').of("mine", DAY)
    assert found is not None
    assert found.usd(1000, 0, 1000) == 0.0


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    assert own(tmp_path, "").of("gpt-4o", DAY) == load_prices().of("gpt-4o", DAY)


GOOD = 'model = "m"\ninput = 1\noutput = 1\n'


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        ("input = 1\noutput = 1\n", "'model'"),
        ('model = ""\ninput = 1\noutput = 1\n', "'model'"),
        ('model = "m"\noutput = 1\n', "'input'"),
        ('model = "m"\ninput = 1\n', "'output'"),
        ('model = "m"\ninput = "1"\noutput = 1\n', "'input'"),
        ('model = "m"\ninput = true\noutput = 1\n', "'input'"),
        ('model = "m"\ninput = -1\noutput = 1\n', "'input'"),
        ('model = "m"\ninput = 1\noutput = nan\n', "'output'"),
        ('model = "m"\ninput = 1\noutput = inf\n', "'output'"),
        (GOOD + "cached_input = -0.1\n", "'cached_input'"),
        (GOOD + "cached = 1\n", "'cached'"),
        (GOOD + 'from = "2026-01-31"\n', "'from'"),
        (GOOD + "from = 2026-01-31T00:00:00\n", "'from'"),
        ('model = "m"\ninput = 1' + "0" * 400 + "\noutput = 1\n", "'input'"),
    ],
)
def test_a_wrong_entry_is_named_with_its_key(tmp_path: Path, entry: str, named: str) -> None:
    with pytest.raises(InvalidPrices) as caught:
        own(tmp_path, "[[price]]\n" + GOOD + "[[price]]\n" + entry)
    assert named in str(caught.value)
    assert "price 2" in str(caught.value)
    assert "prices.toml" in str(caught.value)


@pytest.mark.parametrize(
    "text", ["price = 3\n", "price = [1]\n", "[price]\nmodel = 'm'\n", "[[prices]]\n", "x = \n", "é"]
)
def test_a_file_of_another_shape_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidPrices, match=r"prices\.toml"):
        own(tmp_path, text)


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidPrices, match=r"nowhere\.toml"):
        load_prices(tmp_path / "nowhere.toml")
    with pytest.raises(InvalidPrices):
        load_prices(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b'[[price]]\nmodel = "\xe9"\n')
    with pytest.raises(InvalidPrices, match=r"latin\.toml"):
        load_prices(tmp_path / "latin.toml")
