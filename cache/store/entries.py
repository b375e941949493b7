"""Entries as a whole: the row, the exact vector and its code in the coarse index, written and removed together."""

from collections.abc import Iterable
from dataclasses import replace

import apsw

from cache.store import index, rows
from cache.store.entry import Entry, Stored, Vector
from cache.store.query import query


def put(db: apsw.Connection, entry: Entry, vector: Vector | None, now: float) -> int:
    """In the place of the entry of the same key; the id. ValueError for a vector of other dimensions than its tag's."""
    earlier = rows.id_of(db, entry.key)
    if earlier is not None:
        remove(db, [earlier])
    row_id = rows.insert(db, entry, now)
    if vector is not None:
        index.add(db, row_id, entry, vector)
    return row_id


def get(db: apsw.Connection, row_id: int) -> Stored | None:
    """With its vector. Raises `DamagedRow`."""
    stored = rows.read(db, row_id)
    if stored is None:
        return None
    vector = rows.vector_of(db, row_id, stored.entry.key)
    if vector is None and stored.entry.embedding:
        raise rows.DamagedRow(row_id)  # its vector's row is gone
    return replace(stored, entry=replace(stored.entry, vector=vector))


def get_by_key(db: apsw.Connection, key: bytes) -> Stored | None:
    """Without its vector. Raises `DamagedRow`."""
    row_id = rows.id_of(db, key)
    stored = None if row_id is None else rows.read(db, row_id)
    if stored is not None and stored.entry.key != key:
        raise rows.DamagedRow(stored.id)  # the key's index points to another row
    return stored


def remove(db: apsw.Connection, row_ids: Iterable[int]) -> int:
    """How many there were."""
    gone = 0
    for row_id in row_ids:
        index.remove(db, row_id)
        gone += len(query(db, "DELETE FROM answers WHERE id = ? RETURNING id", (row_id,)))
    return gone


def count(db: apsw.Connection) -> int:
    ((stored,),) = query(db, "SELECT CAST(ifnull(sum(entries), 0) AS INTEGER) FROM namespaces")
    return int(stored)
