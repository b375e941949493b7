"""How many rows of prompts a step takes, learnt from the steps so far."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtimes.engine.step_time import ALONE_S, LEAST_ROWS, LEAST_ROWS_ALONE, MEASURE_FROM_ROWS, StepTime


def learnt(row_s: float, *, target_s: float = 0.2, max_rows: int = 512) -> StepTime:
    step_time = StepTime(target_s, max_rows)
    step_time.observe(100, 100 * row_s)
    return step_time


def test_a_step_takes_few_rows_before_anything_is_known() -> None:
    assert StepTime(0.2, 512).prefill_rows(0) == LEAST_ROWS_ALONE
    assert StepTime(0.2, 512).prefill_rows(4) == LEAST_ROWS


def test_a_step_beside_streams_takes_the_rows_that_fit_the_target() -> None:
    assert learnt(0.001).prefill_rows(5) == 195


def test_a_step_that_nobody_waits_beside_may_be_longer() -> None:
    assert learnt(0.005).prefill_rows(0) == int(ALONE_S / 0.005)
    assert learnt(0.01, target_s=2.0).prefill_rows(0) == 200


def test_a_slow_machine_still_makes_progress() -> None:
    assert learnt(10.0).prefill_rows(0) == LEAST_ROWS_ALONE
    assert learnt(10.0).prefill_rows(16) == LEAST_ROWS


@given(
    row_s=st.floats(1e-9, 1.0),
    target_s=st.floats(0.001, 2.0),
    max_rows=st.integers(1, 2048),
    streams=st.integers(0, 256),
)
@settings(max_examples=300, deadline=None)
def test_prompts_and_streams_together_never_exceed_what_a_forward_takes(
    row_s: float, target_s: float, max_rows: int, streams: int
) -> None:
    rows = learnt(row_s, target_s=target_s, max_rows=max_rows).prefill_rows(streams)
    assert rows >= 0
    assert rows + streams <= max(max_rows, streams)


@given(target_s=st.floats(0.001, 2.0), row_s=st.floats(1e-6, 1.0), streams=st.integers(1, 64))
@settings(max_examples=200, deadline=None)
def test_a_step_beside_streams_meets_its_target_unless_it_takes_the_least(
    target_s: float, row_s: float, streams: int
) -> None:
    rows = learnt(row_s, target_s=target_s, max_rows=2048).prefill_rows(streams)
    assert rows <= LEAST_ROWS or (rows + streams) * row_s <= target_s * (1 + 1e-9)


def test_a_clock_too_coarse_to_see_a_step_takes_the_most_rows() -> None:
    step_time = StepTime(0.2, 512)
    step_time.observe(100, 0.0)
    assert step_time.prefill_rows(4) == 508


def test_small_steps_teach_nothing() -> None:
    step_time = learnt(0.001)
    step_time.observe(MEASURE_FROM_ROWS - 1, 60.0)
    assert step_time.prefill_rows(1) == 199


def test_a_busy_moment_passes() -> None:
    step_time = learnt(0.001)
    for _ in range(50):
        step_time.observe(100, 60.0)
    assert step_time.prefill_rows(2) == LEAST_ROWS
    for _ in range(100):  # the machine is quiet again; a step costs 10 ms and a row 1 ms
        rows = step_time.prefill_rows(2) + 2
        step_time.observe(rows, 0.010 + rows * 0.001)
    assert step_time.prefill_rows(2) > 100


def test_one_slow_step_does_not_rule_and_a_lasting_change_does() -> None:
    step_time = learnt(0.001)
    seen = [step_time.prefill_rows(1)]
    for _ in range(40):
        step_time.observe(100, 1.0)  # ten times slower
        seen.append(step_time.prefill_rows(1))
    assert seen[1] > 0.3 * seen[0]
    assert all(later <= earlier for earlier, later in pairwise(seen))
    assert seen[-1] == pytest.approx(19, abs=1)
