"""The semantic tier's question: which stored texts mean about the same, within a fingerprint."""

import json
from dataclasses import dataclass
from typing import Final

import apsw
import numpy as np

from cache.store import entries, index
from cache.store.entry import Candidate, Vector
from cache.store.query import query
from cache.store.rows import DamagedRow
from cache.store.vectors import cosines

# Of the coarse search, that are compared exactly. sqlite-vec sorts by going through all rows once for each that it
# shall find, so in a large store it finds fewer: no more than SORTED times a row is looked at, which takes some 2 ms.
MOST_COARSE: Final = 64
FEWEST_COARSE: Final = 16
SORTED: Final = 2_400_000
_EXACT: Final = (
    "SELECT vectors.id, vector FROM vectors JOIN answers USING (id) WHERE id IN (SELECT value FROM json_each(?))"
    " AND fingerprint = ? AND embedding = ? AND expires_at > ?"
)


@dataclass(frozen=True, slots=True)
class Question:
    fingerprint: bytes
    embedding: str
    vector: Vector  # (dimensions,)
    k: int


@dataclass(frozen=True, slots=True)
class Found:
    candidates: list[Candidate]  # best first
    damaged: list[int]  # rows that were met and failed their checksum


def coarse_rows(stored: int) -> int:
    """How many to find among so many entries."""
    return min(MOST_COARSE, max(FEWEST_COARSE, SORTED // max(1, stored)))


def near(db: apsw.Connection, question: Question, now: float) -> Found:
    """ValueError when the tag's vectors have other dimensions."""
    found = Found([], [])
    with db:  # one state of the file for all of it
        for row_id, similarity in _ranked(db, question, now):
            if len(found.candidates) == question.k:
                break
            try:
                stored = entries.get(db, row_id)
            except DamagedRow:
                found.damaged.append(row_id)
            else:
                if stored is not None:
                    found.candidates.append(Candidate(row_id, stored.entry.text, similarity))
    return found


def _ranked(db: apsw.Connection, question: Question, now: float) -> list[tuple[int, float]]:
    """Ids and exact cosines of what the coarse search finds, best first."""
    tag = index.tag_of(db, question.embedding, question.vector.size)
    if tag is None or question.k < 1:
        return []
    k = max(question.k, coarse_rows(entries.count(db)))
    coarse = index.nearest(db, tag, question.fingerprint, question.vector, k)
    rows = query(db, _EXACT, (json.dumps(coarse), question.fingerprint, question.embedding, now))
    similarities = cosines(question.vector, [blob for _, blob in rows])
    order = np.argsort(-similarities, kind="stable")
    return [(rows[i][0], float(similarities[i])) for i in order if not np.isnan(similarities[i])]
