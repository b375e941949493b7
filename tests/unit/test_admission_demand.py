"""What is asked of an engine, from what comes in."""

import pytest

from appliance.admission.demand import Demand


def asked(seconds: float, rate: float, for_s: float, demand: Demand | None = None, begin_s: float = 0.0) -> Demand:
    """Requests of so many seconds, so many a second, evenly."""
    demand = demand or Demand()
    for i in range(round(for_s * rate)):
        demand.came(seconds, begin_s + i / rate)
    return demand


@pytest.mark.parametrize("seconds", [0.02, 0.25, 3.0])
@pytest.mark.parametrize("load", [0.5, 1.0, 3.0])
def test_it_finds_the_load_whatever_the_length_of_requests(seconds: float, load: float) -> None:
    for_s = 200 * seconds
    assert asked(seconds, load / seconds, for_s).newest(for_s) == pytest.approx(load, rel=0.25)


def test_it_forgets() -> None:
    demand = asked(0.25, 12, 30)
    assert demand.newest(30) > 2.5
    assert demand.newest(33) < 0.2
    assert demand.lasting(40) < 0.2


def test_a_gap_of_a_second_is_not_the_end_of_it() -> None:
    demand = asked(0.25, 12, 30)
    assert demand.newest(31) < 1.2
    assert demand.lasting(31) > 1.5


def test_a_rise_to_three_times_what_can_be_done_shows_within_a_second() -> None:
    demand = asked(0.25, 2, 30)
    assert demand.newest(30) < 0.8
    asked(0.25, 12, 1.0, demand, 30)
    assert demand.newest(31) > 1.5


def test_a_single_long_request_is_no_rise() -> None:
    demand = Demand()
    demand.came(100.0, 0.0)
    assert demand.newest(0.0) <= 0.25


def test_nothing_was_asked_yet() -> None:
    assert Demand().newest(100.0) == 0
