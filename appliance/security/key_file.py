"""`keys.db` as a file: its schema, how it comes into being, and what makes it fit to be believed.

Knows no key: `keys` reads and writes the rows.
"""

import errno
import fcntl
import os
import secrets
import stat
from pathlib import Path

import apsw

SCHEMA_VERSION = 2
READ_BUSY_TIMEOUT_MS = 250  # in WAL mode a reader waits only while another process recovers or closes the log

_SCHEMA = """
CREATE TABLE keys (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    digest BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
    scopes TEXT NOT NULL,
    requests_per_minute INTEGER,
    max_concurrent INTEGER,
    created_at REAL NOT NULL,
    revoked_at REAL,
    local_only INTEGER NOT NULL DEFAULT 0,
    redact TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE UNIQUE INDEX active_name ON keys (name) WHERE revoked_at IS NULL;
"""

_FROM_1_TO_2 = """
ALTER TABLE keys ADD COLUMN local_only INTEGER NOT NULL DEFAULT 0;
ALTER TABLE keys ADD COLUMN redact TEXT NOT NULL DEFAULT '';
"""


def create(path: Path) -> None:
    """A new store appears whole or not at all, so that no reader meets an empty file and takes it for damaged."""
    directory = path.parent
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    owner = directory.stat()
    if owner.st_mode & 0o022:  # whoever may write here could put a store of their own in place of this one
        directory.chmod(stat.S_IMODE(owner.st_mode) & ~0o022)
    draft = directory / f".{path.name}.{secrets.token_hex(6)}"
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():  # another process was faster: its store is as good
            return
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        _write_schema(draft)
        open_checked(draft).close()
        if any(sidecar.exists() for sidecar in _sidecars(draft)):  # a log that could not be written back: no room
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if os.geteuid() == 0:  # made by root for a service's user: that user must be able to read it
            os.chown(draft, owner.st_uid, owner.st_gid)
        for sidecar in _sidecars(path):  # of a store that was deleted: its log must not be played into this one
            sidecar.unlink(missing_ok=True)
        draft.rename(path)
    finally:
        for leftover in (draft, *_sidecars(draft)):
            leftover.unlink(missing_ok=True)
        os.close(lock)


def _sidecars(path: Path) -> tuple[Path, ...]:
    return tuple(path.with_name(path.name + ending) for ending in ("-wal", "-shm", "-journal"))


def _write_schema(path: Path) -> None:
    db = apsw.Connection(os.fspath(path))
    try:
        db.pragma("journal_mode", "wal")
        db.execute(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT")
    finally:
        db.close()


def open_checked(path: Path) -> apsw.Connection:
    """The existing store, for reading and writing. Raises apsw's errors, or ValueError when it is not sound."""
    db = apsw.Connection(os.fspath(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        db.set_busy_timeout(READ_BUSY_TIMEOUT_MS)
        if db.pragma("user_version") == 1:
            _bring_up_to_date(db)
        _check_integrity(db)
    except BaseException:
        db.close()
        raise
    return db


def _bring_up_to_date(db: apsw.Connection) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        if db.pragma("user_version") == 1:  # another process may have been faster
            db.execute(_FROM_1_TO_2)
            db.pragma("user_version", 2)
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _check_integrity(db: apsw.Connection) -> None:
    version = db.pragma("user_version")
    if version != SCHEMA_VERSION:
        raise ValueError(f"its schema is version {version}, this program knows {SCHEMA_VERSION}")
    verdict = db.pragma("quick_check")
    if verdict != "ok":
        raise ValueError(f"it is damaged: {verdict}")
