"""Samples on file: JSON lines, one sample each, their times relative to the first. A trace is written and replayed.

What a trace has no samples of was not read: while the next one is long in coming, the GPUs count as blocked, as they do
where a driver hangs.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, TextIO

from pydantic import TypeAdapter, ValidationError

from appliance.telemetry.hardware.sample import GpuReading, HardwareSample, HostSample
from appliance.telemetry.hardware.sampler import BLOCKED_AFTER_S

_LINE: Final = TypeAdapter(HardwareSample)


class TraceWriter:
    def __init__(self, file: TextIO) -> None:
        """`file`: the caller's to open and to close."""
        self._file = file
        self._begun_at_s: float | None = None

    def write(self, sample: HardwareSample) -> None:
        if self._begun_at_s is None:
            self._begun_at_s = sample.at_s
        relative = replace(sample, at_s=sample.at_s - self._begun_at_s)
        self._file.write(_LINE.dump_json(relative).decode() + "\n")


def read_trace(lines: Iterable[str]) -> tuple[HardwareSample, ...]:
    """Raises ValueError, in one line with the line's number, for what is no sample, or from before the one above it."""
    samples: list[HardwareSample] = []
    for number, line in enumerate(lines, 1):
        try:
            sample = _LINE.validate_json(line)
        except ValidationError as error:
            raise ValueError(f"line {number} is no sample: {_first(error)}") from None
        if not math.isfinite(sample.at_s):
            raise ValueError(f"line {number} is no sample: at_s: it is {sample.at_s}")
        if samples and sample.at_s < samples[-1].at_s:
            raise ValueError(f"line {number} is from before the line above it")
        samples.append(sample)
    return tuple(samples)


class Recorded:
    """A source that replays a trace: it begins when this is made, and stays at its last sample."""

    def __init__(self, samples: Sequence[HardwareSample], clock: Callable[[], float]) -> None:
        if not samples:
            raise ValueError("a trace needs a sample")
        self._samples = samples
        self._times_s = [sample.at_s for sample in samples]
        self._clock = clock
        self._begun_at_s = clock()

    def at(self, elapsed_s: float) -> HardwareSample:
        """The newest one then; the first one from before it as well."""
        return self._samples[max(bisect_right(self._times_s, elapsed_s) - 1, 0)]

    def gpus(self) -> GpuReading:
        elapsed_s = self._elapsed_s()
        sample = self.at(elapsed_s)
        silent_s = elapsed_s - sample.at_s
        if silent_s > BLOCKED_AFTER_S and sample is not self._samples[-1]:
            return GpuReading(sample.gpus, "blocked", f"the trace has no sample for {silent_s:.0f} s")
        return GpuReading(sample.gpus, sample.gpu_state, sample.problem)

    def host(self) -> HostSample:
        return self.at(self._elapsed_s()).host

    def _elapsed_s(self) -> float:
        return self._clock() - self._begun_at_s


def _first(error: ValidationError) -> str:
    """Of what is wrong with a line."""
    found = error.errors(include_url=False)[0]
    return ": ".join(filter(None, (".".join(map(str, found["loc"])), found["msg"])))
