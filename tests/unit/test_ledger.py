"""Rows reach the file or wait for it; a file that is broken, newer or locked is never a request's trouble."""

import logging
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any

import apsw
import pytest

from appliance.ledger import Ledger, Row
from appliance.ledger import ledger as ledger_module
from appliance.ledger.schema import COLUMNS, VERSION

LIMIT_S = 30.0  # of a wait for the ledger's thread; it takes milliseconds
ROW = Row(
    at=1000.0,
    request="req_1",
    key="key_1",
    task="t",
    step="chat",
    criticality="normal",
    route="local",
    reason="unsure",
    provider=None,
    model="small",
    prompt_tokens=10,
    cached_tokens=4,
    completion_tokens=5,
    ttft_ms=1.5,
    itl_p50_ms=None,
    itl_p99_ms=None,
    total_ms=20.0,
    queue_ms=0.0,
    cost_usd=None,
    outcome="completed",
    flags="",
)


def row(request: str = "req_1", **more: Any) -> Row:
    return Row(**{field.name: getattr(ROW, field.name) for field in fields(Row)} | {"request": request} | more)


class Heard(logging.Handler):
    """What the ledger's thread has logged, to wait for."""

    def __init__(self) -> None:
        super().__init__()
        self._said: list[str] = []
        self._news = threading.Condition()

    def emit(self, record: logging.LogRecord) -> None:
        with self._news:
            self._said.append(record.getMessage())
            self._news.notify_all()

    def wait_for(self, words: str) -> None:
        with self._news:
            assert self._news.wait_for(lambda: any(words in said for said in self._said), LIMIT_S), self._said


@pytest.fixture
def heard() -> Iterator[Heard]:
    handler, logger = Heard(), logging.getLogger("appliance.ledger")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(ledger_module, "LONGEST_PAUSE_S", 0.05)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "ledger.db"


@pytest.fixture
def make(path: Path) -> Iterator[Callable[[], Ledger]]:
    made: list[Ledger] = []

    def ledger() -> Ledger:
        made.append(Ledger(path, clock=lambda: 1234.5))
        return made[-1]

    yield ledger
    for one in made:
        one.close()


def query(path: Path, question: str = "SELECT request FROM attempts ORDER BY id") -> list[Any]:
    with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as db:
        return [found if len(found) > 1 else found[0] for found in db.execute(question)]


def sqlite_file(path: Path, *statements: str) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(apsw.Connection(str(path))) as db:
        for statement in statements:
            db.execute(statement)
    return path.read_bytes()


# Rows


def test_a_row_is_in_the_file_as_it_was_given(path: Path, make: Callable[[], Ledger]) -> None:
    rows = [
        row(),
        row("req_2", key=None, task="ü🙂'; DROP TABLE attempts; --", cost_usd=0.125, flags="a,b", ttft_ms=None),
    ]
    ledger = make()
    for one in rows:
        ledger.add(one)
    ledger.close()
    assert query(path, f"SELECT {', '.join(COLUMNS)} FROM attempts ORDER BY id") == [astuple(one) for one in rows]
    status = ledger.status()
    assert (status.written, status.waiting, status.dropped, status.problem) == (2, 0, 0, None)


def test_rows_keep_their_order_over_many_batches(
    path: Path, make: Callable[[], Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "BATCH_ROWS", 7)
    ledger, names = make(), [f"req_{i}" for i in range(100)]
    for name in names:
        ledger.add(row(name))
    ledger.close()
    assert query(path) == names


def test_the_file_goes_on_where_an_earlier_run_ended(path: Path, make: Callable[[], Ledger]) -> None:
    for name in ("one", "two"):
        ledger = make()
        ledger.add(row(name))
        ledger.close()
    assert query(path) == ["one", "two"]


def test_nothing_is_opened_before_there_is_something_to_write(path: Path, make: Callable[[], Ledger]) -> None:
    ledger = make()
    assert ledger.spending(0.0) == ()
    assert ledger.status().problem is None
    ledger.close()
    assert not path.parent.exists()


def test_only_the_owner_can_read_what_was_asked(path: Path, make: Callable[[], Ledger], heard: Heard) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x" * 5000)  # so that the ledger says when it has written
    ledger = make()
    ledger.add(row())
    heard.wait_for("written again")
    modes = {
        file.name: stat.S_IMODE(file.stat().st_mode)
        for file in path.parent.glob("ledger.db*")
        if "broken" not in file.name
    }
    assert modes.keys() >= {"ledger.db", "ledger.db-wal"}
    assert set(modes.values()) == {0o600}


def test_a_row_that_cannot_be_written_does_not_hold_up_the_others(path: Path, make: Callable[[], Ledger]) -> None:
    ledger = make()
    ledger.add(row("before"))
    ledger.add(row("odd", total_ms=float("nan")))  # SQLite has no such number
    ledger.add(row("after"))
    ledger.close()
    assert query(path, "SELECT request FROM attempts WHERE request != 'odd' ORDER BY id") == ["before", "after"]
    assert ledger.status().waiting == 0


@pytest.mark.filterwarnings("default::pytest.PytestUnhandledThreadExceptionWarning")  # the rows are what matters
def test_a_text_that_is_no_text_does_not_end_the_ledger(path: Path, make: Callable[[], Ledger]) -> None:
    ledger = make()
    ledger.add(row("before"))
    ledger.add(row("odd", task="\ud83d"))
    ledger.add(row("after"))
    ledger.close()
    assert query(path, "SELECT request FROM attempts WHERE request != 'odd' ORDER BY id") == ["before", "after"]


# Files that cannot be written


def test_rows_wait_for_a_file_that_cannot_be_written_and_are_written_when_it_can(
    path: Path, make: Callable[[], Ledger], heard: Heard
) -> None:
    path.mkdir(parents=True)  # a folder stands where the file should
    ledger = make()
    for name in ("one", "two"):
        ledger.add(row(name))
    heard.wait_for("cannot be written")
    status = ledger.status()
    assert (status.written, status.waiting) == (0, 2)
    assert "ledger.db" in (status.problem or "")
    ledger.add(row("three"))
    path.rmdir()
    heard.wait_for("written again")
    ledger.close()
    assert query(path) == ["one", "two", "three"]
    assert ledger.status().problem is None


def test_a_folder_that_cannot_be_made_is_waited_for_too(path: Path, make: Callable[[], Ledger], heard: Heard) -> None:
    path.parent.write_bytes(b"")
    ledger = make()
    ledger.add(row())
    heard.wait_for("cannot be written")
    path.parent.unlink()
    heard.wait_for("written again")
    assert query(path) == ["req_1"]


def test_a_file_that_another_holds_is_waited_for(
    path: Path, make: Callable[[], Ledger], heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "BUSY_TIMEOUT_MS", 1)
    ledger = make()
    ledger.add(row("one"))
    ledger.close()
    other = apsw.Connection(str(path))
    other.execute("BEGIN EXCLUSIVE")
    again = make()
    again.add(row("two"))
    heard.wait_for("cannot be written")
    other.execute("ROLLBACK")
    other.close()
    heard.wait_for("written again")
    again.close()
    assert query(path) == ["one", "two"]


def test_what_waits_is_bounded_and_the_oldest_go(
    path: Path, make: Callable[[], Ledger], heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "MAX_WAITING_ROWS", 5)
    path.mkdir(parents=True)
    ledger = make()
    ledger.add(row("first"))
    heard.wait_for("cannot be written")
    for i in range(10):
        ledger.add(row(f"req_{i}"))
    path.rmdir()
    heard.wait_for("written again")
    ledger.close()
    written, status = query(path), ledger.status()
    assert written[-5:] == [f"req_{i}" for i in range(5, 10)]
    assert status.written + status.dropped == 11


def test_closing_gives_up_on_a_file_that_stays_as_it_is(path: Path, make: Callable[[], Ledger], heard: Heard) -> None:
    path.mkdir(parents=True)
    ledger = make()
    ledger.add(row())
    heard.wait_for("cannot be written")
    ledger.close()
    assert ledger.status().waiting >= 1
    assert ledger.status().written == 0


def test_closing_tries_once_more_when_it_comes_in_a_pause(
    path: Path, make: Callable[[], Ledger], heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "FIRST_PAUSE_S", 3600.0)
    path.mkdir(parents=True)
    ledger = make()
    ledger.add(row())
    heard.wait_for("cannot be written")
    path.rmdir()
    ledger.close()
    assert query(path) == ["req_1"]


def test_closing_twice_or_unused_is_fine(make: Callable[[], Ledger]) -> None:
    unused, used = make(), make()
    used.add(row())
    for ledger in (unused, used, used, unused):
        ledger.close()


# Files that are something else


@pytest.mark.parametrize("content", [b"x" * 100, b"x" * 5000, b"SQLite format 3\0" + b"x" * 5000], ids=len)
def test_a_file_that_is_no_database_is_moved_aside_and_not_deleted(
    path: Path, make: Callable[[], Ledger], heard: Heard, content: bytes
) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    ledger = make()
    assert ledger.spending(0.0) == ()
    ledger.add(row())
    heard.wait_for("written again")
    ledger.close()
    assert query(path) == ["req_1"]
    assert path.with_name("ledger.db.broken-1234").read_bytes() == content


def test_a_database_that_breaks_under_way_is_moved_aside_with_its_journal(
    path: Path, make: Callable[[], Ledger], heard: Heard
) -> None:
    sqlite_file(path, "CREATE TABLE x (y)", "INSERT INTO x VALUES (1)")
    data = path.read_bytes()
    path.write_bytes(data[:100] + b"\xff" * (len(data) - 100))
    path.with_name("ledger.db-wal").write_bytes(b"left over")
    ledger = make()
    ledger.add(row())
    heard.wait_for("written again")
    ledger.close()
    assert query(path) == ["req_1"]
    assert path.with_name("ledger.db.broken-1234").read_bytes()[100:110] == b"\xff" * 10


def test_an_empty_file_becomes_a_ledger(path: Path, make: Callable[[], Ledger]) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(b"")
    ledger = make()
    ledger.add(row())
    ledger.close()
    assert query(path) == ["req_1"]
    assert not list(path.parent.glob("*broken*"))


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_newer_version_s_file_is_not_touched(
    path: Path, make: Callable[[], Ledger], heard: Heard, journal: str
) -> None:
    before = sqlite_file(
        path,
        f"PRAGMA journal_mode = {journal}",
        "CREATE TABLE attempts (new TEXT)",
        "INSERT INTO attempts VALUES ('x')",
        f"PRAGMA user_version = {VERSION + 1}",
    )
    ledger = make()
    assert ledger.spending(0.0) == ()
    ledger.add(row())
    heard.wait_for("cannot be written")
    ledger.close()
    assert f"version {VERSION + 1}" in (ledger.status().problem or "")
    assert ledger.status().written == 0
    assert path.read_bytes() == before
    assert not list(path.parent.glob("*broken*"))


# Attempts that were begun


def test_what_was_begun_and_ended_is_one_row(path: Path, make: Callable[[], Ledger]) -> None:
    ledger = make()
    ledger.add(row(attempt="a", outcome="started", cost_usd=1.0))
    ledger.add(row(attempt="a", outcome="completed", cost_usd=0.25))
    ledger.close()
    assert query(path, "SELECT outcome FROM attempts") == ["completed"]
    assert [spending.usd for spending in make().spending(0)] == [0.25]


def test_what_a_killed_daemon_had_begun_counts_as_spent(path: Path, make: Callable[[], Ledger]) -> None:
    killed = make()
    killed.add(row(attempt="a", outcome="started", cost_usd=1.0))
    killed.close()
    after = make()
    assert [spending.usd for spending in after.spending(0)] == [1.0]
    after.add(row(attempt="b", outcome="started"))
    after.close()
    assert query(path, "SELECT outcome FROM attempts ORDER BY id") == ["interrupted", "started"]
    assert query(path, "SELECT flags FROM attempts WHERE attempt = 'a'") == ["cost-uncertain"]


def test_a_file_that_was_deleted_under_it_is_made_anew(path: Path, make: Callable[[], Ledger]) -> None:
    ledger = make()
    ledger.add(row("one"))
    while ledger.status().written < 1:
        time.sleep(0.005)
    for file in path.parent.glob("ledger.db*"):
        file.unlink()
    ledger.add(row("two"))
    ledger.close()
    assert query(path) == ["two"]
