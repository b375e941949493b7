"""No number of calls at once spends more than a limit, and what was set aside is given back to the last cent."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from fallback.budget import EVERYONE, Budget, BudgetExceeded, BudgetLimits, Reservation

NOON = datetime(2026, 3, 15, 12, 0, 0, tzinfo=UTC)


class Clock:
    def __init__(self, now: datetime = NOON) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now


def budget(clock: Clock | None = None, /, **limits: Any) -> Budget:
    return Budget(BudgetLimits(**limits), clock or Clock())


def refusal(of: Budget, key: str, usd: float) -> BudgetExceeded | None:
    try:
        of.settle(of.reserve(key, usd), 0.0)
    except BudgetExceeded as error:
        return error
    return None


def test_without_limits_anything_may_be_spent() -> None:
    free = budget()
    assert not free.limits.any
    free.settle(free.reserve("a", 1e9), 1e9)
    assert free.spent_usd("day") == free.spent_usd("month", "a") == 1e9


@pytest.mark.parametrize("limit", ["day_usd", "month_usd", "key_day_usd", "key_month_usd"])
def test_each_limit_is_kept_to_the_cent(limit: str) -> None:
    small = budget(**{limit: 1.0})
    assert small.limits.any
    assert refusal(small, "a", 1.0) is None
    assert refusal(small, "a", 1.01) is not None
    small.settle(small.reserve("a", 0.75), 0.75)
    assert refusal(small, "a", 0.25) is None
    assert refusal(small, "a", 0.26) is not None


def test_a_limit_of_nothing_lets_only_free_calls_pass() -> None:
    assert refusal(budget(day_usd=0.0), "a", 0.0) is None
    assert refusal(budget(day_usd=0.0), "a", 1e-9) is not None


def test_what_is_set_aside_counts_until_it_is_settled() -> None:
    small = budget(day_usd=1.0)
    first = small.reserve("a", 0.6)
    assert small.reserved_usd() == 0.6
    assert refusal(small, "b", 0.5) is not None
    small.settle(first, 0.1)
    assert small.reserved_usd() == 0.0
    assert small.spent_usd("day") == 0.1
    assert refusal(small, "b", 0.9) is None


def test_a_refusal_sets_nothing_aside_anywhere() -> None:
    small = budget(day_usd=10.0, key_month_usd=1.0)
    assert refusal(small, "a", 2.0) is not None
    assert small.reserved_usd() == 0.0
    assert refusal(small, "b", 1.0) is None


def test_a_call_is_settled_once() -> None:
    small = budget(day_usd=1.0)
    call, other = small.reserve("a", 0.5), small.reserve("a", 0.5)
    for _ in range(3):
        small.settle(call, 0.2)
    assert small.spent_usd("day") == 0.2
    assert small.reserved_usd() == 0.5
    small.settle(other, 0.0)


def test_what_cost_more_than_was_thought_counts_in_full() -> None:
    small = budget(day_usd=1.0)
    small.settle(small.reserve("a", 0.1), 5.0)
    assert small.spent_usd("day") == 5.0
    assert refusal(small, "a", 0.01) is not None


def test_keys_have_accounts_of_their_own_beside_everyone_s() -> None:
    small = budget(key_day_usd=1.0, day_usd=1.5)
    small.settle(small.reserve("a", 1.0), 1.0)
    assert small.spent_usd("day", "a") == small.spent_usd("day", EVERYONE) == 1.0
    assert small.spent_usd("day", "b") == 0.0
    refused = refusal(small, "a", 0.1)
    assert refused is not None
    assert "of this key" in str(refused)
    refused = refusal(small, "b", 0.6)
    assert refused is not None
    assert "of the appliance" in str(refused)


def test_what_an_earlier_run_spent_counts() -> None:
    small = budget(day_usd=1.0, month_usd=5.0, key_month_usd=3.0)
    small.spent_before("a", NOON - timedelta(days=3), 3.0)
    small.spent_before("b", NOON - timedelta(days=60), 100.0)
    assert small.spent_usd("day") == 0.0
    assert small.spent_usd("month") == small.spent_usd("month", "a") == 3.0
    assert refusal(small, "a", 0.1) is not None
    assert refusal(small, "b", 1.0) is None


def test_a_new_day_and_a_new_month_begin_at_midnight_utc() -> None:
    clock = Clock(datetime(2026, 1, 31, 23, 59, 59, tzinfo=UTC))
    small = budget(clock, day_usd=1.0, month_usd=1.5)
    small.settle(small.reserve("a", 1.0), 1.0)
    assert refusal(small, "a", 0.1) is not None
    clock.now += timedelta(seconds=1)
    assert refusal(small, "a", 1.0) is None
    assert small.spent_usd("month") == 0.0


def test_a_clock_of_another_zone_makes_no_other_day() -> None:
    clock = Clock(datetime(2026, 3, 15, 23, 30, tzinfo=UTC))
    small = budget(clock, day_usd=1.0)
    small.settle(small.reserve("a", 1.0), 1.0)
    clock.now = datetime(2026, 3, 16, 1, 0, tzinfo=timezone(timedelta(hours=2)))  # still the 15th in UTC
    assert refusal(small, "a", 0.1) is not None


def test_a_call_counts_on_the_day_on_which_it_began() -> None:
    clock = Clock(datetime(2026, 3, 15, 23, 59, 59, tzinfo=UTC))
    small = budget(clock, day_usd=1.0)
    call = small.reserve("a", 1.0)
    clock.now += timedelta(minutes=1)
    assert refusal(small, "a", 1.0) is None
    small.settle(call, 0.5)
    assert small.spent_usd("day") == 0.0
    assert small.spent_usd("month") == 0.5
    clock.now -= timedelta(minutes=1)
    assert (small.spent_usd("day"), small.reserved_usd()) == (0.5, 0.0)


@pytest.mark.parametrize(
    ("now", "limit", "resets_in_s"),
    [
        (NOON, "day_usd", 12 * 3600),
        (datetime(2026, 3, 15, 23, 59, 59, 900_000, tzinfo=UTC), "day_usd", 1),
        (datetime(2026, 3, 15, 0, 0, 0, tzinfo=UTC), "day_usd", 24 * 3600),
        (datetime(2026, 12, 31, 23, 0, 0, tzinfo=UTC), "month_usd", 3600),
        (datetime(2024, 2, 28, 0, 0, 0, tzinfo=UTC), "key_month_usd", 2 * 24 * 3600),
        (datetime(2026, 3, 1, 1, 0, 0, tzinfo=timezone(timedelta(hours=2))), "day_usd", 3600),
    ],
)
def test_a_refusal_says_when_there_is_money_again(now: datetime, limit: str, resets_in_s: int) -> None:
    refused = refusal(budget(Clock(now), **{limit: 0.5}), "a", 1.0)
    assert refused is not None
    assert refused.resets_in_s == resets_in_s
    assert "0.5 USD" in str(refused)
    assert ("month" in str(refused)) == ("month" in limit)


amounts = st.floats(0, 2, allow_nan=False) | st.sampled_from((0.1, 0.2, 0.3, 0.7, 1.0))


class Spending(RuleBasedStateMachine):
    """Calls of three keys begin and end in any order, over days; none costs more than was set aside for it."""

    calls: Bundle[Reservation] = Bundle("calls")

    @initialize(day=st.floats(0.5, 5), key_day=st.floats(0.5, 5), month=st.floats(0.5, 10))
    def begin(self, day: float, key_day: float, month: float) -> None:
        self.clock = Clock()
        self.limits = BudgetLimits(day_usd=day, key_day_usd=key_day, month_usd=month)
        self.budget = Budget(self.limits, self.clock)
        self.open: list[Reservation] = []

    @rule(target=calls, key=st.sampled_from("abc"), usd=amounts)
    def call(self, key: str, usd: float) -> Reservation:
        try:
            made = self.budget.reserve(key, usd)
        except BudgetExceeded:
            made = Reservation((), 0.0, is_open=False)
        if made.is_open:
            self.open.append(made)
        return made

    @rule(call=consumes(calls), share=st.floats(0, 1))
    def end(self, call: Reservation, share: float) -> None:
        self.budget.settle(call, call.usd * share)
        self.budget.settle(call, call.usd)  # a second time means nothing
        self.open = [other for other in self.open if other is not call]

    @rule(hours=st.integers(1, 30))
    def wait(self, hours: int) -> None:
        self.clock.now += timedelta(hours=hours)

    @invariant()
    def never_over_a_limit(self) -> None:
        day, month = self.limits.day_usd, self.limits.month_usd
        assert day is not None
        assert month is not None
        assert self.budget.spent_usd("day") + self.budget.reserved_usd() <= day + 1e-9
        assert self.budget.spent_usd("month") <= month + 1e-9
        for key in "abc":
            assert self.budget.spent_usd("day", key) <= (self.limits.key_day_usd or 0) + 1e-9

    @invariant()
    def nothing_is_left_reserved(self) -> None:
        assert self.budget.reserved_usd() >= 0
        if not self.open:
            assert self.budget.reserved_usd() == 0

    def teardown(self) -> None:
        for call in self.open:
            self.budget.settle(call, 0.0)
        if self.open:
            assert self.budget.reserved_usd() == 0


TestSpending = Spending.TestCase


def test_large_sums_leave_nothing_reserved_either() -> None:
    rich = budget()
    calls = [rich.reserve("a", usd) for usd in (0.1, 12_345.67, 0.3, 98_765.43, 0.7)]
    for call in calls:
        rich.settle(call, 0.0)
    assert rich.reserved_usd() == 0.0
