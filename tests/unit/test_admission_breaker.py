"""The breaker: what opens it, what closes it, and what it does not do."""

import random
from collections.abc import Iterable

import pytest

from appliance.admission.breaker import Breaker, Rules, Transition
from appliance.admission.saturation import Saturation

TICK_S = 0.1


def run(breaker: Breaker, values: Iterable[float], *, begin_s: float = 0.0, refusing: bool = False) -> list[Transition]:
    """A sample every 0.1 s. `refusing`: a probe finds no room at each of them."""
    found = []
    for i, value in enumerate(values):
        if refusing and breaker.state == "half-open":
            breaker.refused()
        change = breaker.observe(Saturation(value, "queue-wait" if value else None), begin_s + i * TICK_S)
        if change is not None:
            found.append(change)
    return found


def opened(rules: Rules | None = None) -> Breaker:
    breaker = Breaker(rules or Rules())
    run(breaker, [2.0] * 20, begin_s=-2.0)
    assert breaker.state == "open"
    return breaker


def test_it_opens_within_two_seconds_of_saturation_and_says_why() -> None:
    (change,) = run(Breaker(), [0.0] * 20 + [1.5] * 20)
    assert (change.before, change.after, change.reason) == ("closed", "open", "queue-wait")
    assert change.at_s <= 2.0 + 2.0


def test_a_short_peak_opens_nothing() -> None:
    assert not run(Breaker(), ([5.0] * 2 + [0.1] * 10) * 20)


def test_a_peak_that_is_over_by_the_time_it_is_judged_has_its_cause_all_the_same() -> None:
    (change,) = run(Breaker(), [50.0] * 7 + [0.0] * 3)[:1]
    assert change.reason == "queue-wait"
    assert change.saturation > 1


def test_what_is_just_below_the_limit_opens_nothing() -> None:
    assert not run(Breaker(), [0.99] * 600)


def test_it_stays_open_for_its_dwell_and_then_probes_and_closes() -> None:
    breaker = opened()
    changes = run(breaker, [0.1] * 150)
    assert [change.after for change in changes] == ["half-open", "closed"]
    assert changes[0].at_s >= breaker.rules.dwell_s - 2.0  # it opened within the two seconds before 0
    assert changes[1].at_s - changes[0].at_s >= breaker.rules.probe_windows * breaker.rules.window_s * 0.9


def test_it_does_not_recover_between_its_two_limits() -> None:
    assert not run(opened(), [0.9] * 600)


def test_while_probes_find_no_room_it_stays_half_open() -> None:
    breaker = opened()
    run(breaker, [0.1] * 300, refusing=True)
    assert breaker.state == "half-open"
    assert [change.after for change in run(breaker, [0.1] * 60, begin_s=30.0)] == ["closed"]


def opened_again() -> Breaker:
    """Soon after it had recovered, between 7 and 9 s."""
    breaker = opened()
    run(breaker, [0.1] * 70, refusing=True)
    assert breaker.state == "half-open"
    assert [change.after for change in run(breaker, [2.0] * 20, begin_s=7.0)] == ["open"]
    return breaker


def test_when_it_has_to_open_again_soon_it_stays_open_for_long() -> None:
    breaker = opened_again()
    assert breaker.reopens_in_s(breaker.since_s) == breaker.rules.long_dwell_s
    change = run(breaker, [0.7] * 640, begin_s=9.0)[0]
    assert change.after == "half-open"
    assert change.at_s >= 7.0 + breaker.rules.long_dwell_s


def test_it_does_not_stay_open_for_long_when_there_is_nothing_to_do_any_more() -> None:
    changes = run(opened_again(), [0.2] * 120, begin_s=9.0)
    assert [change.after for change in changes] == ["half-open", "closed"]
    assert changes[0].at_s <= 9.0 + 6.0


@pytest.mark.parametrize("level", [0.5, 0.85, 0.9, 1.1, 2.0])
@pytest.mark.parametrize("seed", range(20))
def test_ten_percent_of_noise_makes_it_flap_at_most_once_a_minute(level: float, seed: int) -> None:
    rng = random.Random(seed)
    minutes = 10
    changes = run(Breaker(), [level * rng.gauss(1, 0.1) for _ in range(minutes * 600)])
    assert sum(change.after == "open" for change in changes) <= minutes


def test_the_owner_holds_it_open_and_closed_whatever_the_load() -> None:
    breaker = Breaker()
    assert breaker.hold("open", 0.0) is not None
    assert not run(breaker, [0.0] * 300)
    closing = breaker.hold("closed", 30.0)
    assert closing is not None
    assert (closing.before, closing.after, closing.reason) == ("open", "closed", "owner")
    assert not run(breaker, [5.0] * 300, begin_s=30.0)
    assert breaker.hold(None, 60.0) is None
    assert run(breaker, [5.0] * 30, begin_s=60.0)[0].after == "open"


def test_a_pause_of_the_clock_is_one_sample_and_no_run_of_them() -> None:
    breaker = Breaker()
    breaker.observe(Saturation(5.0, "queue-wait"), 0.0)
    assert breaker.observe(Saturation(5.0, "queue-wait"), 1000.0) is None
    assert breaker.state == "closed"
