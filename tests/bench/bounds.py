"""Bounded time: how much of a scenario's seconds are left, and whether another round still fits."""

import time
from collections.abc import Callable


class TimeBound:
    """`seconds` from now on. A round is begun only if the longest of its kind so far would still fit into them; the
    first of a kind, whose length nobody knows, if there is any time left."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._end_s = clock() + seconds
        self._longest_s: dict[object, float] = {}
        self._begun: tuple[object, float] | None = None

    def allows(self, kind: object) -> bool:
        """Whether a round of this kind may begin now; true is taken as its beginning."""
        now_s = self._clock()
        if self._begun is not None:
            begun, at_s = self._begun
            self._longest_s[begun] = max(self._longest_s.get(begun, 0.0), now_s - at_s)
            self._begun = None
        if now_s + self._longest_s.get(kind, 0.0) >= self._end_s:
            return False
        self._begun = (kind, now_s)
        return True
