"""Takes samples in two threads of their own, for everyone who wants the latest and nobody who would wait for it.

A driver that hangs keeps its thread and nothing else: the host is read by another one, and whether the GPUs are
blocked is told by the clock, when somebody asks.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from appliance.telemetry import logs
from appliance.telemetry.hardware.sample import GpuReading, HardwareSample
from appliance.telemetry.hardware.source import Source

log = logs.get(__name__)

Part = TypeVar("Part")

# A reading takes some milliseconds, and 40 more for each GPU (see `nvml_card.py`).
BLOCKED_AFTER_S: Final = 2.0


class Sampler:
    def __init__(self, source: Source, clock: Callable[[], float], *, every_s: float = 0.2) -> None:
        """`clock`: monotonic. `every_s`: the pause between a reading and the next."""
        self._clock = clock
        self._limit_s = every_s + BLOCKED_AFTER_S
        self._begun_at_s = clock()
        self._stopping = threading.Event()
        self._gpus = _Reader("gpus", source.gpus, clock, instead=_unreadable)
        self._host = _Reader("host", source.host, clock)
        self._threads = [
            threading.Thread(
                target=reader.run, args=(every_s, self._stopping), name=f"hardware-{reader.name}", daemon=True
            )
            for reader in (self._gpus, self._host)
        ]

    def start(self) -> None:
        """Once."""
        self._begun_at_s = self._clock()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Returns at once: a thread ends when its reading does. One that never ends does not outlive the process."""
        self._stopping.set()

    def latest(self) -> HardwareSample | None:
        """None until both parts were read once, or the GPUs were not within the limit."""
        host, gpus = self._host.last, self._gpus.last
        if host is None:
            return None
        silent_s = self._clock() - (self._begun_at_s if gpus is None else gpus.at_s)
        if silent_s > self._limit_s:
            known = () if gpus is None else gpus.part.gpus
            problem = f"the GPUs could not be read for {silent_s:.0f} s: their driver seems to hang"
            return HardwareSample(host.at_s, known, host.part, "blocked", problem)
        if gpus is None:
            return None
        return HardwareSample(host.at_s, gpus.part.gpus, host.part, gpus.part.state, gpus.part.problem)

    def age_s(self, now_s: float) -> float | None:
        """How old the latest sample is at `now_s` of the clock; None while there is none."""
        sample = self.latest()
        return None if sample is None else now_s - sample.at_s


@dataclass(frozen=True, slots=True)
class _Taken(Generic[Part]):
    part: Part
    at_s: float


class _Reader(Generic[Part]):
    """What one thread does. Others look at `last`."""

    def __init__(
        self,
        name: str,
        read: Callable[[], Part],
        clock: Callable[[], float],
        *,
        instead: Callable[[Exception], Part] | None = None,
    ) -> None:
        """`instead`: what to report when reading raises. None: nothing new, and the last reading grows old."""
        self.name = name
        self.last: _Taken[Part] | None = None
        self._read = read
        self._clock = clock
        self._instead = instead
        self._logged: str | None = None

    def run(self, every_s: float, stopping: threading.Event) -> None:
        while not stopping.is_set():
            self._take()
            stopping.wait(every_s)

    def _take(self) -> None:
        try:
            part = self._read()
        except Exception as error:  # the thread goes on, whatever it is
            if self._logged != repr(error):  # the same one may come five times a second
                self._logged = repr(error)
                log.exception("hardware_reading_failed", part=self.name)
            if self._instead is None:
                return
            part = self._instead(error)
        self.last = _Taken(part, self._clock())


def _unreadable(error: Exception) -> GpuReading:
    return GpuReading((), "lost", f"the GPUs cannot be read: {error!r}")
