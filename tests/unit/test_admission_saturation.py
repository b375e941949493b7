"""How saturation follows from samples."""

import math
from dataclasses import replace

import pytest

from appliance.admission.saturation import (
    GPU_SUSTAINED_S,
    STALE_AFTER_S,
    EngineLoad,
    Gauge,
    MachineLoad,
    Saturation,
)

IDLE = EngineLoad(0, 0.0, 0.0, 0, 10_000, 0, 0, 1.0, 0.0)
BUSY = replace(IDLE, running=4, kv_used_tokens=2_000)
QUEUED = replace(BUSY, waiting=3, expected_wait_s=0.1)
CALM = MachineLoad()
FULL_GPU = MachineLoad(gpu_utilisation=1.0, sample_age_s=0.1)


def settled(engine: EngineLoad, machine: MachineLoad = CALM, *, seconds: float = 3.0) -> Saturation:
    gauge = Gauge(wait_target_s=1.0)
    found = Saturation(0.0, None)
    for i in range(int(seconds * 10)):
        found = gauge.read([engine], machine, i * 0.1)
    return found


def test_an_idle_machine_is_not_saturated() -> None:
    assert settled(IDLE).value == 0


@pytest.mark.parametrize(
    ("engine", "machine", "cause"),
    [
        (replace(QUEUED, expected_wait_s=2.0), CALM, "queue-wait"),
        (replace(BUSY, demand=3.0), CALM, "demand"),
        (replace(BUSY, kv_used_tokens=9_000), CALM, "kv-cache"),
        (replace(QUEUED, tokens_in_flight=20_000), CALM, "tokens-in-flight"),
        (replace(BUSY, drift=8.0), CALM, "slow-steps"),
        (replace(BUSY, silent_s=STALE_AFTER_S + 1), CALM, "stale-sample"),
        (QUEUED, FULL_GPU, "gpu-utilisation"),
        (QUEUED, replace(FULL_GPU, gpu_utilisation=0.5, throttled=frozenset({"thermal"})), "thermal-throttling"),
        (QUEUED, replace(FULL_GPU, gpu_utilisation=0.5, throttled=frozenset({"hw-slowdown"})), "thermal-throttling"),
        (QUEUED, replace(FULL_GPU, gpu_utilisation=0.5, throttled=frozenset({"power"})), "power-throttling"),
        (BUSY, replace(FULL_GPU, sample_age_s=math.inf), "stale-sample"),
        (BUSY, MachineLoad(lag_s=1.0), "event-loop"),
        (BUSY, MachineLoad(memory_share=1.2), "memory"),
    ],
)
def test_each_signal_saturates_by_itself_and_is_named(engine: EngineLoad, machine: MachineLoad, cause: str) -> None:
    found = settled(engine, machine)
    assert found.value > 0.99
    assert found.cause == cause


def test_a_full_gpu_without_a_queue_is_no_saturation() -> None:
    assert settled(BUSY, FULL_GPU, seconds=60).value < 0.5


def test_a_full_gpu_counts_only_once_it_lasts() -> None:
    assert "gpu-utilisation" not in settled(QUEUED, FULL_GPU, seconds=GPU_SUSTAINED_S).signals


def test_a_cool_gpu_that_is_held_down_without_a_queue_is_no_saturation() -> None:
    throttled = replace(FULL_GPU, throttled=frozenset({"thermal", "power"}))
    assert settled(BUSY, throttled).value < 0.5


def test_a_machine_without_a_gpu_says_nothing_about_one() -> None:
    assert not {"gpu-utilisation", "stale-sample"} & {c for c, v in settled(QUEUED).signals.items() if v}


def test_one_odd_sample_does_not_show() -> None:
    gauge = Gauge(1.0)
    for i in range(10):
        gauge.read([BUSY], CALM, i * 0.1)
    assert gauge.read([replace(BUSY, drift=4.0)], CALM, 1.0).value < 0.6


def test_the_queues_own_wait_does_not_count_as_the_machines() -> None:
    assert settled(replace(QUEUED, expected_wait_s=50.0)).of_the_machine < 0.5


def test_a_clock_that_stands_still_changes_nothing() -> None:
    gauge = Gauge(1.0)
    first = gauge.read([BUSY], CALM, 5.0)
    assert gauge.read([replace(BUSY, drift=100.0)], CALM, 5.0).value == first.value


def test_the_worst_of_several_engines_counts() -> None:
    gauge = Gauge(1.0)
    assert gauge.read([BUSY, replace(BUSY, kv_used_tokens=8_000)], CALM, 0.0).cause == "kv-cache"
