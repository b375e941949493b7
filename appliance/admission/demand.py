"""How much is asked of an engine: what comes in, whether it is taken or not. Pure: times are passed in."""

from dataclasses import dataclass, field
from math import exp
from typing import Final

MEMORY_S: Final = 1.0  # or that of four usual requests: a rise shows soon, and two requests at a time are none
REQUESTS: Final = 4
LASTING: Final = 2.0  # times as long remembers who asks whether it lasts: in a gap of a second it is not over
USUAL_S: Final = 0.25  # of an engine, before any request was seen
SMOOTHING: Final = 0.05  # weight of the newest request


@dataclass(slots=True)
class _Mean:
    memory: float  # of the usual one
    sum_s: float = 0.0
    at_s: float = 0.0

    def kept(self, now_s: float, memory_s: float) -> float:
        return self.sum_s * exp(-max(0.0, now_s - self.at_s) / (memory_s * self.memory))

    def add(self, seconds: float, now_s: float, memory_s: float) -> None:
        self.sum_s, self.at_s = self.kept(now_s, memory_s) + seconds, now_s

    def read(self, now_s: float, memory_s: float) -> float:
        return self.kept(now_s, memory_s) / (memory_s * self.memory)


@dataclass(slots=True)
class Demand:
    """Seconds of the engine a second, the newest arrivals counting most."""

    _usual_s: float = USUAL_S
    _newest: _Mean = field(default_factory=lambda: _Mean(1.0))
    _lasting: _Mean = field(default_factory=lambda: _Mean(LASTING))

    def came(self, seconds: float, now_s: float) -> None:
        counted_s = min(seconds, self._memory_s / REQUESTS)  # a single long one is no rise
        for mean in (self._newest, self._lasting):
            mean.add(counted_s, now_s, self._memory_s)
        self._usual_s += SMOOTHING * (min(seconds, REQUESTS * self._usual_s) - self._usual_s)

    def newest(self, now_s: float) -> float:
        """Whether it rises."""
        return self._newest.read(now_s, self._memory_s)

    def lasting(self, now_s: float) -> float:
        """Whether it is over."""
        return self._lasting.read(now_s, self._memory_s)

    @property
    def _memory_s(self) -> float:
        return max(MEMORY_S, REQUESTS * self._usual_s)
