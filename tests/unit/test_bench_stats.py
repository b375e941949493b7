"""The statistics that the benchmark tables are made of."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.stats import Spread, median, paired_differences, paired_ratios, percentile

_values = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200)


@given(_values, st.floats(0, 100))
def test_a_percentile_is_what_numpy_calls_linear(values: list[float], q: float) -> None:
    assert percentile(values, q) == pytest.approx(float(np.percentile(values, q, method="linear")), abs=1e-6)


def test_p99_of_few_values_lies_just_below_the_greatest() -> None:
    assert percentile(range(1, 17), 99) == pytest.approx(15.85)
    assert percentile([7.0], 99) == 7.0


@pytest.mark.parametrize(("values", "q"), [([], 50), ([1.0], -1), ([1.0], 101)])
def test_a_percentile_of_nothing_or_outside_the_hundred_is_an_error(values: list[float], q: float) -> None:
    with pytest.raises(ValueError, match="percentile"):
        percentile(values, q)


def test_the_median_of_an_even_number_is_the_middle_of_the_two() -> None:
    assert median([4.0, 1.0, 3.0, 2.0]) == 2.5


def test_a_drift_that_meets_both_runs_of_a_pair_falls_out_of_their_ratio() -> None:
    machine_speed = [1.0, 0.5, 2.0]
    ours = [120 * speed for speed in machine_speed]
    theirs = [100 * speed for speed in machine_speed]
    assert paired_ratios(ours, theirs) == Spread(1.2, 1.2, 1.2, 3)


def test_differences_are_ours_less_theirs() -> None:
    assert paired_differences([5.0, 9.0, 4.0], [3.0, 4.0, 3.0]) == Spread(2.0, 1.0, 5.0, 3)


def test_runs_without_a_partner_are_an_error() -> None:
    with pytest.raises(ValueError, match="shorter"):
        paired_ratios([1.0, 2.0], [1.0])
