"""What a step takes beside critical streams."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.engine.batching import EXPECTED_FOR_S, LONGEST_REST_S, LONGEST_SHARED, TOLERANCE, Crowd, saved, share
from runtimes.engine.cost_curve import CostCurve
from runtimes.engine.step_time import LEAST_ROWS, StepTime

CPU = CostCurve(((1, 0.011), (2, 0.02), (4, 0.038), (8, 0.063), (16, 0.123)), 0.005)
GPU = CostCurve(((1, 0.010), (16, 0.011)), 0.00005)


def step_time(curve: CostCurve = CPU) -> StepTime:
    return StepTime(0.2, 512, row_s=curve.prefill_row_s, curve=curve, slots=16)


def test_without_critical_work_nobody_stands_back() -> None:
    taken = share(Crowd(0, critical_prompts=False, other_streams=9), step_time(), critical_s=None, rested_s=0)
    assert taken.other_streams is None
    assert taken.others_prefill
    assert taken.prefill_rows == 31


def test_while_a_critical_prompt_is_computed_others_rest() -> None:
    taken = share(Crowd(1, critical_prompts=True, other_streams=9), step_time(), critical_s=0, rested_s=0.1)
    assert (taken.other_streams, taken.others_prefill) == (0, False)
    assert taken.prefill_rows == 39


def test_beside_critical_streams_others_save_up_for_a_step_that_many_of_them_share() -> None:
    crowd = Crowd(2, critical_prompts=False, other_streams=9)
    for saved_s, others in ((0.0, 0), (0.040, 0), (0.062, 8)):  # 10 streams are 82 ms, more than four times 20 are not
        assert share(crowd, step_time(), critical_s=0, rested_s=0, saved_s=saved_s).other_streams == others


def test_prompts_of_others_get_what_is_left_and_not_in_crumbs() -> None:
    crowd = Crowd(2, critical_prompts=False, other_streams=2, other_prompts=True)
    taken = share(crowd, step_time(), critical_s=0, rested_s=0, saved_s=0.020)
    assert (taken.other_streams, taken.prefill_rows) == (2, 0)
    taken = share(crowd, step_time(), critical_s=0, rested_s=0, saved_s=0.065)
    assert (taken.other_streams, taken.prefill_rows) == (2, 8)
    nobody = Crowd(2, critical_prompts=False, other_streams=2)
    assert share(nobody, step_time(), critical_s=0, rested_s=0, saved_s=0.065).prefill_rows == 0


@pytest.mark.parametrize("curve", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("critical", [1, 2, 5, 8])
def test_on_average_critical_streams_are_slowed_down_by_the_tolerance_at_most(curve: CostCurve, critical: int) -> None:
    times, saved_s, total_s, steps, others = step_time(curve), 0.0, 0.0, 500, 0
    alone_s = times.streams_s(critical)
    for _ in range(steps):
        crowd = Crowd(critical, critical_prompts=False, other_streams=7, other_prompts=True)
        taken = share(crowd, times, critical_s=0, rested_s=0, saved_s=saved_s)
        assert taken.other_streams is not None
        took_s = times.streams_s(critical + taken.other_streams) + taken.prefill_rows * curve.prefill_row_s
        assert took_s <= LONGEST_SHARED * alone_s * (1 + 1e-9)
        saved_s = saved(saved_s, alone_s, took_s)
        total_s += took_s
        others += taken.other_streams
    assert total_s <= TOLERANCE * alone_s * steps * (1 + 1e-9)
    assert others >= steps / 10  # and what they may take, others do take


def test_the_owner_may_let_a_critical_token_take_longer() -> None:
    crowd = Crowd(1, critical_prompts=False, other_streams=9)
    assert share(crowd, step_time(), critical_s=0, rested_s=0, itl_target_s=0.040).other_streams == 3
    assert share(crowd, step_time(), critical_s=0, rested_s=0, itl_target_s=1.0).other_streams == 9


def test_on_a_flat_curve_nobody_has_to_stand_back() -> None:
    crowd = Crowd(4, critical_prompts=False, other_streams=12)
    taken = share(crowd, step_time(GPU), critical_s=0, rested_s=0, saved_s=(TOLERANCE - 1) * 0.010)  # of one step
    assert taken.other_streams == 12


def test_after_a_rest_others_get_a_row_whatever_critical_work_there_is() -> None:
    busy = share(Crowd(16, critical_prompts=False, other_streams=3), step_time(), critical_s=0, rested_s=LONGEST_REST_S)
    assert busy.other_streams == 1
    prompts = share(
        Crowd(2, critical_prompts=True, other_streams=3), step_time(), critical_s=0, rested_s=LONGEST_REST_S
    )
    assert prompts.other_streams == 1


def test_after_a_rest_prompts_of_others_go_on_too() -> None:
    beside = share(Crowd(2, critical_prompts=True, other_streams=0), step_time(), critical_s=0, rested_s=LONGEST_REST_S)
    assert (beside.others_prefill, beside.others_first) == (True, True)
    assert beside.prefill_rows == LEAST_ROWS  # the critical prompt waits no longer than for these
    alone = share(Crowd(1, critical_prompts=False, other_streams=0), step_time(), critical_s=0, rested_s=LONGEST_REST_S)
    assert alone.prefill_rows == LEAST_ROWS


def test_steps_are_kept_short_while_critical_work_is_expected() -> None:
    crowd = Crowd(0, critical_prompts=False, other_streams=0)
    never = share(crowd, step_time(), critical_s=None, rested_s=0).prefill_rows
    soon = share(crowd, step_time(), critical_s=1.0, rested_s=0).prefill_rows
    long_ago = share(crowd, step_time(), critical_s=EXPECTED_FOR_S, rested_s=0).prefill_rows
    assert never == long_ago == 100
    assert soon == int(0.123 / 0.005)


def test_before_anything_is_measured_a_step_is_still_taken() -> None:
    blind = StepTime(0.2, 512, slots=16)
    taken = share(Crowd(1, critical_prompts=False, other_streams=2), blind, critical_s=0, rested_s=0)
    assert taken.other_streams == 2


@given(
    critical=st.integers(0, 16),
    others=st.integers(0, 16),
    prompts=st.booleans(),
    rested_s=st.floats(0, 2),
    saved_s=st.floats(-0.25, 0.25),
    drift=st.floats(0.2, 5),
)
def test_a_step_of_streams_with_critical_ones_holds_its_limit(
    *, critical: int, others: int, prompts: bool, rested_s: float, saved_s: float, drift: float
) -> None:
    times = step_time()
    times.drift = drift
    crowd = Crowd(critical, critical_prompts=prompts, other_streams=others, other_prompts=True)
    taken = share(crowd, times, critical_s=0, rested_s=rested_s, saved_s=saved_s)
    assert taken.prefill_rows >= 0
    if critical and not prompts and rested_s < LONGEST_REST_S:
        assert taken.other_streams is not None
        alone_s = times.streams_s(critical)
        step_s = times.streams_s(critical + taken.other_streams) + taken.prefill_rows * 0.005
        assert step_s <= max(alone_s, min(LONGEST_SHARED * alone_s, alone_s + saved_s)) * (1 + 1e-9)
