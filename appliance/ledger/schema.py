"""The ledger's tables, and how an older file becomes one of today's."""

from dataclasses import fields
from typing import Final

import apsw

from appliance.ledger.row import Row

# The n-th script makes version n of version n - 1. A released one is never changed.
_MIGRATIONS: Final = (
    """
    CREATE TABLE attempts (
        id INTEGER PRIMARY KEY,
        at REAL NOT NULL, request TEXT NOT NULL, key TEXT, task TEXT, step TEXT, criticality TEXT,
        route TEXT NOT NULL, reason TEXT NOT NULL, provider TEXT, model TEXT NOT NULL,
        prompt_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL,
        ttft_ms REAL, itl_p50_ms REAL, itl_p99_ms REAL, total_ms REAL NOT NULL, queue_ms REAL,
        cost_usd REAL, outcome TEXT NOT NULL, flags TEXT NOT NULL, attempt TEXT UNIQUE
    ) STRICT;
    CREATE INDEX attempts_at ON attempts (at);
    CREATE INDEX attempts_task ON attempts (task) WHERE task IS NOT NULL;
    """,
)
VERSION: Final = len(_MIGRATIONS)
COLUMNS: Final = tuple(field.name for field in fields(Row))
_NEWER: Final = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS if name != "attempt")
INSERT: Final = (
    f"INSERT INTO attempts ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608 - names of ours
    f" ON CONFLICT (attempt) DO UPDATE SET {_NEWER}"
)
# Of an earlier run that was killed: what it had set aside for them may well have been spent.
INTERRUPT: Final = "UPDATE attempts SET outcome = 'interrupted', flags = 'cost-uncertain' WHERE outcome = 'started'"


class NewerLedger(Exception):
    """The file is a later version's: this one would not understand what it does to it."""


def check(db: apsw.Connection) -> None:
    """Changes nothing. Raises `NewerLedger` and `apsw.Error`."""
    version = db.pragma("user_version")
    if version > VERSION:
        raise NewerLedger(f"the ledger has version {version}, and this program knows {VERSION} at most")


def migrate(db: apsw.Connection) -> None:
    """Raises `NewerLedger` and `apsw.Error`."""
    check(db)
    version = db.pragma("user_version")
    for number in range(version, VERSION):
        with db:
            db.execute(_MIGRATIONS[number])
            db.pragma("user_version", number + 1)
