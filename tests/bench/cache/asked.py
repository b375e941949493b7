"""What `latency` asks: short questions whose stored counterpart says the same in other words, and some without one.

From `pairs.jsonl`: those pairs that a cold cache answers, and whose stored question is the nearest of all.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from appliance.api.openai.chat_request import parse_chat
from appliance.cache_setup import embed_whole, realm_of
from appliance.embedding import EmbeddingFiles, embedder_of
from appliance.engines import served_model
from appliance.protocol import Request
from appliance.settings import Settings
from cache.canonical import Identity, identify
from cache.eligibility import is_about_now
from cache.store import Vector
from cache.verifier.verdict import Verifier
from tests.bench.cache.filling import Known
from tests.bench.cache.verifying import PAIRS
from tests.bench.errors import ChildEndedError

SHORT_CHARACTERS: Final = 120
ALIKE: Final = 250
STRANGERS: Final = 250
PATIENCE_S: Final = 30.0
NAMESPACE: Final = "local"  # of whoever asks without a key


@dataclass(frozen=True, slots=True)
class Asked:
    known: tuple[Known, ...]  # stored
    alike: tuple[str, ...]  # that ask the same, one by one
    strangers: tuple[str, ...]  # that nothing stored answers


def chosen(least_score: float, files: EmbeddingFiles) -> Asked:
    """`least_score`: what a hit must reach."""
    rows = [json.loads(line) for line in PAIRS.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if max(len(row["a"]), len(row["b"])) <= SHORT_CHARACTERS and not is_about_now(row["b"])]
    pairs = list({row["a"]: (row["a"], row["b"]) for row in rows if row["hit"]}.values())
    first, second = (asyncio.run(_vectors(files, texts)) for texts in zip(*pairs, strict=True))
    similarities, verifier = second @ first.T, Verifier()
    hits = [
        i
        for i, (a, b) in enumerate(pairs)
        if similarities[i].argmax() == i and verifier.verdict(a, b, float(similarities[i, i])).score >= least_score
    ][:ALIKE]
    return Asked(
        known=tuple(Known(pairs[i][0], first[i]) for i in hits),
        alike=tuple(pairs[i][1] for i in hits),
        strangers=tuple(row["b"] for row in rows if not row["hit"])[:STRANGERS],
    )


async def _vectors(files: EmbeddingFiles, texts: Sequence[str]) -> Vector:
    """(texts, dimensions)"""
    embedder = embedder_of(files)
    assert embedder is not None
    embedder.start()
    try:
        found = [await embed_whole(embedder, PATIENCE_S)(text) for text in texts]
    finally:
        await embedder.stop()
    if None in found:
        raise ChildEndedError("the embedding model gave no vector")
    vectors: Vector = np.stack([one.vector for one in found if one is not None])
    return vectors


@dataclass(frozen=True, slots=True)
class Requests:
    """Of a text: the body that is sent, what the daemon reads in it, and what the cache does."""

    model: str
    realm: str

    @classmethod
    def to(cls, model: str, path: Path, settings: Settings) -> "Requests":
        """`path` is that of the model's file."""
        return cls(model, realm_of([served_model(model, path)], settings))

    def body(self, text: str) -> dict[str, object]:
        # One token: what misses costs little, and is not stored.
        return {
            "model": self.model,
            "messages": [{"role": "user", "content": text}],
            "temperature": 0,
            "max_tokens": 1,
        }

    def request(self, text: str) -> Request:
        return parse_chat(self.body(text), {}, "bench")

    def identity(self, text: str) -> Identity:
        return identify(self.request(text), NAMESPACE, self.realm)
