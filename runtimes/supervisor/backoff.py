"""How long to wait before a dead worker is replaced. Pure."""

from dataclasses import dataclass

FIRST_S = 0.5
LONGEST_S = 30.0


@dataclass(slots=True)
class Backoff:
    """At once after a worker that had become ready; longer and longer while none does."""

    failures: int = 0  # in a row, none of them ready

    def after_ready(self) -> float:
        self.failures = 0
        return 0.0

    def after_failed_start(self) -> float:
        self.failures += 1
        return float(min(LONGEST_S, FIRST_S * 2 ** (self.failures - 1)))
