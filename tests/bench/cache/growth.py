"""The cache's store by size: `python -m tests.bench.cache.growth [SIZE ...]`. Nothing else should run.

All entries are of ONE fingerprint, which is the worst case of a search. `alike` are entries that all mean about the
same (one prompt template), where sqlite-vec has most to sort; else they come in clusters of paraphrases.
"""

import hashlib
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from cache.store import Entry, Store, Vector
from tests.bench import report
from tests.bench.stats import percentile

SIZES = (1_000, 10_000, 100_000)  # 1,000,000 take 20 minutes and 6 GB
DIMENSIONS = 384  # of all-MiniLM-L6-v2
CLUSTER = 20  # paraphrases of one question
MUTUAL = 0.8  # cosine of two of them
ALIKE = 0.7  # cosine of any two where all are alike
QUESTIONS = 300
ANSWER_BYTES = 1_000
FINGERPRINT = b"f" * 32
EMBEDDING = "bench"
MIB = 2**20


@dataclass(frozen=True, slots=True)
class Line:
    entries: int
    alike: bool
    put_s: list[float]
    get_s: list[float]
    near_s: list[float]
    recall_best: float  # share of the truly best that were given first
    recall_two: float  # of the truly best two with a similarity of 0.7 and more, share that were given
    grown_bytes: int  # resident memory, from before the store to the end
    disk_bytes: int


def unit(vectors: Vector) -> Vector:
    lengths: Vector = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / lengths


def near_to(vectors: Vector, cosine: float | Vector, random: np.random.Generator) -> Vector:
    """For each of vectors (n, dimensions) one that has this cosine to it."""
    aside = random.standard_normal(vectors.shape).astype(np.float32)
    aside -= np.sum(aside * vectors, axis=1, keepdims=True) * vectors
    mixed: Vector = (cosine * vectors + np.sqrt(1 - np.square(cosine)) * unit(aside)).astype(np.float32)
    return mixed


def clustered(count: int, size: int, mutual: float, random: np.random.Generator) -> Vector:
    """(count, DIMENSIONS) in clusters of a size; two of one have about the cosine `mutual`, of two clusters 0."""
    centres = unit(random.standard_normal((-(-count // size), DIMENSIONS)).astype(np.float32))
    return near_to(np.repeat(centres, size, axis=0)[:count], float(np.sqrt(mutual)), random)


def entry(number: int, vector: Vector, answer: bytes) -> Entry:
    return Entry(
        key=hashlib.sha256(number.to_bytes(8, "big")).digest(),
        fingerprint=FINGERPRINT,
        namespace="bench",
        step="chat",
        text=f"question {number}, about as long as a short question of a person is",
        vector=vector,
        embedding=EMBEDDING,
        answer=answer,
        model="m",
        prompt_tokens=100,
        completion_tokens=200,
        created_at=time.time(),
        expires_at=time.time() + 86_400,
    )


def measured(folder: Path, count: int, *, alike: bool) -> Line:
    random = np.random.default_rng(count)
    vectors = clustered(count, count, ALIKE, random) if alike else clustered(count, CLUSTER, MUTUAL, random)
    entries = [entry(number, vector, random.bytes(ANSWER_BYTES)) for number, vector in enumerate(vectors)]
    chosen = random.integers(0, count, QUESTIONS)
    cosines = random.uniform(0.9, 0.98, (QUESTIONS, 1)).astype(np.float32)
    questions = near_to(vectors[chosen], cosines, random)
    process = psutil.Process()
    before = process.memory_info().rss
    store = Store(folder / f"{count}-{alike}.db", time.time, max_bytes=2**34, max_entries=count)
    put_s = [_timed(lambda one=one: store.put(one)) for one in entries]  # type: ignore[misc]
    get_s = [_timed(lambda i=i: store.get(entries[i].key)) for i in chosen]  # type: ignore[misc]
    found: list[list[str]] = []
    near_s = [_timed(lambda q=q: found.append(_texts(store, q))) for q in questions]  # type: ignore[misc]
    line = Line(
        count,
        alike,
        put_s,
        get_s,
        near_s,
        *_recall(vectors, questions, [[int(text.split()[1].rstrip(",")) for text in texts] for texts in found]),
        process.memory_info().rss - before,
        store.stats().bytes_on_disk,
    )
    store.close()
    return line


def table(sizes: Sequence[int]) -> None:
    """Prints a line for each size and kind."""
    with tempfile.TemporaryDirectory() as folder:
        lines = [measured(Path(folder), count, alike=alike) for count in sizes for alike in (False, True)]
    rows = [
        (
            f"{line.entries:,}{', alike' if line.alike else ''}",
            *(_ms(times, q) for times in (line.get_s, line.near_s, line.put_s) for q in (50, 99)),
            f"{line.recall_best:.3f}",
            f"{line.recall_two:.3f}",
            f"{line.grown_bytes / MIB:.0f}",
            f"{line.disk_bytes / MIB:.1f}",
        )
        for line in lines
    ]
    times = [f"{name} {rank} ms" for name in ("get", "near", "put") for rank in ("P50", "P99")]
    print(*report.table(("entries", *times, "best found", "best two", "memory MiB", "disk MiB"), rows), sep="\n")


def _texts(store: Store, question: Vector) -> list[str]:
    return [candidate.text for candidate in store.near(FINGERPRINT, EMBEDDING, question)]


def _timed(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _recall(vectors: Vector, questions: Vector, found: Sequence[Sequence[int]]) -> tuple[float, float]:
    similarities = questions @ vectors.T
    best, hits, wanted = 0, 0, 0
    for row, given in zip(similarities, found, strict=True):
        true = np.argsort(-row)[:2]
        best += bool(given) and given[0] == int(true[0])
        wanted += sum(bool(row[i] >= 0.7) for i in true)
        hits += sum(bool(row[i] >= 0.7) and i in given for i in true)
    return best / len(questions), hits / wanted


def _ms(times_s: Sequence[float], q: float) -> str:
    return f"{percentile(times_s, q) * 1e3:.2f}"


if __name__ == "__main__":
    table([int(size) for size in sys.argv[1:]] or SIZES)
