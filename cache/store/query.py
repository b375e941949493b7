"""Asking SQLite: all rows of an answer at once, as a cursor that is left open would keep an old state of the file."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import apsw

Value: TypeAlias = str | bytes | float | None  # int is a float to a type checker


def query(db: apsw.Connection, statement: str, values: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
    """Raises `apsw.Error`, and `UnicodeError` or `OverflowError` for a value that SQLite can't hold."""
    return db.execute(statement, tuple(values)).fetchall()
