"""The cache of a running daemon is missing, locked or broken, at its start or later: no request sees anything of it.

What the store does with such files is in `tests/unit/test_cache_store_faults.py`; this is the view from outside.
"""

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import apsw
import pytest

from tests.integration.cache_fixture import (
    CACHED,
    KNOWN,
    SLOW_S,
    answer,
    ask,
    ask_twice,
    lines,
    said,
    status,
    wait_cached,
    wait_said,
)
from tests.integration.conftest import Launch
from tests.integration.daemon_fixture import Daemon, wait_until

SEED = int(os.environ.get("APPLIANCE_TEST_SEED", "20"))


@pytest.fixture(scope="module")
def filled(model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A cache.db with the answers to the known questions."""
    state_dir = tmp_path_factory.mktemp("filled")
    daemon = Daemon(model_path, state_dir, tmp_path_factory.mktemp("home"), CACHED)
    try:
        daemon.wait_ready()
        for number in KNOWN:
            assert ask(daemon, number) == "local"
    finally:
        daemon.close()
    assert not (state_dir / "cache.db-wal").exists()
    return (state_dir / "cache.db").read_bytes()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of the cache of the daemons that `launch` starts."""
    (tmp_path / "state").mkdir()
    return tmp_path / "state" / "cache.db"


def half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def garbage(content: bytes) -> bytes:
    return random.Random(SEED).randbytes(len(content))


def flipped(bits: int, content: bytes) -> bytes:
    """Some bits beyond the header, where the version stands."""
    source, damaged = random.Random(SEED + bits), bytearray(content)
    for _ in range(bits if len(content) > 100 else 0):
        damaged[source.randrange(100, len(damaged))] ^= 1 << source.randrange(8)
    return bytes(damaged)


# Broken when it starts


@pytest.mark.parametrize("damage", [half, garbage])
def test_a_broken_file_is_moved_aside_and_a_new_one_begins(
    launch: Launch, path: Path, filled: bytes, damage: Callable[[bytes], bytes]
) -> None:
    path.write_bytes(damage(filled))
    daemon = launch(CACHED).wait_ready()
    for number in KNOWN:
        ask(daemon, number)
    assert status(daemon)["quarantines"] == 1
    (told,) = wait_said(daemon, "moved to cache.db.broken-")
    (aside,) = path.parent.glob("cache.db.broken-*")
    assert told.endswith(aside.name)
    assert aside.read_bytes() == damage(filled)
    wait_cached(daemon)


@pytest.mark.parametrize("bits", [500, 5000])
def test_flipped_bits_are_in_no_answer(launch: Launch, path: Path, filled: bytes, bits: int) -> None:
    print(f"seed {SEED}")
    path.write_bytes(flipped(bits, filled))
    daemon = launch(CACHED).wait_ready()
    for number in KNOWN:
        ask(daemon, number)
    wait_cached(daemon)
    found = status(daemon)
    assert found["quarantines"] + found["damaged"] > 0 or bits < 5000
    assert len(said(daemon)) == found["quarantines"]


def test_an_answer_with_a_flipped_bit_is_not_given(launch: Launch, path: Path, filled: bytes) -> None:
    for number in KNOWN:
        whole = answer(number).encode()
        assert whole in filled
        filled = filled.replace(whole, b"i" + whole[1:])  # for an I
    path.write_bytes(filled)
    daemon = launch(CACHED).wait_ready()
    for number in KNOWN:
        assert ask(daemon, number) == "local"
    wait_cached(daemon)
    found = status(daemon)
    assert (found["damaged"], found["quarantines"]) == (len(KNOWN), 0)


@pytest.mark.parametrize("kind", ["folder", "newer"])
def test_what_is_no_cache_of_ours_is_left_alone(launch: Launch, path: Path, filled: bytes, kind: str) -> None:
    if kind == "folder":
        path.mkdir()
    else:
        path.write_bytes(filled)
        with closing(apsw.Connection(str(path))) as db:
            db.pragma("user_version", 99)
    before = path.stat()
    daemon = launch(CACHED).wait_ready()
    for number in KNOWN:
        assert ask(daemon, number) == "local"
    words = {"folder": "not a file", "newer": "version 99"}[kind]
    found = status(daemon)
    assert words in found["problem"]
    assert (found["failures"] > 0, found["quarantines"]) == (True, 0)
    told = wait_said(daemon, words)
    assert len(told) <= 2  # it can be neither read nor written
    after = path.stat()
    assert (after.st_ino, after.st_size, after.st_mtime) == (before.st_ino, before.st_size, before.st_mtime)
    path.rename(path.with_name("elsewhere"))
    wait_cached(daemon)
    assert said(daemon) == told


# While it runs


@pytest.fixture(scope="module")
def long_running(model_path: Path, filled: bytes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    state_dir = tmp_path_factory.mktemp("state")
    (state_dir / "cache.db").write_bytes(filled)
    daemon = Daemon(model_path, state_dir, tmp_path_factory.mktemp("home"), CACHED)
    try:
        yield daemon.wait_ready()
    finally:
        daemon.close()


@pytest.fixture
def running(long_running: Daemon) -> Daemon:
    """Its cache is a sound file, and works."""
    (long_running.state_dir / "cache.db").unlink(missing_ok=True)
    wait_cached(long_running)
    return long_running


LOCK = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
for statement in sys.argv[2:]:
    db.execute(statement)
print("locked", flush=True)
sys.stdin.read()
db.execute("COMMIT")
"""


@contextmanager
def locked(path: Path, *statements: str) -> Iterator[None]:
    """By another process, in a transaction with these statements."""
    command = [sys.executable, "-c", LOCK, str(path), *statements]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        yield


@pytest.mark.parametrize("bits", [50, 500, 5000])
def test_bits_that_flip_while_it_runs_are_in_no_answer(running: Daemon, bits: int) -> None:
    print(f"seed {SEED}")
    since, before = lines(running), status(running)
    # After the commit of another, SQLite reads its pages anew.
    with locked(running.state_dir / "cache.db", "BEGIN IMMEDIATE", "UPDATE sqlite_sequence SET seq = seq + 1"):
        for name in ("cache.db", "cache.db-wal"):
            with (running.state_dir / name).open("r+b") as file:
                damaged = flipped(bits, file.read())
                file.seek(0)
                file.write(damaged)
    for number in KNOWN:
        ask(running, number)
    wait_cached(running)
    found = status(running)
    noticed = sum(found[name] - before[name] for name in ("quarantines", "damaged", "failures"))
    assert noticed > 0 or bits < 5000
    assert len(said(running, since)) <= noticed


def test_a_file_that_is_deleted_while_it_runs_is_begun_anew(running: Daemon) -> None:
    since, quarantines = lines(running), status(running)["quarantines"]
    for names in (["cache.db"], ["cache.db", "cache.db-wal", "cache.db-shm"]):
        for name in names:
            (running.state_dir / name).unlink()
        assert [ask(running, number) for number in (0, 0, 1, 1)] == ["local", "cache-exact"] * 2
        assert (running.state_dir / "cache.db").exists()
    assert status(running)["quarantines"] == quarantines
    assert said(running, since) == []


# Locks


def test_while_another_process_writes_what_is_known_is_given_still(running: Daemon) -> None:
    since, before = lines(running), status(running)
    with locked(running.state_dir / "cache.db", "BEGIN IMMEDIATE"):
        for number in range(3):
            assert ask_twice(running) == "local"
            assert ask(running, number) == "cache-exact"
        assert "locked" in status(running)["problem"]
        assert status(running)["failures"] > before["failures"]
        told = wait_said(running, "locked", since)
    wait_cached(running)
    assert status(running)["quarantines"] == before["quarantines"]
    assert said(running, since) == told


def test_what_could_not_be_stored_does_not_count_as_stored(running: Daemon) -> None:
    before = status(running)
    with locked(running.state_dir / "cache.db", "BEGIN IMMEDIATE"):
        assert ask_twice(running) == "local"
        assert status(running)["stored"] == before["stored"]


def test_a_file_that_another_process_has_to_itself_is_waited_for(launch: Launch, path: Path, filled: bytes) -> None:
    path.write_bytes(filled)
    with locked(path, "PRAGMA locking_mode = exclusive", "BEGIN EXCLUSIVE"):
        daemon = launch(CACHED).wait_ready()
        for number in KNOWN:
            assert ask(daemon, number) == "local"
        assert "locked" in status(daemon)["problem"]
        told = wait_said(daemon, "locked")
        assert len(told) <= 2  # of reading, and of writing
    wait_until(lambda: ask(daemon, KNOWN[0]) == "cache-exact", "the file is read", SLOW_S)
    assert {ask(daemon, number) for number in KNOWN} == {"cache-exact"}
    wait_cached(daemon)
    assert status(daemon)["quarantines"] == 0
    assert said(daemon) == told
