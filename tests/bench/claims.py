"""What the project says of itself in numbers, each next to what this run measured."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    what: str
    measured: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def holds(self) -> bool:
        return (self.at_least is None or self.measured >= self.at_least) and (
            self.at_most is None or self.measured <= self.at_most
        )
