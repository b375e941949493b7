"""Token counts of one request, summed over its choices from their events, in OpenAI's `usage` shape."""

from typing import Any

from appliance.protocol import Event, Finished, ReasoningDelta, Request, Started, Usage


class UsageMeter:
    def __init__(self, request: Request) -> None:
        self._n = request.n
        self._unfinished = len(request.prompts) * request.n
        self._prompt_tokens = 0
        self._cached_tokens = 0
        self._completion_tokens = 0
        self._reasoning_tokens = 0
        self._told: Usage | None = None  # by a provider, and then it is this that counts

    def saw(self, event: Event) -> None:
        match event:
            case Started():
                # A prompt counts once however many choices share it, and as cached only what was resident before the
                # first.
                if event.choice % self._n == 0:
                    self._prompt_tokens += event.prompt_tokens
                    self._cached_tokens += event.cached_tokens
            case ReasoningDelta():
                self._reasoning_tokens += event.tokens
            case Finished():
                self._completion_tokens += event.completion_tokens
                self._unfinished -= 1
            case Usage():
                self._told = event

    @property
    def complete(self) -> bool:
        """Whether every choice has finished."""
        return self._unfinished == 0

    def body(self) -> dict[str, Any]:
        used = self._told or Usage(
            self._prompt_tokens, self._cached_tokens, self._completion_tokens, self._reasoning_tokens, None
        )
        body = {
            "prompt_tokens": used.prompt_tokens,
            "completion_tokens": used.completion_tokens,
            "total_tokens": used.prompt_tokens + used.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": used.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
        }
        return body if used.cost_usd is None else {**body, "cost_usd": used.cost_usd}
