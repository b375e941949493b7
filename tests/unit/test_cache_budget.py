"""How large the share of wrong hits may be, given what was checked; and nothing is served beyond the owner's budget."""

import math
import random
from bisect import bisect_left
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cache.budget import CONFIDENCE, LEVELS, Checks, enough, level_of, stand, upper_bound

BUDGET, COLD = 0.01, 0.9
ENOUGH = 299  # right ones in a row for a budget of 1 %


def at_most(wrong: int, checked: int, rate: Fraction) -> Fraction:
    """The probability of so many wrong ones or fewer, exactly."""
    return sum(
        (math.comb(checked, k) * rate**k * (1 - rate) ** (checked - k) for k in range(wrong + 1)), start=Fraction(0)
    )


# The bound


@pytest.mark.parametrize("checked", [1, 2, 3, 10, 59, 100, 299, 3000, 100_000])
def test_without_a_wrong_one_the_bound_has_a_closed_form(checked: int) -> None:
    assert upper_bound(0, checked) == pytest.approx(1 - 0.05 ** (1 / checked), rel=1e-9)


# Wilks' sample sizes, for a share and a confidence of 95 %, and for 99 % and 95 %: with so many wrong ones, so many
# must be checked. S. S. Wilks, Annals of Mathematical Statistics 12 (1941).
@pytest.mark.parametrize(
    ("rate", "wrong", "checked"),
    [
        (0.05, 0, 59),
        (0.05, 1, 93),
        (0.05, 2, 124),
        (0.05, 3, 153),
        (0.05, 4, 181),
        (0.01, 0, 299),
        (0.01, 1, 473),
        (0.01, 2, 628),
        (0.01, 3, 773),
        (0.01, 4, 913),
    ],
)
def test_it_gives_the_sample_sizes_that_tables_have(rate: float, wrong: int, checked: int) -> None:
    assert upper_bound(wrong, checked) <= rate < upper_bound(wrong, checked - 1)


@pytest.mark.parametrize(
    ("wrong", "checked"),
    [
        (0, 1),
        (0, 7),
        (1, 2),
        (1, 10),
        (3, 10),
        (9, 10),
        (5, 40),
        (39, 40),
        (2, 150),
        (1, 300),
        (6, 300),
        (150, 300),
        (20, 400),
    ],
)
@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.99])
def test_it_is_where_the_exact_sum_says(wrong: int, checked: int, confidence: float) -> None:
    bound = upper_bound(wrong, checked, confidence)
    least = Fraction(1) - Fraction(confidence)
    assert at_most(wrong, checked, Fraction(bound) - Fraction(1, 10**9)) > least
    assert at_most(wrong, checked, min(Fraction(bound) + Fraction(1, 10**9), Fraction(1))) < least


@pytest.mark.parametrize("checked", [0, 1, 5, 1000])
def test_where_all_were_wrong_or_none_was_checked_nothing_is_known(checked: int) -> None:
    assert upper_bound(checked, checked) == 1.0


counts = st.tuples(st.integers(0, 60), st.integers(0, 2000))


@given(counts)
def test_it_lies_between_what_was_measured_and_one(known: tuple[int, int]) -> None:
    wrong, right = known
    checked = wrong + right
    assert 0 < upper_bound(wrong, checked) <= 1
    assert upper_bound(wrong, checked) >= (wrong / checked if checked else 0)


@given(counts)
def test_a_wrong_one_raises_it_and_a_right_one_lowers_it(known: tuple[int, int]) -> None:
    wrong, right = known
    before = upper_bound(wrong, wrong + right)
    assert upper_bound(wrong + 1, wrong + 1 + right) >= before
    assert upper_bound(wrong, wrong + right + 1) <= before
    if right:
        assert upper_bound(wrong + 1, wrong + 1 + right) > before
        assert upper_bound(wrong, wrong + right + 1) < before


@given(counts, st.floats(0.01, 0.98))
def test_more_confidence_asks_for_more(known: tuple[int, int], confidence: float) -> None:
    wrong, right = known
    assert upper_bound(wrong, wrong + right, confidence) <= upper_bound(wrong, wrong + right, confidence + 0.01)


@pytest.mark.parametrize(("wrong", "checked"), [(0, 10**9), (3, 10**6), (1000, 10**6)])
def test_large_counts_are_counts_too(wrong: int, checked: int) -> None:
    bound = upper_bound(wrong, checked)
    rate = wrong / checked
    assert rate < bound < rate + 4 * math.sqrt((rate * (1 - rate) + 4 / checked) / checked)


# Whether it keeps its word


@pytest.mark.parametrize("rate", [0.001, 0.005, 0.01, 0.02, 0.05, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("checked", [10, 59, 150, 300])
def test_of_all_that_may_be_measured_the_bound_is_right_95_times_in_100(rate: float, checked: int) -> None:
    # Fewer wrong ones than that, and the bound is too low.
    least = bisect_left(range(checked + 1), rate, key=lambda wrong: upper_bound(wrong, checked))
    missed = sum(math.comb(checked, wrong) * rate**wrong * (1 - rate) ** (checked - wrong) for wrong in range(least))
    assert missed <= 1 - CONFIDENCE + 1e-9


@pytest.mark.parametrize(("rate", "checked"), [(0.01, 250), (0.02, 400), (0.05, 120), (0.3, 60)])
def test_in_a_thousand_runs_it_is_right_as_often_as_it_says(rate: float, checked: int) -> None:
    seeds = range(1000)
    draws = [random.Random(seed) for seed in seeds]
    wrong = [sum(draw.random() < rate for _ in range(checked)) for draw in draws]
    covered = sum(upper_bound(count, checked) >= rate for count in wrong)
    print("seeds", seeds, "covered", covered)
    assert covered >= 950


def test_what_is_served_as_proven_is_within_the_budget_95_times_in_100() -> None:
    seeds = range(1000)
    wrongly = 0
    for seed in seeds:
        draw = random.Random(seed)
        wrong = sum(draw.random() < BUDGET * 1.05 for _ in range(500))  # a little over the budget
        wrongly += stand({0.97: Checks(500 - wrong, wrong)}, BUDGET, 2.0).state == "proven"
    print("seeds", seeds, "wrongly", wrongly)
    assert wrongly <= 50


# How many are enough


@pytest.mark.parametrize(
    ("budget", "checks"), [(0.5, 5), (0.1, 29), (0.05, 59), (0.02, 149), (0.01, 299), (0.001, 2995)]
)
def test_it_takes_so_many_right_ones_to_prove_a_budget(budget: float, checks: int) -> None:
    assert enough(budget) == checks


@given(st.floats(0.0005, 0.9))
@example(0.01)
def test_so_many_prove_it_and_one_less_does_not(budget: float) -> None:
    checks = enough(budget)
    assert stand({0.97: Checks(checks)}, budget + 1e-12, 2.0).state == "proven"
    assert stand({0.97: Checks(checks - 1)}, budget - 1e-12, 2.0).state == "off"


# Classes


@pytest.mark.parametrize(
    ("score", "level"),
    [
        (0.0, None),
        (0.49999, None),
        (0.5, 0.5),
        (0.69, 0.5),
        (0.7, 0.7),
        (0.8999, 0.7),
        (0.9, 0.9),
        (0.9699, 0.9),
        (0.97, 0.97),
        (1.0, 0.97),
        (1.1, 0.97),
        (-1.0, None),
        (math.nan, None),
        (math.inf, 0.97),
        (-math.inf, None),
    ],
)
def test_a_score_is_of_the_highest_class_that_it_reaches(score: float, level: float | None) -> None:
    assert level_of(score) == level


# What is served


def served(checks: dict[float, Checks], budget: float = BUDGET, cold: float = COLD) -> tuple[str, float | None]:
    now = stand(checks, budget, cold)
    return now.state, now.threshold


GOOD, BAD, NEW = Checks(ENOUGH), Checks(10, 1), Checks(20)


@pytest.mark.parametrize(
    ("checks", "expected"),
    [
        # Nothing is known yet.
        ({}, ("cold", 0.9)),
        ({0.97: Checks()}, ("cold", 0.9)),
        ({0.97: NEW, 0.9: NEW}, ("cold", 0.9)),
        ({0.7: NEW, 0.5: NEW}, ("cold", 0.9)),
        ({0.97: Checks(ENOUGH - 1)}, ("cold", 0.9)),
        # Some of it is proven.
        ({0.97: GOOD}, ("cold", 0.9)),
        ({0.97: GOOD, 0.9: GOOD}, ("proven", 0.9)),
        ({0.9: GOOD}, ("cold", 0.9)),
        ({0.97: GOOD, 0.9: GOOD, 0.7: GOOD}, ("proven", 0.7)),
        (dict.fromkeys(LEVELS, GOOD), ("proven", 0.5)),
        ({0.97: GOOD, 0.9: GOOD, 0.5: GOOD}, ("proven", 0.9)),  # no class is passed over
        ({0.97: NEW, 0.9: GOOD, 0.7: GOOD}, ("cold", 0.7)),
        # Wrong ones: the threshold moves up, over the class that has them.
        ({0.9: BAD}, ("cold", 0.97)),
        ({0.97: GOOD, 0.9: BAD}, ("proven", 0.97)),
        ({0.97: NEW, 0.9: BAD}, ("cold", 0.97)),
        ({0.97: GOOD, 0.9: GOOD, 0.7: BAD}, ("proven", 0.9)),
        ({0.97: GOOD, 0.9: BAD, 0.7: GOOD}, ("proven", 0.97)),
        ({0.97: Checks(0, 1)}, ("off", None)),
        ({0.97: BAD}, ("off", None)),
        ({0.97: BAD, 0.9: GOOD}, ("off", None)),
        ({0.97: BAD, 0.9: BAD, 0.7: BAD, 0.5: BAD}, ("off", None)),
        ({0.7: BAD, 0.5: BAD}, ("cold", 0.9)),
        # A wrong one among very many is within the budget.
        ({0.97: Checks(472, 1), 0.9: GOOD}, ("proven", 0.9)),
        ({0.97: Checks(471, 1)}, ("off", None)),
    ],
)
def test_the_threshold_is_where_what_is_known_allows(
    checks: dict[float, Checks], expected: tuple[str, float | None]
) -> None:
    assert served(checks) == expected


@pytest.mark.parametrize(
    ("cold", "expected"),
    [
        (0.5, ("cold", 0.5)),
        (0.6, ("cold", 0.7)),
        (0.7, ("cold", 0.7)),
        (0.9, ("cold", 0.9)),
        (0.91, ("cold", 0.97)),
        (0.97, ("cold", 0.97)),
        (0.98, ("off", None)),
    ],
)
def test_where_nothing_is_known_the_cold_level_decides(cold: float, expected: tuple[str, float | None]) -> None:
    assert served({}, cold=cold) == expected


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (0.005, ("off", None)),
        (0.02, ("proven", 0.97)),
        (0.5, ("proven", 0.97)),
    ],
)
def test_a_larger_budget_is_proven_sooner(budget: float, expected: tuple[str, float | None]) -> None:
    assert served({0.97: Checks(300, 1)}, budget, 2.0) == expected


def test_what_is_told_is_of_the_classes_that_are_served() -> None:
    now = stand({0.97: Checks(472, 1), 0.9: GOOD, 0.7: BAD}, BUDGET, COLD)
    assert (now.threshold, now.checked, now.wrong, now.rate) == (0.9, 473 + ENOUGH, 1, 1 / (473 + ENOUGH))
    assert now.upper_bound == max(upper_bound(1, 473), upper_bound(0, ENOUGH)) <= BUDGET


def test_where_nothing_is_served_it_is_of_all() -> None:
    now = stand({0.97: BAD, 0.9: GOOD, 0.5: BAD}, BUDGET, COLD)
    assert (now.state, now.checked, now.wrong, now.upper_bound) == ("off", 22 + ENOUGH, 2, 1.0)
    assert now.rate == 2 / (22 + ENOUGH)


def test_where_nothing_was_checked_there_is_no_rate() -> None:
    for cold in (COLD, 2.0):
        now = stand({}, BUDGET, cold)
        assert (now.checked, now.wrong, now.rate, now.upper_bound) == (0, 0, None, 1.0)


def test_a_class_that_there_is_not_counts_for_nothing() -> None:
    assert stand({0.8: Checks(5, 5), 0.3: Checks(9, 9)}, BUDGET, COLD) == stand({}, BUDGET, COLD)


checks_of = st.dictionaries(
    st.sampled_from(LEVELS),
    st.builds(Checks, st.sampled_from((0, 5, 298, 299, 472, 1000, 5000)), st.sampled_from((0, 0, 0, 1, 2, 30))),
)
budgets = st.sampled_from((0.001, 0.01, 0.05, 0.5))
colds = st.sampled_from((0.0, 0.5, 0.9, 0.97, 2.0))


def height(threshold: float | None) -> float:
    return math.inf if threshold is None else threshold


@given(checks_of, budgets, colds)
def test_what_is_proven_is_within_the_budget_in_every_class_that_is_served(
    checks: dict[float, Checks], budget: float, cold: float
) -> None:
    now = stand(checks, budget, cold)
    assert (now.state == "off") == (now.threshold is None)
    assert now.threshold in (None, *LEVELS)
    for level in LEVELS:
        if now.threshold is not None and level >= now.threshold:
            known = checks.get(level, Checks())
            is_proven = upper_bound(known.wrong, known.right + known.wrong) <= budget
            assert is_proven or (now.state == "cold" and not known.wrong and level >= cold)
    if now.state == "proven":
        assert now.upper_bound <= budget


@given(checks_of, st.sampled_from(LEVELS), budgets, colds)
def test_a_wrong_one_never_lowers_the_threshold_and_a_right_one_never_raises_it(
    checks: dict[float, Checks], level: float, budget: float, cold: float
) -> None:
    known = checks.get(level, Checks())
    now, worse, better = (
        height(stand({**checks, level: more}, budget, cold).threshold)
        for more in (known, Checks(known.right, known.wrong + 1), Checks(known.right + 1, known.wrong))
    )
    assert better <= now <= worse


@given(checks_of, budgets, colds)
def test_a_smaller_budget_or_a_higher_cold_level_never_lowers_the_threshold(
    checks: dict[float, Checks], budget: float, cold: float
) -> None:
    now = height(stand(checks, budget, cold).threshold)
    assert height(stand(checks, budget / 2, cold).threshold) >= now
    assert height(stand(checks, budget, cold + 0.1).threshold) >= now


def test_a_kind_of_step_that_was_switched_off_earns_its_way_back() -> None:
    known = Checks(3, 1)
    assert served({0.97: known}) == ("off", None)
    rights = next(n for n in range(1000) if served({0.97: Checks(known.right + n, 1), 0.9: BAD})[1] is not None)
    assert known.right + rights + 1 == 473


@pytest.mark.parametrize(("rate", "checks", "state"), [(0.05, 200, "off"), (0.03, 300, "off"), (0.002, 3000, "proven")])
def test_in_a_thousand_runs_the_tier_is_off_where_too_many_are_wrong_and_proven_where_few_are(
    rate: float, checks: int, state: str
) -> None:
    seeds = range(1000)
    ended = 0
    for seed in seeds:
        draw = random.Random(seed)
        wrong = sum(draw.random() < rate for _ in range(checks))
        ended += stand({level: Checks(checks - wrong, wrong) for level in LEVELS}, BUDGET, COLD).state == state
    assert ended >= 950


def test_in_a_thousand_runs_a_tier_with_wrong_hits_is_off_before_it_has_served_many() -> None:
    """One in twenty is wrong and one hit in twenty is checked, from a fresh cache on."""
    served = []
    for seed in range(1000):
        draw, known, count = random.Random(seed), Checks(), 0
        while count < 10_000 and stand(dict.fromkeys(LEVELS, known), BUDGET, COLD).state != "off":
            count += 1
            if draw.random() < 0.05:
                known = known.plus(right=draw.random() >= 0.05)
        served.append(count)
    assert sorted(served)[950] < 2_000
