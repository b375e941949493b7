"""What a request will take of an engine: an estimate, corrected by what requests turned out to take. Pure."""

from dataclasses import dataclass, field
from typing import Final

from appliance.protocol import ChatPrompt, Prompt, Request, TextPrompt, TokenPrompt
from fallback.contents import everything_said
from runtimes.engine import CostCurve

BYTES_A_TOKEN: Final = 4  # of English
TOKENS_A_MESSAGE: Final = 5  # that a chat template puts around it
USUAL_ANSWER_TOKENS: Final = 128.0  # before any was seen
NEARLY_ALL: Final = 0.95  # of the best rate
MOST: Final = 0.7
MOST_COMPUTED: Final = 4.0  # of a prompt as estimated: a character may be a token or two
LITTLE_LONGER: Final = 1.5  # than for one stream: such a batch keeps nobody waiting
SMOOTHING: Final = 0.05  # weight of the newest answer


@dataclass(frozen=True, slots=True)
class Work:
    sequences: int  # slots
    prompt_tokens: int
    answer_tokens: int  # expected, of all sequences
    least_answer_tokens: int  # that it cannot end before

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.answer_tokens


@dataclass(slots=True)
class Estimator:
    """One model's."""

    usual_answer_tokens: float = USUAL_ANSWER_TOKENS
    computed_share: float = 1.0  # of prompts as estimated; the rest is found resident, or there is more than it seems
    curve: CostCurve | None = None
    slots: int = 1
    _row_s: float = field(default=0.0, init=False)

    def work(self, request: Request) -> Work:
        stopping = request.stopping
        sequences = request.n * len(request.prompts)
        answer = self.usual_answer_tokens
        if stopping.max_tokens is not None:
            answer = stopping.max_tokens if stopping.ignore_eos else min(answer, stopping.max_tokens)
        least = stopping.max_tokens if stopping.ignore_eos and stopping.max_tokens else stopping.min_tokens
        prompt = sum(map(_tokens, request.prompts))
        text = sum(map(len, everything_said(request))) // BYTES_A_TOKEN
        return Work(sequences, prompt + text, round(max(answer, least)) * sequences, least * sequences)

    def answered(self, work: Work, prompt_tokens: int, answer_tokens: int) -> None:
        """It came to its end with so many tokens, prompt tokens being those that had to be computed."""
        self.usual_answer_tokens += SMOOTHING * (answer_tokens / work.sequences - self.usual_answer_tokens)
        computed = min(MOST_COMPUTED, prompt_tokens / max(1, work.prompt_tokens))
        self.computed_share += SMOOTHING * (computed - self.computed_share)

    def seconds(self, work: Work) -> float:
        """Of the whole engine, were all of its slots in use; 0: nothing is known yet."""
        if self.curve is None:
            return 0.0
        return self.done_s(round(work.prompt_tokens * self.computed_share), work.answer_tokens)

    def least_s(self, work: Work) -> float:
        """No request can be done in less: alone on the machine, and brief."""
        if self.curve is None:
            return 0.0
        return work.least_answer_tokens / work.sequences * self.curve.decode_s(1)

    @property
    def token_s(self) -> float:
        """Of the whole engine, for one token of one of many streams."""
        if self.curve is None:
            return 0.0
        if not self._row_s:
            knee = self.curve.knee(self.slots, NEARLY_ALL)
            self._row_s = self.curve.decode_s(knee) / knee
        return self._row_s

    @property
    def lean_batch(self) -> int:
        """Streams at a time that make good use of the engine, and still leave it soon."""
        if self.curve is None:
            return self.slots
        alone_s = self.curve.decode_s(1)
        flat = max(n for n in range(1, self.slots + 1) if self.curve.decode_s(n) <= LITTLE_LONGER * alone_s)
        return max(flat, self.curve.knee(self.slots, MOST))

    def done_s(self, prompt_tokens: int, answer_tokens: int) -> float:
        """What so many tokens took of the whole engine."""
        row_s = self.curve.prefill_row_s if self.curve is not None else 0.0
        return prompt_tokens * row_s + answer_tokens * self.token_s


def _tokens(prompt: Prompt) -> int:
    """Beside the text of its messages."""
    match prompt:
        case TokenPrompt():
            return len(prompt.tokens)
        case TextPrompt():
            return 1 + len(prompt.text) // BYTES_A_TOKEN
        case ChatPrompt():
            return TOKENS_A_MESSAGE * len(prompt.messages)
