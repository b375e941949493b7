"""Where one choice stands between thinking and answering. What it must look like, and its stop strings, concern the
answer only; a budget ends the thinking. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Thinking:
    """What the engine has to know of it: token ids of the model's marks."""

    opening: int
    closing: int
    begun: bool  # by the prompt
    budget: int | None = None  # tokens
    farewell: tuple[int, ...] = ()  # how it is ended when the budget is spent; `closing` is among them
    marks: Mapping[int, bytes] = field(default_factory=dict)  # how `opening` and `closing` are spelled


@dataclass(slots=True)
class Mind:
    thinking: Thinking
    state: Literal["undecided", "thinking", "answering"] = field(init=False)
    _thought: int = 0
    _to_say: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = "thinking" if self.thinking.begun else "undecided"
        self._spend(0)

    def forced(self) -> int | None:
        """The next token, when it is not the model's to choose."""
        return self._to_say[0] if self._to_say else None

    def saw(self, token: int) -> bool:
        """Notes the token that came; whether it is one of the answer."""
        forced = bool(self._to_say)
        if forced:
            self._to_say.pop(0)
        match self.state:
            case "undecided":
                self.state = "thinking" if token == self.thinking.opening else "answering"
                self._spend(0)
                return self.state == "answering"
            case "thinking" if token == self.thinking.closing:
                self.state = "answering"
            case "thinking":
                self._spend(1)
            case "answering":
                return not forced
        return False

    def _spend(self, tokens: int) -> None:
        self._thought += tokens
        budget = self.thinking.budget
        if self.state == "thinking" and not self._to_say and budget is not None and self._thought >= budget:
            self._to_say = list(self.thinking.farewell)
