"""What is noted of one HTTP exchange on its way through: for its headers, its log line, the metrics and the ledger."""

from dataclasses import dataclass, field

from appliance.protocol import (
    Delta,
    Event,
    Failed,
    Finished,
    Queued,
    ReasoningDelta,
    Request,
    Started,
    ToolCallDelta,
    Usage,
)


@dataclass(slots=True)
class Exchange:
    request_id: str
    arrived_s: float  # monotonic
    status: int = 0  # 0: nothing was answered
    error: str | None = None  # its code
    asked_model: str | None = None
    model: str | None = None
    route: str | None = None
    reason: str | None = None
    degraded: bool = False  # the frontier was to answer, and did not
    step: str | None = None
    task: str | None = None
    criticality: str | None = None
    queue_s: float | None = None
    queue_position: int | None = None  # requests that went first
    ttft_s: float | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float | None = None
    cache_similarity: float | None = None  # of the question whose answer this is
    cache_age_s: float | None = None
    finish_reasons: list[str] = field(default_factory=list)

    def asked(self, request: Request) -> None:
        self.asked_model = request.model
        self.step, self.task = request.hints.step, request.hints.task
        self.criticality = request.hints.criticality

    def shown(self, event: Event, now_s: float) -> None:
        """Notes what the client is told."""
        match event:
            case Queued():
                self.queue_s = event.waited_s
            case Started():
                self.queue_s = event.queue_s if self.queue_s is None else max(self.queue_s, event.queue_s)
                self.prompt_tokens += event.prompt_tokens
                self.cached_tokens += event.cached_tokens
                self.model = event.model or self.model
            case Delta() | ReasoningDelta() | ToolCallDelta():
                if self.ttft_s is None:
                    self.ttft_s = now_s - self.arrived_s
            case Usage():
                self.prompt_tokens, self.cached_tokens = event.prompt_tokens, event.cached_tokens
                self.completion_tokens, self.cost_usd = event.completion_tokens, event.cost_usd
            case Finished():
                self.finish_reasons.append(event.reason)
                if self.route != "frontier":
                    self.completion_tokens += event.completion_tokens
            case Failed():
                self.error = event.code


@dataclass(slots=True)
class LocalAttempt:
    """What is noted of one run of the local engine."""

    began_s: float  # monotonic
    queue_s: float | None = None
    ttft_s: float | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    gaps_s: list[float] = field(default_factory=list)  # between the tokens of a choice
    outcome: str = "cancelled"  # until it has ended otherwise
    _last_s: dict[int, float] = field(default_factory=dict)  # by choice

    def saw(self, event: Event, now_s: float) -> float | None:
        """Notes an event of the engine; returns the time since the choice's token before, when there was one."""
        match event:
            case Started():
                self.queue_s = event.queue_s if self.queue_s is None else max(self.queue_s, event.queue_s)
                self.prompt_tokens += event.prompt_tokens
                self.cached_tokens += event.cached_tokens
            case Delta():
                if self.ttft_s is None:
                    self.ttft_s = now_s - self.began_s
                before_s = self._last_s.get(event.choice)
                self._last_s[event.choice] = now_s
                if before_s is not None:
                    gap_s = (now_s - before_s) / max(1, event.tokens)
                    self.gaps_s.append(gap_s)
                    return gap_s
            case Finished():
                self.completion_tokens += event.completion_tokens
        return None
