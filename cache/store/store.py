"""The store: what is asked of it, a method each. Only a vector that is none raises; `file` sees to what goes wrong."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import apsw

from cache.store import counters, entries, eviction, rows, search, tidying
from cache.store.entry import Candidate, Entry, Stored, StoreStats, Vector
from cache.store.eviction import Limits
from cache.store.file import StoreFile, Unavailable
from cache.store.query import query
from cache.store.rows import DamagedRow
from cache.store.vectors import checked

LARGEST_SHARE: Final = 4  # one entry takes a fourth of the store at most
_HOLDS: Final = "SELECT 1 FROM answers WHERE fingerprint = ? AND embedding = ? AND embedding != '' LIMIT 1"


class Store:
    """For any number of threads: one writes at a time, others read meanwhile."""

    def __init__(self, path: Path, clock: Callable[[], float], *, max_bytes: int, max_entries: int) -> None:
        """`clock` gives Unix time. Opens nothing; the file begins with the first write.

        `max_bytes` bounds the database, beside which a write-ahead log of a few MB stands. An empty one with its
        first vector takes about 0.5 MB, and the entry that was put last is never evicted.
        """
        self._file = StoreFile(path, clock)
        self._clock = clock
        self._limits = Limits(max_bytes, max_entries)
        self._tidying = threading.Lock()
        self._counting = threading.Lock()
        self._evictions = self._damaged = 0

    # Reading

    def get(self, key: bytes) -> Stored | None:
        """The entry of a key, without its vector; None when there is none or it has expired."""
        return self._found(lambda db: entries.get_by_key(db, key))

    def entry(self, id: int) -> Stored | None:  # noqa: A002 - the field's name
        """The entry of an id, with its vector; None when there is none or it has expired."""
        return self._found(lambda db: entries.get(db, id))

    def near(self, fingerprint: bytes, embedding: str, vector: Vector, k: int = 2) -> list[Candidate]:
        """The `k` entries most similar to a vector (dimensions,) within a fingerprint and a tag, best first.

        One that is clearly below a cosine of `vectors.LEAST_SIMILARITY` is not found. ValueError for a vector that has
        a number that is not finite, no length, or other dimensions than the tag's.
        """
        question = search.Question(fingerprint, embedding, checked(vector), k)
        with suppress(Unavailable):
            with self._file.reading() as db:
                found = search.near(db, question, self._clock())
            if found.damaged:
                self._remove_damaged(found.damaged)
            return found.candidates
        return []

    def holds(self, fingerprint: bytes, embedding: str) -> bool:
        """Whether `near` may find anything there."""
        with suppress(Unavailable), self._file.reading() as db:
            return bool(query(db, _HOLDS, (fingerprint, embedding)))
        return False

    # Writing

    def put(self, entry: Entry) -> bool:
        """In the place of the entry of the same key. What is worth least goes when the store is over its limits.

        False: it was dropped, as one that would take a fourth of the store is. ValueError as for `near`.
        """
        vector = None if entry.vector is None else checked(entry.vector)
        kept = False
        with suppress(Unavailable):
            now = self._clock()
            with self._file.writing() as db:
                if rows.size_bytes(entry) * LARGEST_SHARE > self._limits.max_bytes:
                    return False
                row_id = entries.put(db, entry, vector, now)
                evicted = eviction.make_room(db, self._limits, row_id, now)
            kept = True
            self._count(evictions=evicted)
            while evicted == eviction.AT_ONCE:
                with self._file.writing() as db:
                    evicted = eviction.make_room(db, self._limits, row_id, now)
                self._count(evictions=evicted)
        return kept

    def touch(self, ids: Sequence[int]) -> None:
        """These were hit, once for each time they are named. Ids that are gone are passed over."""
        if ids and self._file.exists():
            with suppress(Unavailable), self._file.writing() as db:
                for row_id, hits in Counter(ids).items():
                    rows.touch(db, row_id, hits, self._clock())

    def evict(
        self,
        *,
        namespace: str | None = None,
        older_than_s: float | None = None,
        id: int | None = None,  # noqa: A002 - the field's name
    ) -> int:
        """Entries that meet all conditions that are given; none given: all. How many went."""
        conditions: dict[str, str | float] = {}
        if namespace is not None:
            conditions["namespace = ?"] = namespace
        if older_than_s is not None:
            conditions["created_at <= ?"] = self._clock() - older_than_s
        if id is not None:
            conditions["id = ?"] = id
        return self._remove(" AND ".join(conditions) or "TRUE", tuple(conditions.values()))

    def tidy(self) -> int:
        """What has expired goes; space that much was deleted from is used or given back. How many entries went."""
        if not self._tidying.acquire(blocking=False):
            return 0
        try:
            gone = self._remove("expires_at <= ?", (self._clock(),))
            if self._file.exists():
                with suppress(Unavailable):
                    tidying.rebuild_coarse_tables(self._file)
                    tidying.give_back_space(self._file)
            return gone
        finally:
            self._tidying.release()

    def close(self) -> None:
        """After it, nothing is found and nothing written."""
        self._file.close()

    # What is counted

    def stats(self) -> StoreStats:
        by_namespace: dict[str, int] = {}
        with suppress(Unavailable), self._file.reading() as db:
            by_namespace = dict(query(db, "SELECT namespace, entries FROM namespaces"))
        return StoreStats(
            entries=sum(by_namespace.values()),
            bytes_on_disk=self._file.bytes_on_disk(),
            namespaces=by_namespace,
            evictions=self._evictions,
            quarantines=self._file.quarantines,
            damaged=self._damaged,
            failures=self._file.failures,
            problem=self._file.problem,
        )

    def add(self, namespace: str, step: str, counts: Mapping[str, int]) -> None:
        """To counters of any name, kept with the entries."""
        with suppress(Unavailable), self._file.writing() as db:
            counters.add(db, namespace, step, counts)

    def totals(self) -> dict[tuple[str, str], dict[str, int]]:
        """By namespace and step, all that was added: by name."""
        with suppress(Unavailable), self._file.reading() as db:
            return counters.totals(db)
        return {}

    def _found(self, ask: Callable[[apsw.Connection], Stored | None]) -> Stored | None:
        with suppress(Unavailable):
            try:
                with self._file.reading() as db:
                    found = ask(db)
            except DamagedRow as damaged:
                self._remove_damaged([damaged.row_id])
            else:
                return found if found is not None and found.entry.expires_at > self._clock() else None
        return None

    def _remove(self, condition: str, values: tuple[str | float, ...]) -> int:
        """Those that meet a condition now. Ids are never used again, so a later entry is safe from it."""
        row_ids: list[int] = []
        with suppress(Unavailable), self._file.reading() as db:
            found = query(db, f"SELECT id FROM answers WHERE {condition}", values)  # noqa: S608 - ours
            row_ids = [row_id for (row_id,) in found]
        return tidying.remove(self._file, row_ids)

    def _remove_damaged(self, row_ids: Sequence[int]) -> None:
        self._count(damaged=tidying.remove(self._file, row_ids))

    def _count(self, *, evictions: int = 0, damaged: int = 0) -> None:
        with self._counting:
            self._evictions += evictions
            self._damaged += damaged
