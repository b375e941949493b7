"""What hardware does opens the breaker, or leaves it closed: from a trace to its transitions, on virtual time."""

import io
import math
from collections.abc import Iterable
from dataclasses import replace

import pytest

from appliance.admission.breaker import Breaker, Rules
from appliance.admission.saturation import EngineLoad, Gauge
from appliance.machine_load import of_sample
from appliance.telemetry.hardware import GpuSample, HardwareSample, Recorded, TraceWriter, read_trace
from tests.unit.hardware_samples import GPU, HOST

TICK_S = 0.1
SAMPLED_S = 0.2
# A signal that is all or nothing comes close to 1 and does not reach it: it is smoothed.
RULES = Rules(dwell_s=1.0, soon_s=0.0)

IDLE = EngineLoad(0, 0.0, 0.0, 0, 10_000, 0, 0, 1.0, 0.0)
BUSY = replace(IDLE, running=2, kv_used_tokens=500)
QUEUED = replace(BUSY, waiting=3, expected_wait_s=0.1)

CALM = replace(GPU, utilisation=0.3, throttle=frozenset())
FULL = replace(CALM, utilisation=1.0)
HOT = replace(CALM, throttle=frozenset({"thermal"}))
HELD_DOWN = replace(CALM, throttle=frozenset({"power"}))

OPEN_AND_CLOSED_AGAIN = [("open", "half-open", "recovered"), ("half-open", "closed", "room-for-all")]


def phase(begin_s: float, end_s: float, gpu: GpuSample | None, **fields: object) -> list[HardwareSample]:
    """Samples at the sampler's pace. Without a GPU: it was lost."""
    sample = HardwareSample(0.0, (gpu,), HOST, "ok", None) if gpu else HardwareSample(0.0, (), HOST, "lost", "it fell")
    times_s = (begin_s + i * SAMPLED_S for i in range(math.ceil((end_s - begin_s) / SAMPLED_S - 1e-9)))
    return [replace(sample, at_s=at_s, **fields) for at_s in times_s]  # type: ignore[arg-type] # fields of a sample


def transitions(
    *phases: Iterable[HardwareSample], until_s: float, engine: EngineLoad = QUEUED, idle_until_s: float = 0.0
) -> list[tuple[str, str, str, float]]:
    """From, to, reason and time of each, with a trace that was written and read. `engine`: its load once it is not
    idle any more."""
    file = io.StringIO()
    writer = TraceWriter(file)
    for samples in phases:
        for sample in samples:
            writer.write(sample)
    now_s = 0.0
    replay = Recorded(read_trace(io.StringIO(file.getvalue())), lambda: now_s)
    gauge, breaker = Gauge(wait_target_s=1.0), Breaker(RULES)
    found: list[tuple[str, str, str, float]] = []
    for tick in range(round(until_s / TICK_S)):
        now_s = tick * TICK_S
        gpus, host = replay.gpus(), replay.host()
        machine = of_sample(HardwareSample(now_s, gpus.gpus, host, gpus.state, gpus.problem), 0.0, 0.1, now_s)
        change = breaker.observe(gauge.read([IDLE if now_s < idle_until_s else engine], machine, now_s), now_s)
        if change is not None:
            found.append((change.before, change.after, str(change.reason), round(change.at_s, 1)))
    return found


def reasons(found: list[tuple[str, str, str, float]]) -> list[tuple[str, str, str]]:
    return [(before, after, reason) for before, after, reason, _ in found]


def test_a_full_gpu_with_an_empty_queue_opens_nothing() -> None:
    assert transitions(phase(0, 60, FULL), until_s=60, engine=BUSY) == []


def test_a_full_gpu_opens_it_once_requests_have_waited_for_over_a_second() -> None:
    (opened,) = transitions(phase(0, 20, FULL), until_s=20, idle_until_s=10)
    assert opened[:3] == ("closed", "open", "gpu-utilisation")
    assert 11 < opened[3] <= 13  # a second of it, and two for the breaker


def test_a_full_gpu_for_less_than_a_second_opens_nothing() -> None:
    peaks = [phase(at_s, at_s + 0.8, FULL) + phase(at_s + 0.8, at_s + 1.2, CALM) for at_s in (0.0, 1.2, 2.4, 3.6)]
    assert transitions(*peaks, until_s=5) == []


@pytest.mark.parametrize(("gpu", "reason"), [(HOT, "thermal-throttling"), (HELD_DOWN, "power-throttling")])
def test_heat_and_power_open_it_while_requests_wait_and_only_then(gpu: GpuSample, reason: str) -> None:
    assert transitions(phase(0, 10, gpu), until_s=10, engine=BUSY) == []
    (opened,) = transitions(phase(0, 2, CALM), phase(2, 10, gpu), until_s=10)
    assert opened[:3] == ("closed", "open", reason)
    assert 2 < opened[3] <= 4


@pytest.mark.parametrize("engine", [IDLE, BUSY, QUEUED], ids=["idle", "busy", "queued"])
def test_a_driver_that_hangs_opens_it_whether_or_not_requests_wait(engine: EngineLoad) -> None:
    blocked = phase(2, 10, CALM, gpu_state="blocked", problem="it hangs")
    (opened,) = transitions(phase(0, 2, CALM), blocked, until_s=10, engine=engine)
    assert opened[:3] == ("closed", "open", "stale-sample")
    assert 2 < opened[3] <= 4


def test_a_gap_in_the_trace_is_a_driver_that_hung() -> None:
    found = transitions(phase(0, 2, CALM), phase(8, 16, CALM), until_s=16, engine=IDLE)
    assert reasons(found) == [("closed", "open", "stale-sample"), *OPEN_AND_CLOSED_AGAIN]
    assert 3.8 < found[0][3] <= 6  # two seconds after the last sample before the gap, and two for the breaker
    assert found[1][3] > 8


def test_a_sample_that_has_grown_old_counts_as_stale_and_one_that_is_lost_as_nothing() -> None:
    sample = HardwareSample(0.0, (HOT,), HOST, "ok", None)
    gauge = Gauge(wait_target_s=1.0)
    assert gauge.read([QUEUED], of_sample(sample, 0.0, 0.1, 1.9), 1.9).cause == "thermal-throttling"
    assert Gauge(1.0).read([QUEUED], of_sample(sample, 0.0, 0.1, 2.1), 2.1).cause == "stale-sample"
    lost = replace(sample, gpus=(), gpu_state="lost")
    assert of_sample(lost, 0.0, 0.1, 100.0) == of_sample(None, 0.0, 0.1, 100.0)


def test_a_lost_gpu_says_nothing_any_more_and_the_breaker_recovers() -> None:
    found = transitions(phase(0, 4, FULL), phase(4, 14, None), until_s=14)
    assert reasons(found) == [("closed", "open", "gpu-utilisation"), *OPEN_AND_CLOSED_AGAIN]
    assert 4 < found[1][3] <= 7


def test_one_trace_through_all_of_it_gives_these_transitions_and_no_others() -> None:
    calm_s = 8.0  # enough to recover after each

    def then(begin_s: float, gpu: GpuSample, **fields: object) -> list[HardwareSample]:
        return phase(begin_s, begin_s + 4, gpu, **fields) + phase(begin_s + 4, begin_s + 4 + calm_s, CALM)

    found = transitions(
        phase(0, 10, FULL),  # nobody waits
        phase(10, 12, CALM),
        then(12, FULL),
        then(24, HOT),
        then(36, HELD_DOWN),
        then(48, CALM, gpu_state="blocked"),
        phase(60, 64, FULL),
        phase(64, 90, None),
        until_s=90,
        idle_until_s=11,
    )
    causes = ["gpu-utilisation", "thermal-throttling", "power-throttling", "stale-sample", "gpu-utilisation"]
    assert reasons(found) == [step for cause in causes for step in (("closed", "open", cause), *OPEN_AND_CLOSED_AGAIN)]
    opened_s = [at_s for _, after, _, at_s in found if after == "open"]
    for at_s, began_s in zip(opened_s, (12, 24, 36, 48, 60), strict=True):
        assert began_s < at_s <= began_s + 3
