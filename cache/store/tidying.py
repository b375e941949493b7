"""Housekeeping: many entries removed, mostly dead coarse tables built anew, free pages given back.

Each step is a short transaction, so that a write of another thread waits for one step at most. Reads never wait: they
see the file as it was before the step. All raise `Unavailable`, but for `remove`.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from cache.store import entries, index
from cache.store.file import StoreFile, Unavailable

ROWS_AT_ONCE: Final = 100  # to remove 100 takes some 15 ms
PAGES_AT_ONCE: Final = 64


def remove(file: StoreFile, row_ids: Sequence[int]) -> int:
    """How many went: fewer than there were when the file can't be written any more."""
    gone = 0
    with suppress(Unavailable):
        for start in range(0, len(row_ids), ROWS_AT_ONCE):
            with file.writing() as db:
                removed = entries.remove(db, row_ids[start : start + ROWS_AT_ONCE])
            gone += removed
    return gone


def rebuild_coarse_tables(file: StoreFile) -> None:
    """Those that are mostly dead, and those that an interrupted call has left half built. Unused ones go."""
    with file.writing() as db:
        for tag in index.tags(db):
            if index.is_unused(db, tag):
                index.drop(db, tag)
        waiting = [tag.id for tag in index.tags(db) if tag.building or index.is_mostly_dead(db, tag)]
    for tag_id in waiting:
        with file.writing() as db:
            index.begin_rebuild(db, tag_id)
        last: int | None = 0
        while last is not None:
            with file.writing() as db:
                last = index.rebuild(db, tag_id, after=last, at_most=ROWS_AT_ONCE)


def give_back_space(file: StoreFile) -> None:
    """When more than half of the file's pages are free."""
    with file.writing() as db:
        free: int = db.pragma("freelist_count")
        is_due = 2 * free > db.pragma("page_count")
    while is_due and free:
        with file.writing() as db:
            db.execute(f"PRAGMA incremental_vacuum({PAGES_AT_ONCE})").fetchall()
            before, free = free, db.pragma("freelist_count")
        is_due = free < before
    file.checkpoint()
