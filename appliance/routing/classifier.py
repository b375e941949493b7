"""What kind of step a request seems to be, where its agent has not said: by its words, and by its nearest exemplars.

Two ridge regressions over the same exemplars, one on the words of the cue alone and one on words and embedding; the
second answers when there is an embedding in time. Both are fitted when the daemon starts, in some tenths of a second.
What remains open is open: a request of which nobody can tell what it is gets a low
confidence, and the policy for that.
"""

import asyncio
import hashlib
import logging
import os
import zipfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np

from appliance.protocol import Request
from appliance.routing.cue import Cue, cue_of
from appliance.routing.decision import Guess
from appliance.routing.exemplars import STEPS, Exemplar, ExemplarModel, Vector, Vectors
from appliance.routing.lexicon import Lexicon

Embed = Callable[[Sequence[str]], Awaitable[Sequence[Vector]]]

EMBEDDED_AT_ONCE: Final = 16
# Some 8 tokens. The embedding model takes 5.6 ms for them on one core, 4 of these to read its weights; five times as
# much text guesses a percent better.
EMBEDDED_CHARACTERS: Final = 28
SHORTEST_SYSTEM: Final = 60  # a shorter one says who answers, not what is to be done
LEXICON_WEIGHT: Final = 0.25
MOST_EVIDENCE: Final = 2.0
SURE: Final = 0.8  # of what the words say: no embedding is asked for
SHARPNESS: Final = 6.0  # turns scores, which are near 0 and 1, into probabilities

log = logging.getLogger(__name__)


class Classifier:
    def __init__(self, exemplars: Sequence[Exemplar], embed: Embed | None = None) -> None:
        self._exemplars = exemplars
        self._embed = embed
        self._by_words: ExemplarModel | None = None
        self._by_both: ExemplarModel | None = None
        self._lexicon = Lexicon()

    def fit(self) -> None:
        """To the words of the exemplars, in 0.2 s. Until then the lexicon decides alone."""
        self._by_words = ExemplarModel(self._exemplars)

    async def prepare(self, cache: Path | None = None) -> None:
        """Fits, in another thread; then embeds the exemplars, which takes seconds, and keeps them at `cache` for the
        next time. Until then, and when there is no embedding model, words alone decide."""
        await asyncio.to_thread(self.fit)
        if self._embed is None:
            return
        texts = [embedded_text(exemplar.cue) for exemplar in self._exemplars]
        digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()
        vectors = None if cache is None else _read(cache, digest, len(texts))
        if vectors is None:
            found: list[Vector] = []
            for i in range(0, len(texts), EMBEDDED_AT_ONCE):  # others, who want one only, come in between
                found += await self._embed(texts[i : i + EMBEDDED_AT_ONCE])
            vectors = np.stack(found)
            if cache is not None:
                _write(cache, digest, vectors)
        self._by_both = await asyncio.to_thread(ExemplarModel, self._exemplars, vectors)

    async def guess(self, request: Request) -> Guess:
        """Never fails: without an embedding it goes by the words."""
        cue = cue_of(request)
        if not cue.text.strip():
            return Guess(None, 0.0)
        added = self._by_lexicon(cue) + _by_form(cue)
        guess = _likeliest(added if self._by_words is None else self._by_words.scores(cue.text) + added)
        if guess.confidence >= SURE or self._by_both is None or self._embed is None:
            return guess
        try:
            (embedding,) = await self._embed([embedded_text(cue)])
        except Exception:  # a guess is never worth a request
            log.debug("no embedding for a routing decision", exc_info=True)
            return guess
        return _likeliest(self._by_both.scores(cue.text, embedding) + added)

    def _by_lexicon(self, cue: Cue) -> Vector:
        added = np.zeros(len(STEPS), dtype=np.float32)
        for text, weight in ((cue.system, 1.0), (cue.head, 1.0), (cue.tail, 0.5)):
            for step, strength in self._lexicon.evidence(text).items():
                added[STEPS.index(step)] += LEXICON_WEIGHT * weight * min(strength, MOST_EVIDENCE)
        return added


def _likeliest(scores: Vector) -> Guess:
    likely = np.exp(SHARPNESS * (scores - scores.max()))
    best = int(likely.argmax())
    return Guess(STEPS[best], float(likely[best] / likely.sum()))


def embedded_text(cue: Cue) -> str:
    """The beginning of what an agent says it wants, in whole words."""
    said = cue.head or cue.tail
    text = cue.system if not said or len(cue.system) >= SHORTEST_SYSTEM else said
    if len(text) <= EMBEDDED_CHARACTERS:
        return text
    return text[: EMBEDDED_CHARACTERS + 1].rpartition(" ")[0] or text[:EMBEDDED_CHARACTERS]


def _read(cache: Path, digest: str, count: int) -> Vectors | None:
    try:
        with cache.open("rb") as file, np.load(file, allow_pickle=False) as kept:
            vectors: Vectors = kept["vectors"]
            fits = str(kept["digest"]) == digest and vectors.shape[0] == count and bool(np.isfinite(vectors).all())
            return vectors if fits else None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def _write(cache: Path, digest: str, vectors: Vectors) -> None:
    draft = cache.with_name(f".{cache.name}.{os.getpid()}.npz")
    with suppress(OSError):  # then they are embedded again the next time
        cache.parent.mkdir(parents=True, exist_ok=True)
        try:
            np.savez(draft, vectors=vectors, digest=np.array(digest))
            draft.replace(cache)
        finally:
            draft.unlink(missing_ok=True)


def _by_form(cue: Cue) -> Vector:
    """What the form of a request adds to the scores, whatever its words are."""
    added = np.zeros(len(STEPS), dtype=np.float32)
    if cue.has_code:
        added[STEPS.index("code")] += 0.15
    if cue.has_form:
        added[[STEPS.index("extract"), STEPS.index("classify")]] += 0.1
        added[STEPS.index("chat")] -= 0.2
    if cue.turns and not cue.system:
        added[STEPS.index("chat")] += 0.1
    return added
