"""How much a key may ask, on a clock that the test moves."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.errors import RateLimitExceeded
from appliance.security.auth import Principal
from appliance.security.keys import ALL_SCOPES
from appliance.security.limits import SWEEP_ABOVE, Limiter


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def _who(id_: str = "key_1", rpm: int | None = None, concurrent: int | None = None) -> Principal:
    return Principal(id_, id_, ALL_SCOPES, rpm, concurrent)


def _refusal(limiter: Limiter, who: Principal, *, generates: bool = True) -> RateLimitExceeded | None:
    """The error, or None for a request that was admitted and has ended."""
    try:
        limiter.admit(who, generates=generates).release()
    except RateLimitExceeded as error:
        return error
    return None


def test_without_limits_everything_passes_and_nothing_is_remembered() -> None:
    limiter = Limiter(Clock(), None, None)
    assert all(_refusal(limiter, _who()) is None for _ in range(1000))
    assert len(limiter) == 0


def test_a_minutes_allowance_may_come_at_once_and_then_one_by_one() -> None:
    clock = Clock()
    limiter = Limiter(clock, None, None)
    who = _who(rpm=6)
    assert [_refusal(limiter, who) for _ in range(6)] == [None] * 6
    refused = _refusal(limiter, who)
    assert refused is not None
    assert refused.retry_after_s == 10
    clock.now_s += 9.9
    assert _refusal(limiter, who) is not None
    clock.now_s += 0.1
    assert _refusal(limiter, who) is None
    assert _refusal(limiter, who) is not None


def test_a_key_without_limits_of_its_own_has_the_daemons() -> None:
    limiter = Limiter(Clock(), 2, None)
    assert [_refusal(limiter, _who("a")) is None for _ in range(3)] == [True, True, False]
    assert [_refusal(limiter, _who("b", rpm=1)) is None for _ in range(2)] == [True, False]


def test_new_defaults_take_effect_with_the_next_request() -> None:
    limiter = Limiter(Clock(), 100, None)
    assert _refusal(limiter, _who()) is None
    limiter.set_defaults(1, None)
    assert [_refusal(limiter, _who()) is None for _ in range(2)] == [True, False]
    limiter.set_defaults(None, None)
    assert _refusal(limiter, _who()) is None


def test_so_many_requests_run_at_a_time_and_one_more_when_one_ends() -> None:
    limiter = Limiter(Clock(), None, None)
    who = _who(concurrent=2)
    first, second = limiter.admit(who, generates=True), limiter.admit(who, generates=True)
    refused = _refusal(limiter, who)
    assert refused is not None
    assert refused.retry_after_s == 1
    first.release()
    first.release()
    assert limiter.running("key_1") == 1
    with limiter.admit(who, generates=True):
        assert _refusal(limiter, who) is not None
    second.release()
    assert limiter.running("key_1") == 0


def test_a_place_is_given_back_when_the_request_fails() -> None:
    limiter = Limiter(Clock(), None, 1)
    with pytest.raises(ZeroDivisionError), limiter.admit(_who(), generates=True):
        raise ZeroDivisionError
    assert limiter.running("key_1") == 0


def test_what_does_not_generate_needs_no_place_but_counts_by_the_minute() -> None:
    limiter = Limiter(Clock(), None, None)
    who = _who(rpm=3, concurrent=1)
    with limiter.admit(who, generates=True):
        assert _refusal(limiter, who, generates=False) is None
        assert _refusal(limiter, who, generates=False) is None
        assert _refusal(limiter, who, generates=False) is not None


def test_a_request_refused_for_concurrency_costs_nothing_of_the_minute() -> None:
    limiter = Limiter(Clock(), None, None)
    who = _who(rpm=2, concurrent=1)
    with limiter.admit(who, generates=True):
        assert _refusal(limiter, who) is not None
    assert _refusal(limiter, who) is None
    assert _refusal(limiter, who) is not None


def test_keys_do_not_spend_each_others_allowance() -> None:
    limiter = Limiter(Clock(), 1, None)
    assert _refusal(limiter, _who("a")) is None
    assert _refusal(limiter, _who("b")) is None
    assert _refusal(limiter, _who("a")) is not None


def test_keys_that_have_been_idle_are_forgotten() -> None:
    clock = Clock()
    limiter = Limiter(clock, 1, None)
    for number in range(SWEEP_ABOVE):
        assert _refusal(limiter, _who(f"old{number}")) is None
    held = limiter.admit(_who("busy", concurrent=1), generates=True)
    clock.now_s += 61
    for number in range(2 * SWEEP_ABOVE):
        _refusal(limiter, _who(f"new{number}"))
        clock.now_s += 0.001
    assert len(limiter) <= 3 * SWEEP_ABOVE
    assert limiter.running("busy") == 1
    held.release()


@given(st.integers(1, 5000), st.lists(st.floats(0, 30), min_size=1, max_size=200))
def test_never_more_than_the_burst_and_the_rate_and_the_wait_is_exact(per_minute: int, gaps_s: list[float]) -> None:
    clock = Clock()
    limiter = Limiter(clock, per_minute, None)
    start_s, admitted = clock.now_s, 0
    for gap_s in gaps_s:
        clock.now_s += gap_s
        refused = _refusal(limiter, _who())
        if refused is None:
            admitted += 1
            continue
        assert refused.retry_after_s is not None
        before_s = clock.now_s
        if refused.retry_after_s > 1:  # a second earlier there is no token yet
            clock.now_s = before_s + refused.retry_after_s - 1.000001
            assert _refusal(limiter, _who()) is not None
        clock.now_s = before_s + refused.retry_after_s
        assert _refusal(limiter, _who()) is None
        admitted += 1
    assert admitted <= per_minute + (clock.now_s - start_s) * per_minute / 60 + 1e-6


@given(st.integers(1, 5), st.lists(st.integers(0, 9), max_size=60))
def test_leases_never_exceed_the_limit_and_all_come_back(limit: int, moves: list[int]) -> None:
    limiter = Limiter(Clock(), None, limit)
    held = []
    for move in moves:
        if move < 6:
            try:
                held.append(limiter.admit(_who(), generates=True))
            except RateLimitExceeded:
                assert len(held) == limit
        elif held:
            held.pop(move % len(held)).release()
        assert limiter.running("key_1") == len(held) <= limit
    for lease, _ in itertools.product(held, range(2)):
        lease.release()
    assert limiter.running("key_1") == 0
