"""Writes rows to SQLite in batches, from a thread of its own.

A full disk or a broken file never stops a request: rows wait in memory, up to a bound, and are written when that is
possible again. A file that is no database is moved aside, not deleted.
"""

import logging
import os
import queue
import threading
from collections import deque
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final

import apsw

from appliance.ledger.row import Row
from appliance.ledger.schema import INSERT, INTERRUPT, NewerLedger, check, migrate

BATCH_ROWS: Final = 500
MAX_WAITING_ROWS: Final = 20_000  # some 10 MB; then the oldest go
FIRST_PAUSE_S: Final = 0.5  # after a failed write, doubled up to the longest
LONGEST_PAUSE_S: Final = 30.0
CLOSING_LIMIT_S: Final = 5.0
BUSY_TIMEOUT_MS: Final = 2000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LedgerStatus:
    written: int  # rows, since the start
    waiting: int
    dropped: int
    problem: str | None


@dataclass(frozen=True, slots=True)
class Spending:
    key: str | None
    at: float  # Unix time, seconds
    usd: float


class Ledger:
    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        """`clock` gives Unix time. Nothing is opened before the first row or question."""
        self.path = path
        self._clock = clock
        self._queue: queue.SimpleQueue[Row | None] = queue.SimpleQueue()
        self._waiting: deque[Row] = deque()
        self._closing = threading.Event()
        self._db: apsw.Connection | None = None
        self._file: tuple[int, int] | None = None  # device and inode of what `_db` has open
        self._written = self._dropped = 0
        self._problem: str | None = None
        self._thread: threading.Thread | None = None

    def add(self, row: Row) -> None:
        """Notes a row; it is in the file a moment later. For one thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_all, daemon=True, name="ledger")
            self._thread.start()
        self._queue.put(row)

    def close(self) -> None:
        """Writes what waits, if that can be done soon."""
        if self._thread is not None:
            self._closing.set()
            self._queue.put(None)
            self._thread.join(CLOSING_LIMIT_S)
            if lost := self.status().waiting:
                log.error("ledger rows are lost", extra={"fields": {"rows": lost, "reason": self._problem}})

    def status(self) -> LedgerStatus:
        waiting = len(self._waiting) + self._queue.qsize()
        return LedgerStatus(self._written, waiting, self._dropped, self._problem)

    def spending(self, since_s: float) -> tuple[Spending, ...]:
        """What attempts since a time have cost, by key and day. Empty when the file cannot say."""
        if not self.path.exists():
            return ()
        question = (
            "SELECT key, max(at), sum(cost_usd) FROM attempts WHERE at >= ? AND cost_usd > 0"
            " GROUP BY key, date(at, 'unixepoch')"
        )
        try:
            with closing(apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READONLY)) as db:
                db.set_busy_timeout(BUSY_TIMEOUT_MS)
                return tuple(Spending(key, at, usd) for key, at, usd in db.execute(question, (since_s,)))
        except apsw.Error as error:
            log.warning("ledger cannot be read", extra={"fields": {"reason": str(error)}})
            return ()

    def _write_all(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            self._take()
            if self._waiting:
                try:
                    self._write()
                except (apsw.Error, OSError, NewerLedger) as error:
                    self._failed(error)
                    if self._closing.is_set():  # this was the last try
                        break
                    self._closing.wait(pause_s)
                    pause_s = min(LONGEST_PAUSE_S, pause_s * 2)
                    continue
                pause_s = FIRST_PAUSE_S
            if self._closing.is_set() and self._queue.empty() and not self._waiting:
                break
        self._close_file()

    def _take(self) -> None:
        """Rows from the queue: waits for one if none is at hand."""
        blocks = not self._waiting and not self._closing.is_set()
        while len(self._waiting) < MAX_WAITING_ROWS + BATCH_ROWS:
            try:
                row = self._queue.get(block=blocks)
            except queue.Empty:
                break
            blocks = False
            if row is not None:
                self._waiting.append(row)
        while len(self._waiting) > MAX_WAITING_ROWS:
            self._waiting.popleft()
            self._dropped += 1

    def _write(self) -> None:
        db = self._open()
        while self._waiting:
            batch = [self._waiting[i] for i in range(min(BATCH_ROWS, len(self._waiting)))]
            written = self._written_of(db, batch)
            for _ in batch:
                self._waiting.popleft()
            self._written += written
            self._dropped += len(batch) - written
        if self._problem is not None:
            self._problem = None
            log.warning("ledger is written again")

    @staticmethod
    def _written_of(db: apsw.Connection, batch: list[Row]) -> int:
        """How many rows of it could be written: one that SQLite cannot hold is left out."""
        try:
            with db:
                db.executemany(INSERT, [astuple(row) for row in batch])
        except (apsw.ConstraintError, ValueError, OverflowError):  # a NaN, half a surrogate pair, a giant number
            written = 0
            for row in batch:
                with suppress(apsw.ConstraintError, ValueError, OverflowError), db:
                    db.execute(INSERT, astuple(row))
                    written += 1
            return written
        return len(batch)

    def _identity(self) -> tuple[int, int] | None:
        """Of the file that is at the path now."""
        with suppress(OSError):
            status = self.path.stat()
            return status.st_dev, status.st_ino
        return None

    def _open(self) -> apsw.Connection:
        if self._db is not None and self._file != self._identity():
            self._close_file()  # it was deleted or replaced, and what is written to it would be gone
        if self._db is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self.path, os.O_CREAT | os.O_WRONLY, 0o600))  # its log gets the same mode
            db = apsw.Connection(str(self.path))
            try:
                db.set_busy_timeout(BUSY_TIMEOUT_MS)
                check(db)
                db.pragma("journal_mode", "wal")
                db.pragma("synchronous", "normal")  # a crash of the machine may lose the last rows, never the file
                migrate(db)
                if self._written == 0:
                    db.execute(INTERRUPT)
            except BaseException:
                db.close()
                raise
            self._db, self._file = db, self._identity()
        return self._db

    def _failed(self, error: Exception) -> None:
        self._close_file()
        if isinstance(error, apsw.NotADBError | apsw.CorruptError):
            aside = self.path.with_name(f"{self.path.name}.broken-{int(self._clock())}")
            with suppress(OSError):
                self.path.rename(aside)
                for end in ("-wal", "-shm"):
                    self.path.with_name(self.path.name + end).unlink(missing_ok=True)
            error = OSError(f"it is broken; moved to {aside.name}")
        why = f"{self.path.name}: {error}"
        if why != self._problem:
            self._problem = why
            log.error("ledger cannot be written; rows wait in memory", extra={"fields": {"reason": why}})

    def _close_file(self) -> None:
        if self._db is not None:
            with suppress(apsw.Error):
                self._db.close()
            self._db = None
