"""How much is asked of an engine: what comes in, whether it is taken or not. Pure: times are passed in."""

from dataclasses import dataclass
from math import exp
from typing import Final

MEMORY_S: Final = 1.0  # or that of four usual requests: a rise shows soon, and two requests at a time are none
REQUESTS: Final = 4
USUAL_S: Final = 0.25  # of an engine, before any request was seen
SMOOTHING: Final = 0.05  # weight of the newest request


@dataclass(slots=True)
class Demand:
    """Seconds of the engine a second, the newest arrivals counting most."""

    _usual_s: float = USUAL_S
    _sum_s: float = 0.0
    _at_s: float = 0.0

    def came(self, seconds: float, now_s: float) -> None:
        self._sum_s = self._kept(now_s) + min(seconds, self._memory_s / REQUESTS)  # a single long one is no rise
        self._usual_s += SMOOTHING * (min(seconds, REQUESTS * self._usual_s) - self._usual_s)
        self._at_s = now_s

    def read(self, now_s: float) -> float:
        return self._kept(now_s) / self._memory_s

    @property
    def _memory_s(self) -> float:
        return max(MEMORY_S, REQUESTS * self._usual_s)

    def _kept(self, now_s: float) -> float:
        return self._sum_s * exp(-max(0.0, now_s - self._at_s) / self._memory_s)
