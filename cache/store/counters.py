"""Numbers that outlive the daemon, beside the entries: counts by namespace and step."""

from collections.abc import Mapping

import apsw

from cache.store.query import query


def add(db: apsw.Connection, namespace: str, step: str, counts: Mapping[str, int]) -> None:
    insert = "INSERT INTO counters VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET value = value + excluded.value"
    for name, count in counts.items():
        db.execute(insert, (namespace, step, name, count))


def totals(db: apsw.Connection) -> dict[tuple[str, str], dict[str, int]]:
    """By namespace and step: by name."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    for namespace, step, name, value in query(db, "SELECT * FROM counters"):
        found.setdefault((namespace, step), {})[name] = value
    return found
