"""A provider that does not answer is left alone for a while, and asked again by one request at first."""

import pytest

from fallback.breaker import (
    FAILURES_TO_OPEN,
    FIRST_OPEN_S,
    LONGEST_COOLING_S,
    LONGEST_OPEN_S,
    WITHOUT_RETRY_AFTER_S,
    ProviderBreaker,
)

KEY = "fingerprint"


def opened(now_s: float = 0.0) -> ProviderBreaker:
    breaker = ProviderBreaker()
    for _ in range(FAILURES_TO_OPEN):
        assert breaker.admit(now_s, KEY)
        breaker.failed(now_s)
    assert breaker.state(now_s, KEY) == "open"
    return breaker


def test_at_first_any_number_of_requests_may_go() -> None:
    breaker = ProviderBreaker()
    assert all(breaker.admit(0.0, KEY) for _ in range(100))
    assert breaker.state(0.0, KEY) == "closed"
    assert breaker.opens_in_s(0.0) is None


def test_a_few_failures_are_a_bad_moment() -> None:
    breaker = ProviderBreaker()
    for _ in range(FAILURES_TO_OPEN - 1):
        breaker.admit(0.0, KEY)
        breaker.failed(0.0)
    assert breaker.admit(0.0, KEY)


def test_failures_count_in_a_row_only() -> None:
    breaker = ProviderBreaker()
    for _ in range(10):
        for _ in range(FAILURES_TO_OPEN - 1):
            assert breaker.admit(0.0, KEY)
            breaker.failed(0.0)
        assert breaker.admit(0.0, KEY)
        breaker.succeeded()


def test_requests_at_fault_themselves_count_neither_way() -> None:
    breaker = ProviderBreaker()
    for _ in range(FAILURES_TO_OPEN - 1):
        breaker.admit(0.0, KEY)
        breaker.failed(0.0)
        breaker.admit(0.0, KEY)
        breaker.not_counted()
    breaker.admit(0.0, KEY)
    breaker.failed(0.0)
    assert not breaker.admit(0.0, KEY)


def test_an_open_breaker_says_when_it_may_be_asked_again() -> None:
    breaker = opened(100.0)
    assert not breaker.admit(100.0, KEY)
    assert breaker.opens_in_s(100.0) == FIRST_OPEN_S
    assert breaker.opens_in_s(100.0 + FIRST_OPEN_S - 1) == 1
    assert breaker.opens_in_s(1e6) == 0


def test_afterwards_one_request_goes_and_the_others_wait_for_its_end() -> None:
    breaker = opened()
    assert not breaker.admit(FIRST_OPEN_S - 0.01, KEY)
    assert breaker.state(FIRST_OPEN_S, KEY) == "half-open"
    assert breaker.admit(FIRST_OPEN_S, KEY)
    assert not any(breaker.admit(FIRST_OPEN_S, KEY) for _ in range(10))
    breaker.succeeded()
    assert all(breaker.admit(FIRST_OPEN_S, KEY) for _ in range(10))


def test_a_probe_that_tells_nothing_lets_the_next_one_go() -> None:
    breaker = opened()
    assert breaker.admit(FIRST_OPEN_S, KEY)
    breaker.not_counted()
    assert breaker.admit(FIRST_OPEN_S, KEY)
    assert not breaker.admit(FIRST_OPEN_S, KEY)


def test_a_probe_that_fails_doubles_the_time_up_to_a_bound() -> None:
    breaker, now_s, waits = opened(), 0.0, list[float]()
    for _ in range(10):
        waits.append(breaker.opens_in_s(now_s) or 0.0)
        now_s += waits[-1]
        assert breaker.admit(now_s, KEY)
        breaker.failed(now_s)
    assert waits[:4] == [FIRST_OPEN_S, 2 * FIRST_OPEN_S, 4 * FIRST_OPEN_S, 8 * FIRST_OPEN_S]
    assert waits[-1] == LONGEST_OPEN_S


def test_one_success_forgets_how_long_it_was_open() -> None:
    breaker, now_s = opened(), 0.0
    for _ in range(5):
        now_s += breaker.opens_in_s(now_s) or 0.0
        breaker.admit(now_s, KEY)
        breaker.failed(now_s)
    now_s += LONGEST_OPEN_S
    breaker.admit(now_s, KEY)
    breaker.succeeded()
    for _ in range(FAILURES_TO_OPEN):
        breaker.admit(now_s, KEY)
        breaker.failed(now_s)
    assert breaker.opens_in_s(now_s) == FIRST_OPEN_S


def test_a_provider_that_is_gone_for_weeks_is_asked_again_when_it_is_back() -> None:
    breaker, now_s = opened(), 0.0
    for _ in range(3000):  # ten days, a probe every five minutes
        now_s += LONGEST_OPEN_S
        assert breaker.admit(now_s, KEY)
        breaker.failed(now_s)
    now_s += LONGEST_OPEN_S
    assert breaker.admit(now_s, KEY)
    breaker.succeeded()
    assert breaker.state(now_s, KEY) == "closed"


def test_requests_that_fail_together_open_it_once() -> None:
    breaker = ProviderBreaker()
    together = 12 * FAILURES_TO_OPEN
    assert all(breaker.admit(0.0, KEY) for _ in range(together))
    for _ in range(together):
        breaker.failed(0.0)
    assert breaker.opens_in_s(0.0) == FIRST_OPEN_S  # it is one outage, not twelve in a row


def test_the_late_end_of_an_earlier_request_lets_no_second_probe_go() -> None:
    breaker = ProviderBreaker()
    for _ in range(FAILURES_TO_OPEN + 1):
        assert breaker.admit(0.0, KEY)
    for _ in range(FAILURES_TO_OPEN):
        breaker.failed(0.0)
    assert breaker.admit(FIRST_OPEN_S, KEY)  # the probe
    breaker.not_counted()  # the client of the request that was left over has gone
    assert not breaker.admit(FIRST_OPEN_S, KEY)


def test_a_pause_that_is_asked_for_is_kept() -> None:
    breaker = ProviderBreaker()
    breaker.admit(10.0, KEY)
    breaker.limited(10.0, 20.0)
    assert not breaker.admit(29.9, KEY)
    assert breaker.opens_in_s(15.0) == 15.0
    assert breaker.admit(30.0, KEY)


@pytest.mark.parametrize(("asked_s", "kept_s"), [(None, WITHOUT_RETRY_AFTER_S), (0.0, 0.0), (1e6, LONGEST_COOLING_S)])
def test_a_pause_has_a_sensible_length(asked_s: float | None, kept_s: float) -> None:
    breaker = ProviderBreaker()
    breaker.admit(0.0, KEY)
    breaker.limited(0.0, asked_s)
    assert breaker.opens_in_s(0.0) == kept_s


def test_a_shorter_pause_does_not_undo_a_longer_one() -> None:
    breaker = ProviderBreaker()
    assert breaker.admit(0.0, KEY)
    assert breaker.admit(0.0, KEY)
    breaker.limited(0.0, 60.0)
    breaker.limited(1.0, 2.0)
    assert breaker.opens_in_s(1.0) == 59.0


def test_pauses_are_no_failures_and_do_not_lengthen() -> None:
    breaker, now_s = ProviderBreaker(), 0.0
    for _ in range(50):
        assert breaker.admit(now_s, KEY)
        breaker.limited(now_s, 3.0)
        assert breaker.opens_in_s(now_s) == 3.0
        now_s += 3.0


def test_a_key_that_is_refused_keeps_it_open_until_there_is_another() -> None:
    breaker = ProviderBreaker()
    assert breaker.admit(0.0, "old")
    breaker.refused_key("old")
    assert not breaker.admit(1e9, "old")
    assert breaker.state(1e9, "old") == "open"
    assert breaker.opens_in_s(1e9) is None  # no time helps
    assert breaker.state(0.0, "new") == "half-open"
    assert breaker.admit(0.0, "new")
    assert not breaker.admit(0.0, "new")
    breaker.succeeded()
    assert breaker.admit(0.0, "new")


def test_a_new_key_that_is_refused_too_keeps_it_open() -> None:
    breaker = ProviderBreaker()
    breaker.admit(0.0, "old")
    breaker.refused_key("old")
    assert breaker.admit(0.0, "new")
    breaker.refused_key("new")
    assert not breaker.admit(0.0, "new")


def test_a_new_key_with_which_the_provider_fails_waits_as_any_other() -> None:
    breaker = ProviderBreaker()
    breaker.admit(0.0, "old")
    breaker.refused_key("old")
    assert breaker.admit(0.0, "new")
    breaker.failed(0.0)
    assert breaker.state(0.0, "new") == "open"
    assert breaker.state(FIRST_OPEN_S, "new") == "half-open"
