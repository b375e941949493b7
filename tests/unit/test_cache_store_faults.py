"""Whatever has happened to the file: nothing raises, nothing wrong is served, and the store goes on when it can."""

import logging
import os
import random
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import apsw
import numpy as np
import pytest

from cache.store import Entry, Store
from cache.store import file as file_module
from cache.store.file import Unavailable
from cache.store.schema import VERSION
from tests.unit.cache_store_entries import (
    EMBEDDING,
    FINGERPRINT,
    NOW,
    Clock,
    entry,
    key,
    random_vectors,
    semantic,
    vector,
)

MIB = 2**20
SEED = int(os.environ.get("APPLIANCE_TEST_SEED", "20"))
FLIPS = int(os.environ.get("APPLIANCE_TEST_CACHE_FLIPS", "200"))
USER_VERSION = range(60, 64)  # bytes of the file; one that seems newer is left alone
OWN_TEXTS = ("text more", "text works", "text again")  # of what the tests put in between


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_module, "REST_S", 0.0)
    monkeypatch.setattr(file_module, "BUSY_TIMEOUT_MS", 1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "cache.db"


@pytest.fixture
def make(path: Path) -> Iterator[Callable[[], Store]]:
    made: list[Store] = []

    def store() -> Store:
        made.append(Store(path, Clock(), max_bytes=64 * MIB, max_entries=1000))
        return made[-1]

    yield store
    for one in made:
        one.close()


def some_entries() -> list[Entry]:
    """Of both tiers, short and long."""
    vectors = random_vectors(20, seed=2)
    both = [semantic(f"s{i}", one, answer=b"%d" % i * (200 * i + 1), step="chat") for i, one in enumerate(vectors)]
    return both + [entry(f"e{i}", answer=b"%d" % i * (500 * i + 1)) for i in range(10)]


def filled(path: Path) -> list[Entry]:
    """Makes a file with some entries and counters, all in the database itself."""
    store = Store(path, Clock(), max_bytes=64 * MIB, max_entries=1000)
    entries = some_entries()
    for one in entries:
        store.put(one)
    store.add("tenant", "chat", {"audited": 3})
    store.close()
    return entries


def served(store: Store, entries: list[Entry], every: int = 1) -> int:
    """How many of every so many of all entries are served: all as they were put, in every way there is."""
    by_text = {one.text: one for one in entries if one.text}
    count = 0
    for one in entries[::every]:
        found = store.get(one.key)
        if found is not None:
            assert found.entry == one
            count += 1
        if one.vector is None:
            continue
        for candidate in store.near(FINGERPRINT, EMBEDDING, one.vector, k=5):
            original = by_text.get(candidate.text)
            if original is None:
                assert candidate.text in OWN_TEXTS
                continue
            assert original.vector is not None
            assert candidate.similarity == pytest.approx(float(original.vector @ one.vector), abs=1e-5)
            stored = store.entry(candidate.id)
            if stored is not None:
                assert stored.entry == original
                np.testing.assert_array_equal(stored.entry.vector, original.vector)
    return count


def works(store: Store, name: str = "works") -> bool:
    """Whether an entry that is put now is found."""
    put = semantic(name, random_vectors(1, seed=zlib.crc32(name.encode()))[0])
    store.put(put)
    found = store.get(put.key)
    assert put.vector is not None
    return found is not None and [one.text for one in store.near(FINGERPRINT, EMBEDDING, put.vector, k=1)] == [put.text]


def use_all(store: Store) -> None:
    """Every method once: none may raise."""
    found = store.get(key("s1"))
    store.touch([1, 2, 3] if found is None else [found.id])
    store.entry(1)
    store.near(FINGERPRINT, EMBEDDING, vector([1.0]))
    store.put(semantic("more", [1.0]))
    store.add("tenant", "chat", {"audited": 1})
    store.totals()
    store.stats()
    store.evict(namespace="nobody")
    store.evict(id=1)
    store.tidy()


# Files that are something else


@pytest.mark.parametrize("content", [b"x" * 100, b"x" * 50_000, b"SQLite format 3\0" + b"x" * 50_000], ids=len)
def test_a_file_that_is_no_database_is_moved_aside_and_a_new_one_begins_at_once(
    path: Path, make: Callable[[], Store], content: bytes
) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    store = make()
    assert works(store)
    assert store.stats().quarantines == 1
    assert store.stats().problem is None
    assert path.with_name(f"cache.db.broken-{int(NOW)}").read_bytes() == content


def test_a_read_finds_out_that_a_file_is_broken_as_well(path: Path, make: Callable[[], Store]) -> None:
    path.parent.mkdir()
    path.write_bytes(b"x" * 5000)
    store = make()
    assert store.get(key("a")) is None
    assert store.stats().quarantines == 1


def test_an_empty_file_becomes_a_store(path: Path, make: Callable[[], Store]) -> None:
    path.parent.mkdir()
    path.write_bytes(b"")
    store = make()
    assert works(store)
    assert store.stats().quarantines == 0


def test_a_database_without_our_tables_is_moved_aside(path: Path, make: Callable[[], Store]) -> None:
    path.parent.mkdir()
    with closing(apsw.Connection(str(path))) as db:
        db.execute(f"CREATE TABLE x (y); PRAGMA user_version = {VERSION}")
    store = make()
    assert store.get(key("a")) is None
    assert works(store)
    assert store.stats().quarantines == 1


def test_only_the_latest_broken_files_are_kept(path: Path) -> None:
    path.parent.mkdir()
    clock = Clock()
    for i in range(5):
        path.write_bytes(b"%d" % i * 5000)
        os.utime(path, (NOW + i, NOW + i))
        store = Store(path, clock, max_bytes=64 * MIB, max_entries=1000)
        assert works(store)
        store.close()
        path.unlink()
        clock.now += 1.0
    kept = sorted(file.name for file in path.parent.iterdir())
    assert kept == [f"cache.db.broken-{int(NOW) + i}" for i in (2, 3, 4)]


def test_a_broken_file_that_cannot_be_moved_aside_is_said_to_be_once(
    path: Path, make: Callable[[], Store], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError("read-only file system")

    path.parent.mkdir()
    path.write_bytes(b"x" * 5000)
    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING):
        patched.setattr(Path, "rename", refused)
        store = make()
        for _ in range(5):
            store.put(entry("a"))
        assert len(caplog.records) == 1
        assert "read-only file system" in (store.stats().problem or "")
        assert store.stats().quarantines == 0
    assert path.read_bytes() == b"x" * 5000
    assert works(store)
    assert store.stats().quarantines == 1


# Damage


def test_a_bit_that_flips_anywhere_is_never_served(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cache.store.index.CHUNK_ROWS", 64)  # so that fewer bits mean nothing
    entries = filled(path)
    pristine = path.read_bytes()
    print(f"seed {SEED}")
    source, counts = random.Random(SEED), []
    for i in range(FLIPS):
        damaged = bytearray(pristine)
        place = source.randrange(len(damaged))
        damaged[place] ^= 1 << source.randrange(8)
        here = tmp_path / str(i) / "cache.db"
        here.parent.mkdir()
        here.write_bytes(damaged)
        store = Store(here, Clock(), max_bytes=64 * MIB, max_entries=1000)
        counts.append(served(store, entries))
        use_all(store)
        served(store, entries, every=5)
        for _ in range(3):  # one may be dropped with the file
            store.put(entry("after"))
        assert store.get(key("after")) is not None or place in USER_VERSION
        store.close()
        shutil.rmtree(here.parent)
    assert np.mean(counts) > len(entries) * 0.8  # one bit does not cost all


def test_many_flipped_bits_are_survived(path: Path, tmp_path: Path) -> None:
    entries = filled(path)
    pristine = path.read_bytes()
    source = random.Random(SEED)
    for i in range(20):
        damaged = bytearray(pristine)
        for place in source.sample(range(100, len(damaged)), 500):
            damaged[place] ^= 1 << source.randrange(8)
        here = tmp_path / str(i) / "cache.db"
        here.parent.mkdir()
        here.write_bytes(damaged)
        store = Store(here, Clock(), max_bytes=64 * MIB, max_entries=1000)
        served(store, entries)
        for _ in range(3):
            use_all(store)
        assert works(store)
        store.close()


@pytest.mark.parametrize("part", [b"answer a", b"tenant", b"small"])
def test_a_damaged_row_is_deleted_and_counted(path: Path, make: Callable[[], Store], part: bytes) -> None:
    store = make()
    store.put(entry("a"))
    store.close()
    data = path.read_bytes()
    assert data.count(part) >= 1
    path.write_bytes(data.replace(part, part[:-1] + bytes([part[-1] ^ 1])))
    again = make()
    assert again.get(key("a")) is None
    assert again.get(key("a")) is None
    assert again.stats().damaged == 1
    assert again.stats().entries == 0
    assert again.stats().quarantines == 0


def test_a_text_that_is_none_any_more_is_damage(path: Path, make: Callable[[], Store]) -> None:
    store = make()
    store.put(entry("a", text="a text of its own"))
    store.close()
    path.write_bytes(path.read_bytes().replace(b"a text of its own", b"a text of its \xff\xff\xff"))
    again = make()
    assert again.get(key("a")) is None
    assert again.stats().damaged == 1


def test_a_damaged_vector_is_no_candidate_and_its_entry_goes(path: Path, make: Callable[[], Store]) -> None:
    store = make()
    store.put(semantic("a", [1.0, 0.25]))
    store.put(semantic("b", [1.0, 0.5]))
    store.close()
    blob = vector([1.0, 0.25]).tobytes()
    data = path.read_bytes()
    assert data.count(blob) == 1
    path.write_bytes(data.replace(blob, vector([1.0]).tobytes()))  # another good vector, nearer to the question
    again = make()
    assert [found.text for found in again.near(FINGERPRINT, EMBEDDING, vector([1.0]))] == ["text b"]
    assert again.stats().damaged == 1
    assert again.get(key("a")) is None


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_serves_nothing_wrong_and_is_replaced(
    path: Path, make: Callable[[], Store], share: float
) -> None:
    entries = filled(path)
    os.truncate(path, int(path.stat().st_size * share))
    store = make()
    served(store, entries)
    use_all(store)
    served(store, entries)
    assert works(store)
    assert works(store, "again")


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8])
def test_a_file_that_is_truncated_while_it_is_open_is_replaced(
    path: Path, make: Callable[[], Store], share: float
) -> None:
    filled(path)
    store = make()
    entries = some_entries()
    assert served(store, entries) == len(entries)
    os.truncate(path, int(path.stat().st_size * share))
    served(store, entries)
    for _ in range(3):
        use_all(store)
    assert works(store)


def test_a_file_that_is_overwritten_while_it_is_open_is_replaced(path: Path, make: Callable[[], Store]) -> None:
    filled(path)
    store = make()
    entries = some_entries()
    assert served(store, entries) == len(entries)
    with path.open("r+b") as file:
        file.write(b"\xff" * path.stat().st_size)
    served(store, entries)
    for _ in range(3):
        use_all(store)
    assert works(store)


# Files that come and go


def test_a_file_that_was_deleted_under_it_is_made_anew(path: Path, make: Callable[[], Store]) -> None:
    store = make()
    store.put(entry("a"))
    assert store.get(key("a")) is not None
    for file in path.parent.glob("cache.db*"):
        file.unlink()
    assert store.get(key("a")) is None
    assert works(store)
    assert path.exists()
    assert store.get(key("a")) is None
    assert store.stats().problem is None


def test_the_log_of_a_deleted_file_is_not_taken_for_the_new_one_s(path: Path, make: Callable[[], Store]) -> None:
    store = make()
    store.put(entry("a"))
    path.unlink()
    assert works(store)
    assert store.get(key("a")) is None
    assert works(store, "again")
    assert store.stats().quarantines == 0


def test_a_file_that_was_replaced_is_what_counts(path: Path, make: Callable[[], Store], tmp_path: Path) -> None:
    other = Store(tmp_path / "other.db", Clock(), max_bytes=64 * MIB, max_entries=1000)
    other.put(entry("b"))
    other.close()
    store = make()
    store.put(entry("a"))
    assert store.get(key("a")) is not None
    (tmp_path / "other.db").rename(path)
    assert store.get(key("a")) is None
    assert store.get(key("b")) is not None
    assert works(store)
    assert store.stats().quarantines == 0


def test_a_read_that_is_under_way_when_the_file_is_moved_aside_ends_well(path: Path, make: Callable[[], Store]) -> None:
    store = make()
    store.put(entry("a"))
    with store._file.reading() as db:
        assert db.execute("SELECT count(*) FROM answers").fetchall() == [(1,)]
        with store._file._lock:
            store._file._move_aside(file_module._identity(path), apsw.CorruptError())
        assert works(store)
        assert db.execute("SELECT count(*) FROM answers").fetchall() == [(1,)]
    assert works(store, "again")
    assert store.get(key("a")) is None
    store.close()
    reopened = make()
    assert reopened.get(key("again")) is not None


# Files that cannot be used


def test_a_folder_in_the_place_of_the_file_is_left_alone(path: Path, make: Callable[[], Store]) -> None:
    path.mkdir(parents=True)
    mode = path.stat().st_mode
    store = make()
    use_all(store)
    assert "cache.db" in (store.stats().problem or "")
    assert path.stat().st_mode == mode
    path.rmdir()
    assert works(store)
    assert store.stats().problem is None


def test_a_folder_that_cannot_be_made_is_waited_for(path: Path, make: Callable[[], Store]) -> None:
    path.parent.write_bytes(b"")
    store = make()
    use_all(store)
    store.put(entry("a"))
    assert store.stats().problem is not None
    path.parent.unlink()
    assert works(store)


@contextmanager
def as_nobody() -> Iterator[None]:
    """For what root may always do."""
    if os.geteuid():
        yield
    else:
        os.seteuid(65_534)
        try:
            yield
        finally:
            os.seteuid(0)


@pytest.mark.parametrize("with_file", [False, True])
def test_a_folder_that_cannot_be_written_to_is_no_reason_to_fail(*, with_file: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)  # pytest's own folders are closed to nobody
        folder = Path(name) / "state"
        path = folder / "cache.db"
        if with_file:
            filled(path)
            path.chmod(0o444)
        folder.mkdir(exist_ok=True)
        folder.chmod(0o555)
        store = Store(path, Clock(), max_bytes=64 * MIB, max_entries=1000)
        with as_nobody():
            use_all(store)
            assert store.get(key("more")) is None
            assert store.stats().problem is not None
        folder.chmod(0o755)
        assert works(store)
        store.close()


def test_a_file_that_another_process_writes_to_can_still_be_read(path: Path, make: Callable[[], Store]) -> None:
    store = make()
    store.put(entry("a"))
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    use_all(store)
    store.put(entry("b"))
    assert "written" not in (store.stats().problem or "")
    assert "locked" in (store.stats().problem or "")
    assert store.get(key("a")) is not None
    assert store.get(key("b")) is None
    other.execute("ROLLBACK")
    other.close()
    assert works(store)
    assert store.stats().problem is None


def test_a_file_that_another_process_has_to_itself_is_waited_for(path: Path, make: Callable[[], Store]) -> None:
    entries = filled(path)
    other = apsw.Connection(str(path))
    other.pragma("locking_mode", "exclusive")
    other.execute("BEGIN EXCLUSIVE; UPDATE counters SET value = 4; COMMIT")
    store = make()
    assert served(store, entries) == 0
    use_all(store)
    assert "locked" in (store.stats().problem or "")
    assert store.stats().quarantines == 0
    other.close()
    assert served(store, entries) == len(entries)
    assert works(store)


def test_a_busy_file_is_not_waited_for_by_every_request(
    path: Path, make: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_module, "REST_S", 3600.0)
    store = make()
    store.put(entry("a"))
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    for _ in range(5):
        store.put(entry("b"))
    assert store.stats().failures == 1
    assert store.get(key("a")) is not None
    other.close()


def test_without_sqlite_vec_nothing_raises(
    make: Callable[[], Store], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("cache.store.file.sqlite_vec.loadable_path", lambda: str(tmp_path / "nowhere"))
    store = make()
    use_all(store)
    assert "nowhere" in (store.stats().problem or "")
    assert store.stats().quarantines == 0


# A full disk


@pytest.mark.parametrize("more_pages", [0, 1, 2, 5, 20])
def test_what_a_full_file_has_no_room_for_is_dropped_whole(
    path: Path, make: Callable[[], Store], more_pages: int
) -> None:
    store = make()
    store.put(semantic("a", [1.0]))
    with store._file.writing() as db:
        db.pragma("max_page_count", db.pragma("page_count") + more_pages)
    store.put(entry("b", answer=b"x" * MIB))
    stats = store.stats()
    assert "full" in (stats.problem or "")
    assert stats.quarantines == 0
    assert store.get(key("b")) is None
    assert store.get(key("a")) is not None
    with suppress(Unavailable), store._file.writing() as db:
        db.pragma("max_page_count", 10**6)
    assert works(store)
    assert store.stats().problem is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a file system")
def test_a_full_disk_costs_what_is_put_and_nothing_else(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", disk], capture_output=True, check=False)
    if mount.returncode:
        pytest.skip(mount.stderr.decode())
    store = Store(disk / "cache.db", Clock(), max_bytes=64 * MIB, max_entries=1000)
    again = Store(disk / "cache.db", Clock(), max_bytes=64 * MIB, max_entries=1000)
    try:
        vectors = random_vectors(200, seed=6)
        entries = [semantic(str(i), one, answer=b"%d" % i * 5000) for i, one in enumerate(vectors)]
        for one in entries:
            store.put(one)
        assert "full" in (store.stats().problem or "")
        assert 0 < served(store, entries) < len(entries)
        use_all(store)
        assert store.stats().quarantines == 0
        assert served(store, entries) > 0
        store.close()
        served(again, entries)  # nothing may be found: SQLite needs a little space to read what is in the log
        assert again.stats().quarantines == 0
        subprocess.run(["mount", "-o", "remount,size=16m", disk], check=True)
        assert served(again, entries) > 0
        again.evict()
        again.tidy()
        assert again.stats().quarantines == 0
    finally:
        store.close()
        again.close()
        subprocess.run(["umount", disk], check=True)


# What SQLite cannot hold


@pytest.mark.parametrize(
    "odd",
    [
        {"text": "\ud83d"},
        {"namespace": "\ud83d"},
        {"embedding": "\ud83d"},
        {"prompt_tokens": 2**70},
        {"created_at": float("nan")},
    ],
    ids=str,
)
def test_an_entry_that_sqlite_cannot_hold_is_dropped(make: Callable[[], Store], odd: dict[str, object]) -> None:
    store = make()
    store.put(semantic("odd", [1.0], **odd))
    assert store.get(key("odd")) is None
    assert store.stats().failures == 1
    assert works(store)
    assert store.evict(namespace="\ud83d") == 0
    assert store.near(FINGERPRINT, "\ud83d", vector([1.0])) == []
    assert store.entry(2**70) is None
    store.touch([2**70])
    assert store.stats().quarantines == 0


# What is said about it


def test_a_problem_is_logged_once(path: Path, make: Callable[[], Store], caplog: pytest.LogCaptureFixture) -> None:
    path.mkdir(parents=True)
    store = make()
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            store.put(entry("a"))
        assert len(caplog.records) == 1
        path.rmdir()
        store.put(entry("a"))
        assert len(caplog.records) == 1
    assert (store.stats().failures, store.stats().problem) == (5, None)


def test_a_quarantine_is_logged(path: Path, make: Callable[[], Store], caplog: pytest.LogCaptureFixture) -> None:
    path.parent.mkdir()
    path.write_bytes(b"x" * 5000)
    with caplog.at_level(logging.WARNING):
        make().put(entry("a"))
    (record,) = caplog.records
    assert f"cache.db.broken-{int(NOW)}" in record.__dict__["fields"]["reason"]
