"""Samples on file: JSON lines, one sample each, their times relative to the first. A trace is written and replayed."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, TextIO

from pydantic import TypeAdapter, ValidationError

from appliance.telemetry.hardware.sample import GpuReading, HardwareSample, HostSample

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
    """Raises ValueError, with the line's number, for what is no sample, or is from before the one above it."""
    samples: list[HardwareSample] = []
    for number, line in enumerate(lines, 1):
        try:
            sample = _LINE.validate_json(line)
        except ValidationError as error:
            raise ValueError(f"line {number} is no sample: {error}") from None
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
        sample = self._now()
        return GpuReading(sample.gpus, sample.gpu_state, sample.problem)

    def host(self) -> HostSample:
        return self._now().host

    def _now(self) -> HardwareSample:
        return self.at(self._clock() - self._begun_at_s)
