"""An older ledger becomes one of today's with all its rows, whole or not at all; a newer one is refused."""

from contextlib import closing
from pathlib import Path

import apsw
import pytest

from appliance.ledger import schema
from appliance.ledger.schema import COLUMNS, INSERT, VERSION, NewerLedger, migrate

OLD = (
    1.0,
    "old",
    None,
    None,
    None,
    None,
    "local",
    "",
    None,
    "m",
    1,
    0,
    1,
    None,
    None,
    None,
    1.0,
    None,
    None,
    "completed",
    "",
    None,
)


def test_a_new_file_has_this_version_and_the_columns_of_a_row(tmp_path: Path) -> None:
    with closing(apsw.Connection(str(tmp_path / "x.db"))) as db:
        migrate(db)
        migrate(db)  # a second time means nothing
        assert db.pragma("user_version") == VERSION
        names = [name for (name,) in db.execute("SELECT name FROM pragma_table_info('attempts')")]
    assert names == ["id", *COLUMNS]


def test_an_older_file_keeps_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(apsw.Connection(str(tmp_path / "x.db"))) as db:
        migrate(db)
        db.execute(INSERT, OLD)
        scripts = (*schema._MIGRATIONS, "ALTER TABLE attempts ADD COLUMN more TEXT; CREATE TABLE tasks (x)")
        monkeypatch.setattr(schema, "_MIGRATIONS", scripts)
        monkeypatch.setattr(schema, "VERSION", len(scripts))
        migrate(db)
        assert list(db.execute("SELECT request, more FROM attempts")) == [("old", None)]
        assert db.pragma("user_version") == VERSION + 1


def test_a_step_to_a_version_is_taken_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = (*schema._MIGRATIONS, "CREATE TABLE half (x); INSERT INTO nowhere VALUES (1)")
    monkeypatch.setattr(schema, "_MIGRATIONS", scripts)
    monkeypatch.setattr(schema, "VERSION", len(scripts))
    with closing(apsw.Connection(str(tmp_path / "x.db"))) as db:
        with pytest.raises(apsw.SQLError):
            migrate(db)
        assert db.pragma("user_version") == VERSION
        assert list(db.execute("SELECT name FROM sqlite_schema WHERE name = 'half'")) == []


def test_a_newer_file_is_refused_by_name(tmp_path: Path) -> None:
    with closing(apsw.Connection(str(tmp_path / "x.db"))) as db:
        db.pragma("user_version", VERSION + 5)
        with pytest.raises(NewerLedger, match=str(VERSION + 5)):
            migrate(db)
