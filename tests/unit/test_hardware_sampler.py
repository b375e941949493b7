"""The latest sample is there at once, whatever the machine does, on a clock that the test moves."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from appliance.telemetry.hardware import GpuReading, HardwareSample, HostSample, Recorded, Sampler
from tests.unit.hardware_samples import GPU, HOST

LIMIT_S = 10.0  # it takes milliseconds
WAIT_S = 0.001


class Machine:
    """Its GPUs and its host, each of which can be made to hang or to raise."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.reading = GpuReading((GPU,), "ok", None)
        self.answers = {"gpus": threading.Event(), "host": threading.Event()}
        self.errors: dict[str, Exception] = {}
        self.threads: dict[str, threading.Thread] = {}
        self.readings = {"gpus": 0, "host": 0}
        self.hanging: set[str] = set()
        self.answer()

    def clock(self) -> float:
        return self.now_s

    def gpus(self) -> GpuReading:
        self._called("gpus")
        return self.reading

    def host(self) -> HostSample:
        self._called("host")
        return replace(HOST, load_1m=self.now_s)

    def hang(self, *parts: str) -> None:
        """Returns when they do."""
        for part in parts:
            self.answers[part].clear()
        until(lambda: self.hanging >= set(parts))

    def answer(self) -> None:
        for event in self.answers.values():
            event.set()

    def read_again(self, *parts: str) -> None:
        """Returns when a reading of each that began after now has ended."""
        seen = dict(self.readings)
        until(lambda: all(self.readings[part] >= seen[part] + 2 for part in parts))

    def _called(self, part: str) -> None:
        self.threads[part] = threading.current_thread()
        self.readings[part] += 1
        if not self.answers[part].is_set():
            self.hanging.add(part)
            self.answers[part].wait(LIMIT_S)
            self.hanging.remove(part)
        error = self.errors.get(part)
        if error is not None:
            raise error


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def sampler(machine: Machine) -> Iterator[Sampler]:
    made = Sampler(machine, machine.clock, every_s=WAIT_S)
    yield made
    made.stop()
    machine.answer()


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline_s, "it does not come"
        time.sleep(WAIT_S)


def latest(sampler: Sampler) -> HardwareSample:
    sample = sampler.latest()
    assert sample is not None
    return sample


def test_there_is_no_sample_before_both_parts_were_read(machine: Machine, sampler: Sampler) -> None:
    assert sampler.latest() is None
    assert sampler.age_s(machine.now_s) is None
    machine.answers["gpus"].clear()
    sampler.start()
    machine.read_again("host")
    assert sampler.latest() is None
    machine.answer()
    until(lambda: sampler.latest() is not None)
    assert latest(sampler) == HardwareSample(1000.0, (GPU,), replace(HOST, load_1m=1000.0), "ok", None)


def test_a_samples_age_is_since_it_was_finished(machine: Machine, sampler: Sampler) -> None:
    sampler.start()
    machine.read_again("host", "gpus")
    machine.hang("host")
    machine.now_s += 1.5
    assert sampler.age_s(machine.now_s) == 1.5


def test_gpus_that_hang_are_blocked_after_two_seconds_and_the_host_stays_fresh(
    machine: Machine, sampler: Sampler
) -> None:
    sampler.start()
    machine.read_again("host", "gpus")
    machine.hang("gpus")
    machine.now_s += 1.9
    assert latest(sampler).gpu_state == "ok"
    machine.now_s += 0.2
    blocked = latest(sampler)  # the clock says so: no thread has done anything
    assert (blocked.gpu_state, blocked.gpus) == ("blocked", (GPU,))
    assert blocked.problem == "the GPUs could not be read for 2 s: their driver seems to hang"
    machine.read_again("host")
    assert latest(sampler).at_s == machine.now_s
    assert latest(sampler).host.load_1m == machine.now_s
    machine.answer()
    until(lambda: latest(sampler).gpu_state == "ok")


def test_gpus_that_hang_from_the_beginning_do_not_hide_the_host(machine: Machine, sampler: Sampler) -> None:
    machine.answers["gpus"].clear()
    sampler.start()
    machine.read_again("host")
    machine.now_s += 2.1
    assert (latest(sampler).gpu_state, latest(sampler).gpus) == ("blocked", ())


def test_what_becomes_of_the_gpus_is_passed_on(machine: Machine, sampler: Sampler) -> None:
    machine.reading = GpuReading((), "absent", "NVML shows no GPU")
    sampler.start()
    machine.read_again("host", "gpus")
    assert (latest(sampler).gpu_state, latest(sampler).problem) == ("absent", "NVML shows no GPU")


def test_gpus_whose_reading_raises_are_lost_and_tried_again(
    machine: Machine, sampler: Sampler, caplog: pytest.LogCaptureFixture
) -> None:
    machine.errors["gpus"] = ZeroDivisionError("why")
    with caplog.at_level(logging.ERROR):
        sampler.start()
        machine.read_again("host", "gpus")
        machine.read_again("gpus")
    assert latest(sampler).gpu_state == "lost"
    assert latest(sampler).problem == "the GPUs cannot be read: ZeroDivisionError('why')"
    assert [record.message for record in caplog.records] == ["hardware_reading_failed"]  # once
    del machine.errors["gpus"]
    until(lambda: latest(sampler).gpu_state == "ok")


def test_a_host_whose_reading_raises_grows_old_and_is_tried_again(
    machine: Machine, sampler: Sampler, caplog: pytest.LogCaptureFixture
) -> None:
    sampler.start()
    machine.read_again("host", "gpus")
    with caplog.at_level(logging.ERROR):
        machine.errors["host"] = OSError("too many open files")
        machine.read_again("host")
        machine.now_s += 5
        machine.read_again("host", "gpus")
    assert sampler.age_s(machine.now_s) == 5
    assert [record.message for record in caplog.records] == ["hardware_reading_failed"]
    del machine.errors["host"]
    until(lambda: sampler.age_s(machine.now_s) == 0)


async def test_nothing_is_read_on_the_event_loop(machine: Machine, sampler: Sampler) -> None:
    sampler.start()
    await asyncio.to_thread(until, lambda: sampler.latest() is not None)
    gpus, host = machine.threads["gpus"], machine.threads["host"]
    assert len({gpus, host, threading.current_thread()}) == 3
    assert gpus.daemon
    assert host.daemon


def test_a_sampler_that_is_stopped_reads_no_more(machine: Machine, sampler: Sampler) -> None:
    sampler.start()
    machine.read_again("host", "gpus")
    sampler.stop()
    until(lambda: not any(thread.is_alive() for thread in machine.threads.values()))
    assert latest(sampler).gpu_state == "ok"


def test_a_sampler_is_stopped_while_its_machine_hangs(machine: Machine, sampler: Sampler) -> None:
    sampler.start()
    machine.read_again("host", "gpus")
    machine.hang("gpus", "host")
    sampler.stop()
    assert machine.hanging == {"gpus", "host"}  # nobody has waited for them
    machine.answer()
    until(lambda: not any(thread.is_alive() for thread in machine.threads.values()))


def test_a_recorded_trace_can_be_sampled(machine: Machine) -> None:
    trace = (HardwareSample(0.0, (GPU,), HOST, "ok", None), HardwareSample(60.0, (), HOST, "lost", "it fell off"))
    sampler = Sampler(Recorded(trace, machine.clock), machine.clock, every_s=WAIT_S)
    sampler.start()
    try:
        until(lambda: sampler.latest() is not None)
        assert latest(sampler) == HardwareSample(1000.0, (GPU,), HOST, "ok", None)
        machine.now_s += 61
        until(lambda: latest(sampler).problem == "it fell off")
    finally:
        sampler.stop()
