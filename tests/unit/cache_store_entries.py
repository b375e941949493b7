"""Entries for the tests of the cache's store."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cache.store import Entry, Vector

NOW = 1_700_000_000.0
DIMENSIONS = 16
FINGERPRINT = hashlib.sha256(b"fingerprint").digest()
EMBEDDING = "minilm"


class Clock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def key(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def vector(numbers: Sequence[float]) -> Vector:
    """Of length one, in the direction of these numbers; zero beyond them."""
    filled = np.zeros(DIMENSIONS, dtype=np.float32)
    filled[: len(numbers)] = numbers
    unit: Vector = filled / np.linalg.norm(filled)
    return unit


def random_vectors(count: int, seed: int, dimensions: int = DIMENSIONS) -> Vector:
    """(count, dimensions), each of length one."""
    drawn = np.random.default_rng(seed).standard_normal((count, dimensions)).astype(np.float32)
    unit: Vector = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return unit


def entry(name: str = "a", **more: Any) -> Entry:
    """For the exact tier, of this key; `more` are fields."""
    plain = Entry(
        key=key(name),
        fingerprint=FINGERPRINT,
        namespace="tenant",
        step=None,
        text="",
        vector=None,
        embedding="",
        answer=f"answer {name}".encode(),
        model="small",
        prompt_tokens=10,
        completion_tokens=20,
        created_at=NOW,
        expires_at=NOW + 3600.0,
    )
    return replace(plain, **more)


def semantic(name: str, numbers: Sequence[float] | Vector, **more: Any) -> Entry:
    """For both tiers, of this key and text, and a vector in this direction."""
    given = numbers if isinstance(numbers, np.ndarray) else vector(numbers)
    return entry(name, **{"text": f"text {name}", "vector": given, "embedding": EMBEDDING} | more)
