"""Entries as rows of `answers` and `vectors`, with a checksum each, so that a flipped bit is never served."""

import hashlib
from typing import Any, Final

import apsw
import numpy as np

from cache.store.entry import Entry, Stored, Vector
from cache.store.query import query
from cache.store.worth import ENTRY_BYTES, worth

_READ: Final = (
    "SELECT key, fingerprint, namespace, step, embedding, model, prompt_tokens, completion_tokens,"
    " created_at, expires_at, hits, last_used_at, checksum, text, answer FROM answers WHERE id = ?"
)
_INSERT: Final = (
    "INSERT INTO answers (key, fingerprint, namespace, step, embedding, model, prompt_tokens, completion_tokens,"
    " created_at, expires_at, hits, last_used_at, bytes, worth, checksum, text, answer)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?) RETURNING id"
)


class DamagedRow(Exception):
    """A row is not as it was written."""

    def __init__(self, row_id: int) -> None:
        super().__init__(f"row {row_id} fails its checksum")
        self.row_id = row_id


def size_bytes(entry: Entry) -> int:
    """About what it takes of the file."""
    vector_bytes = 0 if entry.vector is None else entry.vector.nbytes
    return ENTRY_BYTES + len(entry.text.encode()) + len(entry.answer) + vector_bytes


def insert(db: apsw.Connection, entry: Entry, now: float) -> int:
    """Into `answers` alone; its id."""
    size = size_bytes(entry)
    values = (
        entry.key,
        entry.fingerprint,
        entry.namespace,
        entry.step,
        entry.embedding,
        entry.model,
        entry.prompt_tokens,
        entry.completion_tokens,
        entry.created_at,
        entry.expires_at,
        now,
        size,
        worth(0, entry.completion_tokens, size, now),
        checksum(entry),
        entry.text,
        entry.answer,
    )
    row_id: int = query(db, _INSERT, values)[0][0]
    return row_id


def id_of(db: apsw.Connection, key: bytes) -> int | None:
    found: list[tuple[int]] = query(db, "SELECT id FROM answers WHERE key = ?", (key,))
    return found[0][0] if found else None


def read(db: apsw.Connection, row_id: int) -> Stored | None:
    """Without its vector. Raises `DamagedRow`."""
    try:
        rows: list[tuple[Any, ...]] = query(db, _READ, (row_id,))
        return _stored(row_id, rows[0]) if rows else None
    except (AttributeError, TypeError, ValueError) as error:  # a text that is none, a number that is a text
        raise DamagedRow(row_id) from error


def vector_of(db: apsw.Connection, row_id: int, key: bytes) -> Vector | None:
    """Raises `DamagedRow`."""
    rows = query(db, "SELECT checksum, vector FROM vectors WHERE id = ?", (row_id,))
    if not rows:
        return None
    expected, blob = rows[0]
    try:
        if vector_checksum(key, blob) == expected:
            return np.frombuffer(blob, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise DamagedRow(row_id) from error
    raise DamagedRow(row_id)


def touch(db: apsw.Connection, row_id: int, hits: int, now: float) -> None:
    """So many hits more. Nothing when the row is gone."""
    # Cast, as these columns are under no checksum: a damaged one counts as some number.
    question = (
        "SELECT CAST(ifnull(hits, 0) AS INTEGER), CAST(ifnull(completion_tokens, 0) AS INTEGER),"
        " CAST(ifnull(bytes, 0) AS INTEGER) FROM answers WHERE id = ?"
    )
    for earlier, completion_tokens, size in query(db, question, (row_id,)):
        values = (earlier + hits, now, worth(earlier + hits, completion_tokens, size, now), row_id)
        db.execute("UPDATE answers SET hits = ?, last_used_at = ?, worth = ? WHERE id = ?", values)


def checksum(entry: Entry) -> bytes:
    """Over all that is served, without the vector, which has its own."""
    numbers = (
        int(entry.prompt_tokens),
        int(entry.completion_tokens),
        float(entry.created_at),
        float(entry.expires_at),
    )
    return _digest(
        entry.key,
        entry.fingerprint,
        entry.namespace.encode(),
        b"" if entry.step is None else b"=" + entry.step.encode(),
        entry.embedding.encode(),
        entry.model.encode(),
        repr(numbers).encode(),
        entry.text.encode(),
        entry.answer,
    )


def vector_checksum(key: bytes, blob: bytes) -> bytes:
    return _digest(key, blob)


def _digest(*parts: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


def _stored(row_id: int, row: tuple[Any, ...]) -> Stored:
    """Of the columns of `_READ`. Raises `DamagedRow`, and TypeError and its like where a column has another type."""
    key, fingerprint, namespace, step, embedding, model, prompt_tokens, completion_tokens = row[:8]
    created_at, expires_at, hits, last_used_at, expected, text, answer = row[8:]
    entry = Entry(
        key=key,
        fingerprint=fingerprint,
        namespace=namespace,
        step=step,
        text=text,
        vector=None,
        embedding=embedding,
        answer=answer,
        model=model,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        created_at=created_at,
        expires_at=expires_at,
    )
    if checksum(entry) != expected or not (isinstance(hits, int) and isinstance(last_used_at, float)):
        raise DamagedRow(row_id)
    return Stored(row_id, entry, hits, last_used_at)
