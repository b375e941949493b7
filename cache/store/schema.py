"""The store's tables, and how an older file becomes one of today's."""

from typing import Final

import apsw

# The n-th script makes version n of version n - 1. A released one is never changed.
#
# AUTOINCREMENT: an id that `near` gave out must not come to mean another entry.
# Short columns stand first: a row is read up to the last column asked for, and long texts lie on pages of their own.
_MIGRATIONS: Final = (
    """
    CREATE TABLE answers (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        key BLOB NOT NULL UNIQUE, fingerprint BLOB NOT NULL, namespace TEXT NOT NULL, step TEXT,
        embedding TEXT NOT NULL, model TEXT NOT NULL,
        prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL,
        created_at REAL NOT NULL, expires_at REAL NOT NULL,
        hits INTEGER NOT NULL, last_used_at REAL NOT NULL, bytes INTEGER NOT NULL, worth REAL NOT NULL,
        checksum BLOB NOT NULL, text TEXT NOT NULL, answer BLOB NOT NULL
    ) STRICT;
    CREATE INDEX answers_worth ON answers (worth);
    CREATE INDEX answers_fingerprint ON answers (fingerprint) WHERE embedding != '';
    CREATE INDEX answers_expires_at ON answers (expires_at);

    CREATE TABLE vectors (
        id INTEGER PRIMARY KEY, tag INTEGER NOT NULL, checksum BLOB NOT NULL, vector BLOB NOT NULL
    ) STRICT;
    -- The coarse table of a tag is named by the tag's id and `side`; the one of the other side is being built.
    CREATE TABLE tags (
        id INTEGER PRIMARY KEY AUTOINCREMENT, embedding TEXT NOT NULL UNIQUE, dimensions INTEGER NOT NULL,
        side INTEGER NOT NULL, building INTEGER NOT NULL
    ) STRICT;

    CREATE TABLE namespaces (namespace TEXT PRIMARY KEY, entries INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TRIGGER answers_insert AFTER INSERT ON answers BEGIN
        INSERT INTO namespaces VALUES (new.namespace, 1) ON CONFLICT DO UPDATE SET entries = entries + 1;
    END;
    CREATE TRIGGER answers_delete AFTER DELETE ON answers BEGIN
        UPDATE namespaces SET entries = entries - 1 WHERE namespace = old.namespace;
        DELETE FROM namespaces WHERE namespace = old.namespace AND entries <= 0;
    END;

    CREATE TABLE counters (
        namespace TEXT NOT NULL, step TEXT NOT NULL, name TEXT NOT NULL, value INTEGER NOT NULL,
        PRIMARY KEY (namespace, step, name)
    ) STRICT, WITHOUT ROWID;
    """,
)
VERSION: Final = len(_MIGRATIONS)


class NewerStore(Exception):
    """The file is a later version's: this one would not understand what it does to it."""


def check(db: apsw.Connection) -> None:
    """Changes nothing. Raises `NewerStore` and `apsw.Error`."""
    version = db.pragma("user_version")
    if version > VERSION:
        raise NewerStore(f"the cache has version {version}, and this program knows {VERSION} at most")


def migrate(db: apsw.Connection, first_id: int) -> None:
    """Raises `NewerStore` and `apsw.Error`.

    `first_id` is where a new file's ids begin: above those of a file that was there before, so that an id that is
    still in someone's hand finds nothing in the new one.
    """
    check(db)
    version = db.pragma("user_version")
    for number in range(version, VERSION):
        with db:
            db.execute(_MIGRATIONS[number])
            if number == 0:
                db.execute("INSERT INTO sqlite_sequence VALUES ('answers', ?)", (first_id,))
            db.pragma("user_version", number + 1)
