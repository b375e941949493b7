"""What the stand-in remembers of its requests, and what it bills for them, to compare the product's books with."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.frontier_stand_in.control import Prices


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one answer. The cached ones are among the prompt's, those of reasoning among the completion's."""

    prompt: int
    cached: int
    completion: int
    reasoning: int

    def times(self, factor: float) -> "Usage":
        counts = (self.prompt, self.cached, self.completion, self.reasoning)
        return Usage(*(round(count * factor) for count in counts))

    def usd(self, prices: Prices) -> float:
        per_million = (
            (self.prompt - self.cached) * prices.input
            + self.cached * prices.cached_input
            + self.completion * prices.output
        )
        return per_million / 1_000_000


@dataclass(slots=True)
class Entry:
    """One API request. Filled in while it is answered, so that an answer that breaks off leaves what it came to."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: Any  # parsed JSON; None where it is none
    fault: str | None = None
    status: int | None = None  # None: not answered
    usage: dict[str, Any] | None = None  # as the client was told
    billed_usd: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class Journal:
    entries: list[Entry] = field(default_factory=list)

    def as_json(self, connections: int) -> dict[str, Any]:
        return {
            "requests": [entry.as_json() for entry in self.entries],
            "billed_usd": sum(entry.billed_usd for entry in self.entries),
            "connections": connections,
        }
