"""The file, and its connections: one that writes, and a few that read meanwhile.

Whatever is wrong with the file ends here, as `Unavailable`: noted, logged, and put right where that can be done. A
file that is broken is moved aside and a new one begins; one of a newer version is left alone; one that was deleted or
replaced is let go of.
"""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import apsw
import sqlite_vec  # type: ignore[import-untyped]

from cache.store.schema import NewerStore, check, migrate

PAGE_BYTES: Final = 16_384
CACHE_KIB: Final = 4_096  # of each connection; more does not make a search faster, which reads past it
BUSY_TIMEOUT_MS: Final = 250  # another process has the file
REST_S: Final = 1.0  # after that, or for a newer file, so that not every request waits for it
IDLE_READERS: Final = 8
LOG_BYTES: Final = 8 * 2**20  # of the write-ahead log, what stays on disk between writes
BROKEN_FILES: Final = 3  # that are kept

# SQLError: our statements are right, so the tables are not. sqlite-vec has no other word for what is broken in its own.
_BROKEN: Final = (apsw.NotADBError, apsw.CorruptError, apsw.SQLError, UnicodeDecodeError)
# The last two: a text or number of the caller's that SQLite can't hold.
_FAILURES: Final = (apsw.Error, OSError, NewerStore, UnicodeError, OverflowError)

Identity: TypeAlias = tuple[int, int]  # device and inode

log = logging.getLogger(__name__)


class Unavailable(Exception):
    """The file can't do this now. What there is to say about it has been noted."""


@dataclass(frozen=True, slots=True)
class _Opened:
    db: apsw.Connection
    file: Identity


@dataclass(slots=True)
class _Side:
    """How reading, or writing, goes."""

    verb: str
    problem: str | None = None
    rests_until_s: float = 0.0  # of the monotonic clock


class StoreFile:
    """For any number of threads."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        """`clock` gives Unix time. Opens nothing."""
        self.path = path
        self._log_path = path.with_name(path.name + "-wal")
        self.quarantines = 0
        self.failures = 0
        self._clock = clock
        self._lock = threading.RLock()  # of the writer and of everything below
        self._writer: _Opened | None = None
        self._log: Identity | None = None  # of the writer's write-ahead log
        self._usable: Identity | None = None  # a file of this version
        self._idle: deque[_Opened] = deque()  # readers; no lock needed
        self._read, self._written = _Side("read"), _Side("written")
        self._closed = False

    @property
    def problem(self) -> str | None:
        return self._written.problem or self._read.problem

    def exists(self) -> bool:
        return not self._closed and _identity(self.path) is not None

    @contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """A connection for this thread alone, to read from. Raises `Unavailable`, also when there is no file yet."""
        here = _identity(self.path)
        if self._closed or here is None:
            raise Unavailable
        with self._noting(self._read, here):
            reader = self._reader(here)
            try:
                yield reader.db
            except BaseException:
                reader.db.close()
                raise
            self._give_back(reader)

    @contextmanager
    def writing(self) -> Iterator[apsw.Connection]:
        """The connection that writes, in a transaction, for one thread at a time. Begins the file when there is none.

        Raises `Unavailable`.
        """
        with self._lock:
            if self._closed:
                raise Unavailable
            with self._noting(self._written, None), _transaction(self._writing_connection()) as db:
                yield db

    def close(self) -> None:
        """What is being read in other threads is read to its end."""
        with self._lock:
            self._closed = True
            with suppress(IndexError):  # other threads take from it, too
                while True:
                    self._idle.pop().db.close()
            self._close_writer()  # the last one: it takes the log into the file

    def checkpoint(self) -> None:
        """Takes the write-ahead log into the file, and gives its space back. Raises `Unavailable`."""
        with self._lock, self._noting(self._written, None):
            if self._writer is not None:
                with suppress(apsw.BusyError):  # something is being read from the log
                    self._writer.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def bytes_on_disk(self) -> int:
        """Of the database and its write-ahead log."""
        total = 0
        for path in (self.path, self._log_path):
            with suppress(OSError):
                total += path.stat().st_size
        return total

    # Opening

    def _reader(self, here: Identity) -> _Opened:
        while self._idle:
            with suppress(IndexError):  # another thread was quicker
                reader = self._idle.pop()
                if reader.file == here:
                    return reader
                reader.db.close()
        if self._usable != here:
            with self._lock:
                self._writing_connection()  # it makes a usable file of an older version's or a broken one
        return _Opened(self._open(reads=True), here)

    def _give_back(self, reader: _Opened) -> None:
        if self._closed or len(self._idle) >= IDLE_READERS:
            reader.db.close()
        else:
            self._idle.append(reader)

    def _writing_connection(self) -> apsw.Connection:
        """Under the lock."""
        here = _identity(self.path)
        if self._writer is not None and self._writer.file != here:
            self._close_writer()
            if _identity(self._log_path) == self._log:
                self._unlink_logs()  # they would be taken for the new file's
        if self._writer is None:
            try:
                self._writer = self._begin(here)
            except _BROKEN as error:
                reason = self._move_aside(here, error)
                if _identity(self.path) == here:
                    raise OSError(reason) from error
                log.error("the cache was broken", extra={"fields": {"reason": reason}})  # noqa: TRY400
                self._writer = self._begin(_identity(self.path))
            self._log, self._usable = _identity(self._log_path), self._writer.file
        return self._writer.db

    def _begin(self, here: Identity | None) -> _Opened:
        """Opens the file for writing, and makes it when there is none."""
        if here is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))  # its log gets the same mode
            self._unlink_logs()  # of a file that was deleted
        elif not self.path.is_file():
            raise OSError("it is not a file")
        db = self._open(reads=False)
        try:
            check(db)
            self.path.chmod(0o600)
            db.pragma("page_size", PAGE_BYTES)  # this and the next count for an empty file only
            db.pragma("auto_vacuum", 2)  # incremental
            db.pragma("journal_mode", "wal")
            db.pragma("synchronous", "normal")  # a crash of the machine may lose the last entries, never the file
            db.pragma("journal_size_limit", LOG_BYTES)
            db.pragma("temp_store", "memory")
            db.pragma("cache_spill", 0)  # so that a full disk shows at the commit, and not within sqlite-vec
            migrate(db, first_id=max(0, int(self._clock() * 1e6)))
            status = self.path.stat()  # of a file that was just made, too
        except BaseException:
            db.close()
            raise
        return _Opened(db, (status.st_dev, status.st_ino))

    def _open(self, *, reads: bool) -> apsw.Connection:
        db = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            db.set_busy_timeout(BUSY_TIMEOUT_MS)
            db.enable_load_extension(True)  # noqa: FBT003 - apsw's signature
            db.load_extension(sqlite_vec.loadable_path())
            db.enable_load_extension(False)  # noqa: FBT003
            db.pragma("cache_size", -CACHE_KIB)
            if reads:
                db.pragma("query_only", 1)
                db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # the writer sees to the log
        except BaseException:
            db.close()
            raise
        return db

    # What goes wrong

    @contextmanager
    def _noting(self, side: _Side, file: Identity | None) -> Iterator[None]:
        """`file` is what is read from; None: what the writer has open."""
        if time.monotonic() < side.rests_until_s:
            raise Unavailable
        try:
            yield
        except _FAILURES as error:
            self._failed(side, file, error)
            raise Unavailable from error
        side.problem = None

    def _failed(self, side: _Side, file: Identity | None, error: Exception) -> None:
        with self._lock:
            self.failures += 1
            if isinstance(error, apsw.BusyError | NewerStore):
                side.rests_until_s = time.monotonic() + REST_S
            if isinstance(error, _BROKEN):
                opened = _identity(self.path) if self._writer is None else self._writer.file
                reason = self._move_aside(file or opened, error)
            elif isinstance(error, UnicodeError | OverflowError):
                reason = "a text or a number of the caller's is none that SQLite can hold"
            else:
                reason = f"{self.path.name}: {error}"
            if self._writer is not None and self._writer.db.in_transaction:
                self._close_writer()  # it could not be rolled back
            if reason != side.problem:
                side.problem = reason
                log.error("the cache cannot be %s", side.verb, extra={"fields": {"reason": reason}})

    def _move_aside(self, broken: Identity | None, error: Exception) -> str:
        """Under the lock. Says what was done."""
        if broken is None or _identity(self.path) != broken:
            return f"{self.path.name} was broken ({error}), and is another file now"
        self._close_writer()
        aside = self.path.with_name(f"{self.path.name}.broken-{int(self._clock())}")
        try:
            self.path.rename(aside)
            self._unlink_logs()
        except OSError as refused:
            return f"{self.path.name} is broken ({error}), and cannot be moved aside: {refused}"
        self.quarantines += 1
        with suppress(OSError):
            older = sorted(self.path.parent.glob(f"{self.path.name}.broken-*"), key=lambda file: file.stat().st_mtime)
            for file in older[:-BROKEN_FILES]:
                file.unlink()
        return f"{self.path.name} was broken ({error}); moved to {aside.name}"

    def _unlink_logs(self) -> None:
        for end in ("-wal", "-shm"):
            self.path.with_name(self.path.name + end).unlink(missing_ok=True)

    def _close_writer(self) -> None:
        if self._writer is not None:
            with suppress(apsw.Error):
                self._writer.db.close()
            self._writer = None


def _identity(path: Path) -> Identity | None:
    """Of the file that is at the path now."""
    with suppress(OSError):
        status = path.stat()
        return status.st_dev, status.st_ino
    return None


@contextmanager
def _transaction(db: apsw.Connection) -> Iterator[apsw.Connection]:
    """One that takes the lock for writing at its start: to take it later can fail when another process writes."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield db
        db.execute("COMMIT")
    except BaseException:
        with suppress(apsw.Error):
            db.execute("ROLLBACK")
        raise
