"""An older cache becomes one of today's with all its entries, whole or not at all; a newer one is left alone."""

from contextlib import closing
from pathlib import Path

import apsw
import pytest

from cache.store import Store, schema
from cache.store.schema import VERSION, NewerStore, migrate
from tests.unit.cache_store_entries import Clock, entry, key


def test_a_new_file_has_this_version(tmp_path: Path) -> None:
    with closing(apsw.Connection(str(tmp_path / "x.db"))) as db:
        migrate(db, first_id=1000)
        migrate(db, first_id=2000)  # a second time means nothing
        assert db.pragma("user_version") == VERSION
        assert db.execute("SELECT seq FROM sqlite_sequence").fetchall() == [(1000,)]


def test_an_older_file_keeps_its_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.db"
    old = Store(path, Clock(), max_bytes=2**24, max_entries=10)
    old.put(entry("a"))
    old.close()
    scripts = (*schema._MIGRATIONS, "ALTER TABLE answers ADD COLUMN more TEXT; CREATE TABLE later (x)")
    monkeypatch.setattr(schema, "_MIGRATIONS", scripts)
    monkeypatch.setattr(schema, "VERSION", len(scripts))
    new = Store(path, Clock(), max_bytes=2**24, max_entries=10)
    found = new.get(key("a"))
    assert found is not None
    assert found.entry == entry("a")
    new.close()
    with closing(apsw.Connection(str(path))) as db:
        assert db.pragma("user_version") == VERSION + 1
        assert db.execute("SELECT more FROM answers").fetchall() == [(None,)]


def test_a_step_to_a_version_is_taken_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = (*schema._MIGRATIONS, "CREATE TABLE half (x); INSERT INTO nowhere VALUES (1)")
    monkeypatch.setattr(schema, "_MIGRATIONS", scripts)
    monkeypatch.setattr(schema, "VERSION", len(scripts))
    with closing(apsw.Connection(str(tmp_path / "x.db"))) as db:
        with pytest.raises(apsw.SQLError):
            migrate(db, first_id=0)
        assert db.pragma("user_version") == VERSION
        assert db.execute("SELECT name FROM sqlite_schema WHERE name = 'half'").fetchall() == []


def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    with closing(apsw.Connection(str(tmp_path / "x.db"))) as db:
        db.pragma("user_version", VERSION + 1)
        with pytest.raises(NewerStore, match=f"version {VERSION + 1}"):
            migrate(db, first_id=0)


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_newer_version_s_file_is_not_touched_and_the_store_stays_off(tmp_path: Path, journal: str) -> None:
    path = tmp_path / "x.db"
    with closing(apsw.Connection(str(path))) as db:
        db.pragma("journal_mode", journal)
        db.execute(f"CREATE TABLE answers (new TEXT); PRAGMA user_version = {VERSION + 1}")
    before = path.read_bytes()
    store = Store(path, Clock(), max_bytes=2**24, max_entries=10)
    assert store.get(key("a")) is None
    store.put(entry("a"))
    assert store.evict() == store.tidy() == 0
    stats = store.stats()
    assert f"version {VERSION + 1}" in (stats.problem or "")
    assert (stats.entries, stats.quarantines) == (0, 0)
    store.close()
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["x.db"]
