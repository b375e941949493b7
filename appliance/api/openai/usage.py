"""Token counts of one request, summed over its choices from their events, in OpenAI's `usage` shape."""

from typing import Any

from appliance.protocol import Finished, ReasoningDelta, Request, Started


class UsageMeter:
    def __init__(self, request: Request) -> None:
        self._n = request.n
        self._unfinished = len(request.prompts) * request.n
        self._prompt_tokens = 0
        self._cached_tokens = 0
        self._completion_tokens = 0
        self._reasoning_tokens = 0

    def started(self, event: Started) -> None:
        # A prompt counts once however many choices share it, and as cached only what was resident before the first.
        if event.choice % self._n == 0:
            self._prompt_tokens += event.prompt_tokens
            self._cached_tokens += event.cached_tokens

    def reasoned(self, event: ReasoningDelta) -> None:
        self._reasoning_tokens += event.tokens

    def finished(self, event: Finished) -> None:
        self._completion_tokens += event.completion_tokens
        self._unfinished -= 1

    @property
    def complete(self) -> bool:
        """Whether every choice has finished."""
        return self._unfinished == 0

    def body(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": self._completion_tokens,
            "total_tokens": self._prompt_tokens + self._completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self._cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": self._reasoning_tokens},
        }
