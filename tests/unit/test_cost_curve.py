"""The measured cost of a step by the rows in it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.engine.cost_curve import CostCurve, measure
from runtimes.fake import FakeBackend

CPU = CostCurve(((1, 0.011), (2, 0.02), (4, 0.038), (8, 0.063), (16, 0.123)), 0.005)  # 135M parameters, two cores


class Clock:
    """Each reading is `tick_s` after the one before."""

    def __init__(self, tick_s: float) -> None:
        self.now_s = 0.0
        self.tick_s = tick_s

    def __call__(self) -> float:
        self.now_s += self.tick_s
        return self.now_s


def test_what_was_measured_is_given_back() -> None:
    assert [CPU.decode_s(n) for n, _ in CPU.decode] == [seconds for _, seconds in CPU.decode]


def test_between_two_measurements_lies_a_line() -> None:
    assert CPU.decode_s(3) == pytest.approx(0.029)
    assert CPU.decode_s(12) == pytest.approx(0.093)


def test_beyond_the_last_measurement_each_row_costs_as_much_as_there() -> None:
    assert CPU.decode_s(32) == pytest.approx(0.246)
    assert CPU.decode_s(0) == 0


@given(st.integers(1, 300))
def test_a_step_of_any_size_takes_some_time(streams: int) -> None:
    assert CPU.decode_s(streams) > 0


def test_the_knee_is_where_more_streams_gain_little() -> None:
    assert CPU.knee(16, 0.95) == 8
    flat = CostCurve(((1, 0.01), (16, 0.01)), 0.0001)  # as a GPU's
    assert flat.knee(16, 0.95) == 16
    assert CPU.knee(1, 0.95) == 1


@pytest.mark.parametrize(
    ("decode", "row_s"),
    [((), 0.1), (((2, 0.1),), 0.1), (((1, 0.1), (1, 0.2)), 0.1), (((1, 0.0),), 0.1), (((1, 0.1),), -1.0)],
)
def test_what_no_measurement_can_have_given_is_refused(decode: tuple[tuple[int, float], ...], row_s: float) -> None:
    with pytest.raises(ValueError, match=r"cost curve|step takes"):
        CostCurve(decode, row_s)


def test_measuring_covers_one_stream_to_all_slots_and_leaves_the_cache_empty() -> None:
    backend = FakeBackend()
    curve = measure(backend, 12, 0, Clock(0.01), limit_s=60)
    assert [streams for streams, _ in curve.decode] == [1, 2, 4, 8, 12]
    assert backend.used_cells == 0


def test_a_slow_machine_measures_the_ends_first_and_stops_at_its_limit() -> None:
    backend = FakeBackend()
    curve = measure(backend, 16, 0, Clock(1.0), limit_s=9.0)
    assert [streams for streams, _ in curve.decode] == [1, 16]


def test_a_clock_too_coarse_for_a_step_still_gives_a_curve() -> None:
    curve = measure(FakeBackend(), 4, 0, Clock(0.0), limit_s=1.0)
    assert curve.decode_s(4) > 0


def test_a_machine_that_is_slow_for_a_moment_does_not_spoil_the_curve() -> None:
    """The least of several measurements counts."""

    class Stutter(Clock):
        def __call__(self) -> float:
            self.tick_s = 1.0 if self.now_s < 20 else 0.01
            return super().__call__()

    assert measure(FakeBackend(), 4, 0, Stutter(1.0), limit_s=60).decode_s(4) == pytest.approx(0.01)
