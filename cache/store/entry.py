"""What is stored, and what the store gives back. No behaviour."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Vector: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Entry:
    """An answer and what it answers. Two entries are compared without their vectors."""

    key: bytes  # 32 bytes: SHA-256 of the canonical request, namespace included
    fingerprint: bytes  # 32 bytes: the same with the last user text blanked
    namespace: str  # of a key or tenant
    step: str | None
    text: str  # the last user text; empty for the exact tier only
    vector: Vector | None = field(compare=False)  # (dimensions,), length one; None for the exact tier only
    embedding: str  # tag of the embedding model; vectors of two tags are never compared
    answer: bytes
    model: str  # that answered
    prompt_tokens: int
    completion_tokens: int
    created_at: float  # Unix time, seconds
    expires_at: float


@dataclass(frozen=True, slots=True)
class Stored:
    id: int  # never given to another entry
    entry: Entry
    hits: int
    last_used_at: float  # Unix time, seconds


@dataclass(frozen=True, slots=True)
class Candidate:
    id: int
    text: str
    similarity: float  # exact cosine, -1 to 1


@dataclass(frozen=True, slots=True)
class StoreStats:
    entries: int
    bytes_on_disk: int  # the database and its write-ahead log
    namespaces: Mapping[str, int]  # entries of each
    evictions: int  # by the limits, since the start
    quarantines: int  # files that were moved aside, since the start
    damaged: int  # rows that failed their checksum and were deleted, since the start
    failures: int  # reads and writes that the file refused, since the start
    problem: str | None
