"""What a test tells the stand-in to do: its prices, the answers it gives, and what goes wrong with the next of them."""

from collections import deque
from collections.abc import Iterable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

FaultKind = Literal[
    "none",  # an answer as it should be, for a fault that is not to come at once
    "status",
    "slow_headers",
    "slow_body",
    "cut",
    "half_close",
    "no_done",
    "garbage",
    "error_event",
    "finish_error",
    "wrong_usage",
    "no_usage",
    "duplicate_ids",
    "empty",
    "drop",
    "html",
    "huge_line",
    "endless",
    "bad_arguments",
    "unknown_tool",
]


class Fault(BaseModel):
    """What goes wrong with one answer, or with `times` of them (-1: with all). Each kind reads the fields it needs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: FaultKind
    times: int = Field(default=1, ge=-1)
    status: int = Field(default=500, ge=200, le=599)
    headers: dict[str, str] = {}
    body: Any = None  # JSON, or a string that is sent as it is; None: an error in the shape of the API
    after: int = Field(default=1, ge=0)  # chunks of the answer that come before it
    seconds: float = Field(default=1.0, ge=0)
    factor: float = Field(default=2.0, ge=0)
    size_bytes: int = Field(default=1 << 20, ge=0, alias="bytes")


NO_FAULT = Fault(kind="none")


class Prices(BaseModel):
    """USD for a million tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: float = 1.0
    cached_input: float = 0.1
    output: float = 2.0


class Control(BaseModel):
    """All settings. A test sends those that it changes; the others stay."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prices: Prices = Prices()
    text: str | None = None  # in place of "You said: ..."
    calls: Literal[1, 2] = 1  # tools to call at once where two are offered
    reasoning: str | None = None
    cached: int = Field(default=0, ge=0)  # tokens of the prompt that were cached
    word_delay_s: float = Field(default=0.0, ge=0)
    faults: tuple[Fault, ...] = ()  # of the next requests, in place of those that were to come

    def changed_by(self, given: "Control") -> "Control":
        """These settings, but for those that `given` sets."""
        return self.model_copy(update={name: getattr(given, name) for name in given.model_fields_set})


class FaultQueue:
    """The faults to come; each request takes the first."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self._queue: deque[Fault] = deque()
        for fault in faults:
            self.add(fault)

    def add(self, fault: Fault) -> None:
        if fault.times:
            self._queue.append(fault)

    def take(self) -> Fault:
        if not self._queue:
            return NO_FAULT
        fault = self._queue[0]
        if fault.times == 1:
            self._queue.popleft()
        elif fault.times > 1:
            self._queue[0] = fault.model_copy(update={"times": fault.times - 1})
        return fault
