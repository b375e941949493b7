"""A `cache.db` of any size for `latency`: as the daemon would have written it, under the fingerprint of what is asked.

All entries are of one fingerprint, the worst case of a search, or spread over several. A few answer real questions; the
vectors of the others come in clusters of paraphrases, and some have the key of a request that is asked: exact hits.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from cache.answers import Answer, packed
from cache.canonical import Identity
from cache.store import Entry, Store, Vector, entries
from cache.store.file import StoreFile
from tests.bench.cache.growth import CLUSTER, MUTUAL, clustered, entry

AT_ONCE: Final = 1_000  # entries in one transaction; the daemon's are of one, which is five times slower
SINGLY: Final = 200  # the last, as the daemon does it
EXACT: Final = 400  # entries that have the key of a request
ROOMY: Final = 2**40  # of bytes, and more entries than there will be
ANSWER: Final = packed(Answer("An answer of some length. " * 40, "", "bench", 40, 200, 0, thinking=False))


@dataclass(frozen=True, slots=True)
class Known:
    """A question that is stored with its answer."""

    text: str
    vector: Vector


@dataclass(frozen=True, slots=True)
class Filled:
    entries: int
    exact: tuple[str, ...]  # texts that have an entry each
    bulk_per_s: float  # entries, AT_ONCE in a transaction
    put_per_s: float  # entries, one by one
    file_bytes: int


def fill(
    path: Path,
    count: int,
    known: Sequence[Known],
    identity: Callable[[str], Identity],
    tag: str,
    *,
    fingerprints: int = 1,
) -> Filled:
    """Makes the file. `identity` is of the request with this text, `tag` the embedding model's.

    Of several `fingerprints`, what is asked has one, which it shares with its part of the others. ValueError when
    `count` leaves no room for what is asked.
    """
    random = np.random.default_rng(count)
    bulk = count - SINGLY
    chosen = random.choice(bulk, EXACT + len(known), replace=False)
    real = dict(zip(map(int, chosen[EXACT:]), known, strict=True))
    made = _Made(identity, tag, real, frozenset(map(int, chosen[:EXACT])), fingerprints, random)
    bulk_per_s = _in_bulk(path, made, bulk)
    put_per_s = _singly(path, made, bulk, count)
    exact = tuple(_synthetic(number) for number in sorted(made.exact))
    return Filled(count, exact, bulk_per_s, put_per_s, path.stat().st_size)


@dataclass(frozen=True, slots=True)
class _Made:
    """What the entries are made of."""

    identity: Callable[[str], Identity]
    tag: str
    real: dict[int, Known]  # by number
    exact: frozenset[int]
    fingerprints: int
    random: np.random.Generator

    def entries(self, first: int, end: int) -> Iterator[Entry]:
        some = self.identity("any text")
        for number, vector in enumerate(clustered(end - first, CLUSTER, MUTUAL, self.random), first):
            text = _synthetic(number)
            if number in self.real:
                text, vector = self.real[number].text, self.real[number].vector  # noqa: PLW2901
            asked, other = number in self.real or number in self.exact, number % self.fingerprints
            yield replace(
                entry(number, vector, ANSWER),
                key=self.identity(text).key if asked else _digest(text),
                fingerprint=some.fingerprint if asked or not other else _digest(f"fingerprint {other}"),
                namespace=some.namespace,
                step=None,
                text=text,
                embedding=self.tag,
            )


def _in_bulk(path: Path, made: _Made, count: int) -> float:
    file, spent_s = StoreFile(path, time.time), 0.0
    for first in range(0, count, AT_ONCE):
        batch = list(made.entries(first, min(count, first + AT_ONCE)))
        began_s = time.perf_counter()
        with file.writing() as db:
            for one in batch:
                assert one.vector is not None
                entries.put(db, one, one.vector, time.time())
        spent_s += time.perf_counter() - began_s
    file.close()
    return count / spent_s


def _singly(path: Path, made: _Made, first: int, end: int) -> float:
    batch = list(made.entries(first, end))
    store = Store(path, time.time, max_bytes=ROOMY, max_entries=ROOMY)
    began_s = time.perf_counter()
    for one in batch:
        store.put(one)
    spent_s = time.perf_counter() - began_s
    store.close()
    return len(batch) / spent_s


def _synthetic(number: int) -> str:
    return f"question {number}, about as long as a short question of a person is"


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
