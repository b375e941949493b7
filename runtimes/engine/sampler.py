"""Draws the next token from one row of logits, as a request asked for. Shared by all backends.

The order is that of vLLM: bias, penalties, temperature, min_p, top_k, top_p, draw.
"""

import numpy as np
import numpy.typing as npt

from appliance.protocol import Sampling
from runtimes.contracts import Allowed, BackendError, Logits

# Below this a temperature is greedy: dividing float32 logits by less overflows, and the draw is certain anyway.
GREEDY_BELOW = 1e-4
# top_p needs the likeliest tokens in order. Sorting a whole vocabulary takes milliseconds, so the head is looked at
# first and widened only when its mass is too small.
FIRST_HEAD_TOKENS = 128
_LEAST = np.finfo(np.float32).tiny


class Sampler:
    """The state of one choice's draws: its random source, and the tokens that its penalties count."""

    def __init__(
        self,
        sampling: Sampling,
        n_vocab: int,
        seed: int | tuple[int, int] | None,
        prompt: npt.NDArray[np.int32],
        forbidden: tuple[int, ...],
    ) -> None:
        self._sampling = sampling
        # With a seed, each token of the vocabulary gets a random wait, and the shortest for its likelihood wins. The
        # distribution is the same, and rounding, which depends on what else is computed, seldom changes the winner.
        # A draw from the cumulative distribution moves with any token before it, but takes one random number only.
        self._seeded = sampling.seed is not None
        self._greedy = sampling.temperature < GREEDY_BELOW
        self._random = np.random.default_rng(seed)
        self._forbidden = np.asarray(forbidden, dtype=np.int64)  # end tokens, with ignore_eos or min_tokens
        self._bias_tokens = np.array([token for token, _ in sampling.logit_bias], dtype=np.int64)
        self._bias = np.array([bias for _, bias in sampling.logit_bias], dtype=np.float32)
        # OpenAI's two penalties count what was generated; the repetition penalty counts the prompt too.
        self._counts: dict[int, int] = {}
        repeats = sampling.repetition_penalty != 1.0
        self._seen = np.zeros(n_vocab, dtype=bool) if repeats else None
        if self._seen is not None:
            self._seen[prompt] = True
        self._penalized = sampling.presence_penalty != 0.0 or sampling.frequency_penalty != 0.0
        self._unchanged = not (repeats or self._penalized or len(self._bias))  # but for what is forbidden

    def draw(self, logits: Logits, *, may_end: bool, allowed: Allowed | None = None) -> int:
        """One token from `logits` (shape: n_vocab), which are left as they are.

        `may_end` lifts the ban on end tokens; of others than the `allowed` ones none is drawn. Raises `BackendError`
        when the model gave no usable number.
        """
        adjusted = logits if self._unchanged else self._adjust(logits)
        best = int(adjusted.argmax())
        if not may_end and len(self._forbidden) and (not self._greedy or best in self._forbidden):
            adjusted = adjusted.copy() if adjusted is logits else adjusted
            adjusted[self._forbidden] = -np.inf
            best = int(adjusted.argmax())
        if allowed is not None:
            adjusted = np.where(allowed, adjusted, np.float32(-np.inf))
            best = int(adjusted.argmax())
        if not np.isfinite(adjusted[best]):
            raise BackendError("the model produced logits that are not numbers")
        token = best if self._greedy else self._random_draw(adjusted, float(adjusted[best]))
        if self._penalized:
            self._counts[token] = self._counts.get(token, 0) + 1
        if self._seen is not None:
            self._seen[token] = True
        return token

    def _adjust(self, logits: Logits) -> Logits:
        adjusted = logits.copy()
        sampling = self._sampling
        if len(self._bias):
            adjusted[self._bias_tokens] += self._bias
        if self._seen is not None:
            seen = adjusted[self._seen]
            penalty = np.float32(sampling.repetition_penalty)
            adjusted[self._seen] = np.where(seen > 0, seen / penalty, seen * penalty)
        if self._counts:
            tokens = np.fromiter(self._counts.keys(), np.int64, len(self._counts))
            counts = np.fromiter(self._counts.values(), np.float32, len(self._counts))
            adjusted[tokens] -= sampling.presence_penalty + sampling.frequency_penalty * counts
        return adjusted

    def _random_draw(self, logits: Logits, highest: float) -> int:
        sampling = self._sampling
        with np.errstate(over="ignore"):  # a masked token's logit may overflow to -inf, which is what it means
            scaled = (logits - np.float32(highest)) / np.float32(sampling.temperature)  # the likeliest is at 0
        candidates = None  # None: the whole vocabulary
        if sampling.min_p > 0:
            candidates = np.flatnonzero(scaled >= np.log(sampling.min_p))
        if 0 < sampling.top_k < (len(scaled) if candidates is None else len(candidates)):
            pool = scaled if candidates is None else scaled[candidates]
            head = np.argpartition(pool, -sampling.top_k)[-sampling.top_k :]
            candidates = head if candidates is None else candidates[head]
        weights = np.exp(scaled if candidates is None else scaled[candidates], dtype=np.float64)
        if sampling.top_p < 1:
            nucleus = _nucleus(weights, sampling.top_p)
            candidates = nucleus if candidates is None else candidates[nucleus]
            weights = weights[nucleus]
        if self._seeded:
            waits = np.maximum(self._random.standard_exponential(len(scaled), dtype=np.float32), _LEAST)
            with np.errstate(divide="ignore"):  # what cannot come waits forever
                i = int(np.argmin((waits if candidates is None else waits[candidates]) / weights))
            return i if candidates is None else int(candidates[i])
        cumulative = np.cumsum(weights)
        i = int(np.searchsorted(cumulative, self._random.random() * cumulative[-1], side="right"))
        i = min(i, len(cumulative) - 1)
        return i if candidates is None else int(candidates[i])


def _nucleus(weights: npt.NDArray[np.float64], top_p: float) -> npt.NDArray[np.int64]:
    """Indices of the fewest, likeliest weights that hold `top_p` of the mass; at least one."""
    target = top_p * weights.sum()
    head_tokens = FIRST_HEAD_TOKENS
    while True:
        if head_tokens >= len(weights):
            order = np.argsort(-weights, kind="stable")
        else:
            head = np.argpartition(weights, -head_tokens)[-head_tokens:]
            order = head[np.argsort(-weights[head], kind="stable")]
        mass = np.cumsum(weights[order])
        if mass[-1] >= target or len(order) == len(weights):
            return order[: int(np.searchsorted(mass, target)) + 1]
        head_tokens *= 8
