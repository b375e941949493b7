"""What was spent is asked of the ledger by key and day; times are told as percentiles."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.ledger import Ledger, Row, Spending, percentile_ms

ROW = Row(
    at=1000.0,
    request="req_1",
    key="key_1",
    task="t",
    step="chat",
    criticality="normal",
    route="local",
    reason="unsure",
    provider=None,
    model="small",
    prompt_tokens=10,
    cached_tokens=4,
    completion_tokens=5,
    ttft_ms=1.5,
    itl_p50_ms=None,
    itl_p99_ms=None,
    total_ms=20.0,
    queue_ms=0.0,
    cost_usd=None,
    outcome="completed",
    flags="",
)
DAY_S = 86_400.0


def ledger_with(path: Path, rows: Sequence[tuple[float, str | None, float | None]]) -> Ledger:
    """One with rows of a time, a key and a cost."""
    ledger = Ledger(path, clock=lambda: 0.0)
    for at, key, usd in rows:
        ledger.add(replace(ROW, at=at, key=key, cost_usd=usd))
    ledger.close()
    return Ledger(path, clock=lambda: 0.0)


def test_spending_is_by_key_and_day_and_leaves_out_what_cost_nothing(tmp_path: Path) -> None:
    ledger = ledger_with(
        tmp_path / "ledger.db",
        [
            (DAY_S - 1, "a", 9.0),
            (DAY_S, "a", 1.0),
            (DAY_S + 10, "a", 0.5),
            (DAY_S + 20, "b", 0.25),
            (2 * DAY_S, "a", 4.0),
            (2 * DAY_S + 1, None, 2.0),
            (2 * DAY_S + 2, "c", 0.0),
            (2 * DAY_S + 3, "c", None),
        ],
    )
    assert set(ledger.spending(DAY_S)) == {
        Spending("a", DAY_S + 10, 1.5),
        Spending("b", DAY_S + 20, 0.25),
        Spending("a", 2 * DAY_S, 4.0),
        Spending(None, 2 * DAY_S + 1, 2.0),
    }


@pytest.mark.parametrize("content", [b"", b"x" * 5000])
def test_a_file_that_cannot_say_what_was_spent_says_nothing_and_stays(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(content)
    assert Ledger(path, clock=lambda: 0.0).spending(0.0) == ()
    assert path.read_bytes() == content


def test_a_folder_in_its_place_says_nothing_either(tmp_path: Path) -> None:
    assert Ledger(tmp_path, clock=lambda: 0.0).spending(0.0) == ()


@pytest.mark.parametrize(
    ("gaps_ms", "percent", "expected"),
    [
        ([], 50, None),
        ([7], 50, 7),
        ([7], 99, 7),
        ([3, 1, 2], 50, 2),
        ([4, 3, 1, 2], 50, 2),
        (list(range(1, 101)), 99, 99),
        (list(range(1, 201)), 99, 198),
        ([1, 2], 0, 1),
        ([1, 2], 100, 2),
    ],
)
def test_percentiles_are_of_the_nearest_rank(gaps_ms: list[int], percent: float, expected: float | None) -> None:
    found = percentile_ms([gap / 1000 for gap in gaps_ms], percent)
    assert found == (None if expected is None else pytest.approx(expected))
