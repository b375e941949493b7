"""What is noted of one HTTP exchange on its way through: for its headers, its log line and the metrics."""

from dataclasses import dataclass, field

from appliance.protocol import Delta, Event, Failed, Finished, Request, Started


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
    step: str | None = None
    task: str | None = None
    criticality: str | None = None
    queue_s: float | None = None
    ttft_s: float | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    finish_reasons: list[str] = field(default_factory=list)
    last_token_s: dict[int, float] = field(default_factory=dict)  # by choice; monotonic

    def asked(self, request: Request) -> None:
        self.asked_model = request.model
        self.step, self.task = request.hints.step, request.hints.task
        self.criticality = request.hints.criticality

    def saw(self, event: Event, now_s: float) -> float | None:
        """Notes an event; returns the time since the choice's token before, in seconds, when there was one."""
        match event:
            case Started():
                self.queue_s = event.queue_s if self.queue_s is None else max(self.queue_s, event.queue_s)
                self.prompt_tokens += event.prompt_tokens
                self.cached_tokens += event.cached_tokens
            case Delta():
                if self.ttft_s is None:
                    self.ttft_s = now_s - self.arrived_s
                before_s = self.last_token_s.get(event.choice)
                self.last_token_s[event.choice] = now_s
                return None if before_s is None else (now_s - before_s) / max(1, event.tokens)
            case Finished():
                self.completion_tokens += event.completion_tokens
            case Failed():
                self.error = event.code
        return None

    def shown(self, event: Event) -> None:
        """Notes what the client is told in the end."""
        if isinstance(event, Finished):
            self.finish_reasons.append(event.reason)
