"""What goes when the store is over its limits: the expired first, then what is worth least."""

from dataclasses import dataclass
from typing import Final

import apsw

from cache.store import entries
from cache.store.query import query

AT_ONCE: Final = 64  # in one transaction; more is to do only after the limits were lowered, or for one long answer

# Both orders are in an index.
_EXPIRED: Final = "SELECT id FROM answers WHERE expires_at <= ? AND id != ? ORDER BY expires_at LIMIT 1"
_LEAST: Final = "SELECT id FROM answers WHERE id != ? ORDER BY worth LIMIT 1"


@dataclass(frozen=True, slots=True)
class Limits:
    max_bytes: int  # of the pages in use; free ones are used again, so the file doesn't grow beyond
    max_entries: int


def make_room(db: apsw.Connection, limits: Limits, keep: int, now: float) -> int:
    """Evicts until the limits hold, AT_ONCE entries at most and never the one of the id `keep`. How many went."""
    gone = 0
    for _ in range(AT_ONCE):
        if not _is_over(db, limits):
            break
        victims = query(db, _EXPIRED, (now, keep)) or query(db, _LEAST, (keep,))
        gone += entries.remove(db, [row_id for (row_id,) in victims])
    return gone


def _is_over(db: apsw.Connection, limits: Limits) -> bool:
    pages = db.pragma("page_count") - db.pragma("freelist_count")
    return bool(entries.count(db) > limits.max_entries or pages * db.pragma("page_size") > limits.max_bytes)
