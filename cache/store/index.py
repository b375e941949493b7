"""The coarse index: one vec0 table of bit codes for each embedding tag, beside the exact vectors in `vectors`.

sqlite-vec scans a whole table, so a search is over codes, and only within a fingerprint: its first 8 bytes are an
integer column that the scan filters by. It neither replaces a row nor gives a deleted one's space back: a table is
built anew beside the old one (see `rebuild`), and the tag then points to that.
"""

from dataclasses import dataclass
from typing import Final

import apsw
import numpy as np

from cache.store.entry import Entry, Vector
from cache.store.query import query
from cache.store.rows import vector_checksum
from cache.store.vectors import CODE_BITS, FURTHEST_BITS, codes

CHUNK_ROWS: Final = 2048  # a search opens each chunk anew, and sorts each whole, also one that is hardly used
MOST_ROWS: Final = 4096  # that sqlite-vec finds at once


@dataclass(frozen=True, slots=True)
class Tag:
    """An embedding model and its table. The one of the other side exists while it is being built."""

    id: int
    dimensions: int
    side: int  # 0 or 1
    building: bool

    @property
    def table(self) -> str:
        return f"coarse_{self.id}_{self.side}"

    @property
    def other_table(self) -> str:
        return f"coarse_{self.id}_{1 - self.side}"


def tags(db: apsw.Connection) -> list[Tag]:
    return [tag for (tag_id,) in query(db, "SELECT id FROM tags") for tag in _tags(db, "id", tag_id)]


def tag_of(db: apsw.Connection, embedding: str, dimensions: int) -> Tag | None:
    """None when no vector of it is stored. ValueError when those stored have other dimensions."""
    for tag in _tags(db, "embedding", embedding):
        if tag.dimensions != dimensions:
            raise ValueError(f"vectors of {embedding!r} have {tag.dimensions} dimensions, not {dimensions}")
        return tag
    return None


def add(db: apsw.Connection, row_id: int, entry: Entry, vector: Vector) -> None:
    """The first vector of a tag decides its dimensions; ValueError for one of others."""
    tag = tag_of(db, entry.embedding, vector.size) or _new_tag(db, entry.embedding, vector.size)
    blob = vector.tobytes()
    db.execute("INSERT INTO vectors VALUES (?, ?, ?, ?)", (row_id, tag.id, vector_checksum(entry.key, blob), blob))
    _insert(db, tag.table, row_id, codes(vector[np.newaxis])[0], entry.fingerprint)


def nearest(db: apsw.Connection, tag: Tag, fingerprint: bytes, vector: Vector, k: int) -> list[int]:
    """Ids of the `k` rows, or some fewer, whose codes are nearest. Some may be of another fingerprint."""
    question = (
        f"SELECT rowid FROM {tag.table}"  # noqa: S608 - a name of ours
        " WHERE code MATCH vec_bit(?) AND k = ? AND fingerprint = ? AND distance <= ?"
    )
    values = (codes(vector[np.newaxis])[0], min(k, MOST_ROWS), _prefix(fingerprint), FURTHEST_BITS)
    return [row_id for (row_id,) in query(db, question, values)]


def remove(db: apsw.Connection, row_id: int) -> None:
    """From `vectors` and from every table that has it."""
    for (tag_id,) in query(db, "DELETE FROM vectors WHERE id = ? RETURNING tag", (row_id,)):
        for tag in _tags(db, "id", tag_id):
            db.execute(f"DELETE FROM {tag.table} WHERE rowid = ?", (row_id,))  # noqa: S608 - a name of ours
            if tag.building:
                db.execute(f"DELETE FROM {tag.other_table} WHERE rowid = ?", (row_id,))  # noqa: S608


def is_unused(db: apsw.Connection, tag: Tag) -> bool:
    return not query(db, "SELECT 1 FROM vectors WHERE tag = ? LIMIT 1", (tag.id,))


def is_mostly_dead(db: apsw.Connection, tag: Tag) -> bool:
    """Whether more than half of a table is deleted rows, a chunk aside."""
    ((chunks,),) = query(db, f"SELECT count(*) FROM {tag.table}_chunks")  # noqa: S608 - a name of ours
    ((alive,),) = query(db, f"SELECT count(*) FROM {tag.table}_rowids")  # noqa: S608
    return bool((chunks - 1) * CHUNK_ROWS > 2 * alive)


def begin_rebuild(db: apsw.Connection, tag_id: int) -> None:
    """What an interrupted one has left goes."""
    for tag in _tags(db, "id", tag_id):
        db.execute(f"DROP TABLE IF EXISTS {tag.other_table}")
        _create(db, tag.other_table)
        db.execute("UPDATE tags SET building = 1 WHERE id = ?", (tag.id,))


def rebuild(db: apsw.Connection, tag_id: int, after: int, at_most: int) -> int | None:
    """Takes the next rows, by id, into the table that is being built; the last one's id.

    None when there is none left, and the tag has changed over. New rows have higher ids, so none is missed; `remove`
    sees to both tables meanwhile.
    """
    tag = next((tag for tag in _tags(db, "id", tag_id) if tag.building), None)
    if tag is None:
        return None
    rows = query(
        db,
        "SELECT vectors.id, fingerprint, vector FROM vectors JOIN answers USING (id)"
        " WHERE tag = ? AND vectors.id > ? ORDER BY vectors.id LIMIT ?",
        (tag.id, after, at_most),
    )
    if not rows:
        db.execute("UPDATE tags SET side = 1 - side, building = 0 WHERE id = ?", (tag.id,))
        db.execute(f"DROP TABLE {tag.table}")
        return None
    whole = [row for row in rows if len(row[2]) == tag.dimensions * 4]
    matrix = np.frombuffer(b"".join(vector for _, _, vector in whole), dtype=np.float32)
    for (row_id, fingerprint, _), code in zip(whole, codes(matrix.reshape(-1, tag.dimensions)), strict=True):
        _insert(db, tag.other_table, row_id, code, fingerprint)
    last: int = rows[-1][0]
    return last


def drop(db: apsw.Connection, tag: Tag) -> None:
    db.execute(f"DROP TABLE {tag.table}")
    db.execute(f"DROP TABLE IF EXISTS {tag.other_table}")
    db.execute("DELETE FROM tags WHERE id = ?", (tag.id,))


def _tags(db: apsw.Connection, column: str, value: int | str) -> list[Tag]:
    """The one, or none, that has this value in a column that is unique."""
    question = f"SELECT id, dimensions, side, building FROM tags WHERE {column} = ?"  # noqa: S608 - a name of ours
    rows = query(db, question, (value,))
    return [Tag(tag_id, dimensions, side, bool(building)) for tag_id, dimensions, side, building in rows]


def _new_tag(db: apsw.Connection, embedding: str, dimensions: int) -> Tag:
    insert = "INSERT INTO tags (embedding, dimensions, side, building) VALUES (?, ?, 0, 0) RETURNING id"
    ((tag_id,),) = query(db, insert, (embedding, dimensions))
    tag = Tag(tag_id, dimensions, 0, building=False)
    _create(db, tag.table)
    return tag


def _create(db: apsw.Connection, table: str) -> None:
    columns = f"code bit[{CODE_BITS}], fingerprint integer, chunk_size={CHUNK_ROWS}"
    db.execute(f"CREATE VIRTUAL TABLE {table} USING vec0({columns})")


def _insert(db: apsw.Connection, table: str, row_id: int, code: bytes, fingerprint: bytes) -> None:
    insert = f"INSERT INTO {table} (rowid, code, fingerprint) VALUES (?, vec_bit(?), ?)"  # noqa: S608 - a name of ours
    db.execute(insert, (row_id, code, _prefix(fingerprint)))


def _prefix(fingerprint: bytes) -> int:
    """What fits an integer column: rows of the same prefix are told apart by their whole fingerprint."""
    return int.from_bytes(fingerprint[:8], "big", signed=True)
