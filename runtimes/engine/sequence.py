"""One choice of one request on its way through the engine. Its numbers are tokens; it knows no backend."""

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from appliance.protocol import Criticality, Delta, Sampling, Stopping, TokenLogprob
from runtimes.contracts import Allowed, Logits, TokenArray, TokenConstraint
from runtimes.engine.detokenizer import Detokenizer
from runtimes.engine.sampler import Sampler
from runtimes.engine.stop_matcher import StopMatcher
from runtimes.engine.thinking import Mind, Thinking

UNPLACED = -1  # a sequence without a place in the KV cache
RANKS: Mapping[Criticality, int] = {"critical": 0, "normal": 1, "sheddable": 2}


@dataclass(frozen=True, slots=True)
class Job:
    """A request as the engine takes it: tokenized, and checked against the vocabulary and the context length."""

    id: str
    prompt: tuple[int, ...]
    sampling: Sampling
    stopping: Stopping
    n: int = 1
    first_choice: int = 0  # index of its first choice in the request's answer
    logprobs: int | None = None
    constraint: TokenConstraint | None = None  # each choice follows a fork of it
    prompt_text: str | None = None  # given back with `Started`
    stops_until: str | None = None  # from this text on stop strings have no say; "": at once; None: always
    thinking: Thinking | None = None
    marks: Mapping[int, bytes] = field(default_factory=dict)  # control tokens that are shown, as these bytes
    measure_margin: bool = False
    criticality: Criticality = "normal"


@dataclass(slots=True, eq=False)
class Sequence:
    job: Job
    choice: int
    sampler: Sampler
    stops: StopMatcher
    arrived_s: float
    tokens: list[int]  # the prompt and what was generated
    max_length: int  # of `tokens`
    constraint: TokenConstraint | None = None
    allowed: "Future[Allowed] | None" = None  # by the constraint, as its next token; being found
    mind: Mind | None = None
    slot: int = UNPLACED
    computed: int = 0  # tokens whose KV is in the cache; the first `computed` of `tokens`
    cached_tokens: int = 0
    arrival: int = 0  # its number, as the scheduler counts
    last_step: int = 0  # that had a row of it
    started: bool = False
    first_token_s: float = 0.0
    detokenizer: Detokenizer = field(default_factory=Detokenizer)
    # Tokens whose text is not out yet: (where their text begins, log-probability), in characters of the answer.
    held: list[tuple[int, TokenLogprob | None]] = field(default_factory=list)
    seen_characters: int = 0
    margins: float = 0.0  # of its generated tokens, summed, in logits
    shown_characters: int = 0
    _token_array: TokenArray = field(default_factory=lambda: np.empty(0, dtype=np.int32))

    @property
    def rank(self) -> int:
        """0 is served first."""
        return RANKS[self.job.criticality]

    @property
    def critical(self) -> bool:
        return self.job.criticality == "critical"

    @property
    def prompt_tokens(self) -> int:
        return len(self.job.prompt)

    @property
    def generated(self) -> int:
        return len(self.tokens) - len(self.job.prompt)

    @property
    def mean_margin(self) -> float | None:
        """By how much its tokens led the second likeliest; None: that was not asked for."""
        return self.margins / self.generated if self.job.measure_margin and self.generated else None

    @property
    def bound(self) -> bool:
        """Whether the constraint has a say in the next token."""
        thinking = self.mind is not None and (self.mind.state == "thinking" or self.mind.forced() is not None)
        return self.constraint is not None and not thinking

    @property
    def rows_left(self) -> int:
        """Its tokens that are still to be computed. None: its next token is to be drawn."""
        return len(self.tokens) - self.computed

    @property
    def decoding(self) -> bool:
        """Whether all but its newest token are computed, so that one row makes the next token."""
        return self.computed == len(self.tokens) - 1 and self.generated > 0

    def measure(self, logits: Logits) -> None:
        """Notes by how much the likeliest token leads, if that was asked for."""
        if self.job.measure_margin:
            second, first = np.partition(logits, -2)[-2:]
            self.margins += float(first - second)

    def mark(self, token: int) -> bytes:
        """How a control token is shown that tells whoever reads what kind of text this is."""
        thinking = self.mind.thinking.marks if self.mind is not None and self.mind.state != "answering" else {}
        return thinking.get(token) or self.job.marks.get(token, b"")

    def token_array(self) -> TokenArray:
        if len(self._token_array) != len(self.tokens):  # it only grows
            self._token_array = np.array(self.tokens, dtype=np.int32)
        return self._token_array

    def hold(self, text: str, logprob: TokenLogprob | None) -> None:
        """Notes a drawn token and the text it completed."""
        self.held.append((self.seen_characters, logprob))
        self.seen_characters += len(text)

    def release(self, text: str, *, everything: bool = False) -> Delta | None:
        """A delta of text that may be shown, with the tokens it began in; None when there is nothing to say.

        `everything` adds the tokens that brought no text of their own.
        """
        self.shown_characters += len(text)
        n = len(self.held)
        if not everything:
            n = next((i for i, (start, _) in enumerate(self.held) if start >= self.shown_characters), n)
        out, self.held = self.held[:n], self.held[n:]
        logprobs = tuple(logprob for _, logprob in out if logprob is not None)
        return Delta(self.choice, text, len(out), logprobs) if text or logprobs else None
