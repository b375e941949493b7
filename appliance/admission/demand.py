"""How much is asked of an engine: what comes in, whether it is taken or not. Pure: times are passed in."""

from dataclasses import dataclass
from math import exp
from typing import Final

MEMORY_S: Final = 2.0  # a rise to three times the capacity shows within 0.8 s; two requests at a time do not
LONGEST_S: Final = 0.5  # that one request counts for: a single long one is no rise


@dataclass(slots=True)
class Demand:
    """Seconds of the engine a second, the newest arrivals counting most."""

    _sum_s: float = 0.0
    _at_s: float = 0.0

    def came(self, seconds: float, now_s: float) -> None:
        self._sum_s = self._kept(now_s) + min(seconds, LONGEST_S)
        self._at_s = now_s

    def read(self, now_s: float) -> float:
        return self._kept(now_s) / MEMORY_S

    def _kept(self, now_s: float) -> float:
        return self._sum_s * exp(-max(0.0, now_s - self._at_s) / MEMORY_S)
