"""What a step takes beside critical streams."""

from hypothesis import given
from hypothesis import strategies as st

from runtimes.engine.batching import EXPECTED_FOR_S, LONGEST_REST_S, TOLERANCE, Crowd, share
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


def test_beside_critical_streams_others_take_what_makes_a_step_little_longer() -> None:
    few = Crowd(1, critical_prompts=False, other_streams=9)
    many = Crowd(8, critical_prompts=False, other_streams=8)
    assert share(few, step_time(), critical_s=0, rested_s=0).other_streams == 0
    assert share(many, step_time(), critical_s=0, rested_s=0).other_streams == 4  # 93 ms, and 63 alone


def test_the_owner_may_let_a_critical_token_take_longer() -> None:
    crowd = Crowd(1, critical_prompts=False, other_streams=9)
    assert share(crowd, step_time(), critical_s=0, rested_s=0, itl_target_s=0.040).other_streams == 3
    assert share(crowd, step_time(), critical_s=0, rested_s=0, itl_target_s=1.0).other_streams == 9


def test_on_a_flat_curve_nobody_has_to_stand_back() -> None:
    taken = share(Crowd(4, critical_prompts=False, other_streams=12), step_time(GPU), critical_s=0, rested_s=0)
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
    drift=st.floats(0.2, 5),
)
def test_a_step_of_streams_with_critical_ones_holds_its_limit(
    *, critical: int, others: int, prompts: bool, rested_s: float, drift: float
) -> None:
    times = step_time()
    times.drift = drift
    taken = share(
        Crowd(critical, critical_prompts=prompts, other_streams=others), times, critical_s=0, rested_s=rested_s
    )
    assert taken.prefill_rows >= 0
    if critical and not prompts and rested_s < LONGEST_REST_S:
        assert taken.other_streams is not None
        limit_s = TOLERANCE * times.streams_s(critical)
        streams_s = times.streams_s(critical + taken.other_streams)
        assert streams_s + taken.prefill_rows * 0.005 <= limit_s * (1 + 1e-9)
