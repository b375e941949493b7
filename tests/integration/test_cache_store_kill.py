"""A daemon that is killed while it writes leaves a whole file: every entry is one that was put, in every table."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest
import sqlite_vec  # type: ignore[import-untyped]

from cache.store import Entry, Store, index
from tests.unit.cache_store_entries import EMBEDDING, FINGERPRINT, NOW, key, random_vectors, semantic

KILLS = int(os.environ.get("APPLIANCE_TEST_CACHE_KILLS", "20"))
SEED = int(os.environ.get("APPLIANCE_TEST_SEED", "20"))
KEYS = 300
VECTORS = random_vectors(KEYS, seed=12)
LONGEST_LIFE_S = 0.3  # of a writer, after its first entry
ROUND = 150  # entries until most are evicted


def version(number: int, count: int) -> Entry:
    """Of a key: what it answers tells which one it is, over and over."""
    text, namespace = f"{number}:{count}", "short" if number % 5 else "long"
    answer = text.encode() * 1500
    return semantic(str(number), VECTORS[number], namespace=namespace, text=text, answer=answer, prompt_tokens=count)


def open_store(path: Path) -> Store:
    """So small that it evicts all the time."""
    return Store(path, lambda: NOW, max_bytes=3 * 2**20, max_entries=KEYS // 2)


def write_for_ever(path: Path, seed: int) -> None:
    """The life of a daemon. It says when it has begun."""
    # Small, so that coarse tables are often built anew.
    index.CHUNK_ROWS = 32  # type: ignore[misc]
    store, source = open_store(path), random.Random(seed)
    for count in range(10**9):
        number = source.randrange(KEYS)
        store.put(version(number, count))
        if count == 0:
            print("begun", flush=True)
        found = store.get(key(str(source.randrange(KEYS))))
        if found is not None:
            store.touch([found.id])
            if count % 7 == 0:
                store.evict(id=found.id)
        store.add("tenant", "chat", {"written": 1})
        if count % ROUND == ROUND - 1:
            store.evict(namespace="short")
            store.tidy()


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "cache.db"
    for file in tmp_path.iterdir():
        assert "broken" not in file.name


def killed_while_it_writes(path: Path, seed: int, life_s: float) -> None:
    code = f"import pathlib; from {__name__} import write_for_ever; write_for_ever(pathlib.Path({str(path)!r}), {seed})"
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root), *filter(None, sys.path)])}
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "begun\n"
            time.sleep(life_s)
            assert writer.poll() is None
        finally:
            writer.kill()


def check_tables(path: Path) -> None:
    """SQLite finds nothing wrong, and the tables agree with each other."""
    with closing(apsw.Connection(str(path))) as db:
        db.enable_load_extension(True)  # noqa: FBT003 - apsw's signature
        db.load_extension(sqlite_vec.loadable_path())
        assert db.pragma("integrity_check") == "ok"
        ids = db.execute("SELECT id FROM answers ORDER BY id").fetchall()
        assert db.execute("SELECT id FROM vectors ORDER BY id").fetchall() == ids
        assert db.execute("SELECT coalesce(sum(entries), 0) FROM namespaces").fetchall() == [(len(ids),)]
        for tag, side in db.execute("SELECT id, side FROM tags").fetchall():
            assert db.execute(f"SELECT rowid FROM coarse_{tag}_{side} ORDER BY rowid").fetchall() == ids


def check_entries(path: Path) -> int:
    """Every entry that is given is one that was put; how many there are."""
    store, count = open_store(path), 0
    for number in range(KEYS):
        found = store.get(key(str(number)))
        if found is not None:
            assert found.entry == version(number, found.entry.prompt_tokens)
            (candidate,) = store.near(FINGERPRINT, EMBEDDING, VECTORS[number], k=1)
            assert (candidate.id, candidate.text) == (found.id, found.entry.text)
            assert candidate.similarity == pytest.approx(1.0)
            count += 1
    stats = store.stats()
    assert (stats.entries, stats.damaged, stats.quarantines, stats.failures) == (count, 0, 0, 0)
    assert store.totals().keys() <= {("tenant", "chat")}
    store.close()
    return count


@pytest.mark.timeout(60 + 3 * KILLS)
def test_a_writer_that_is_killed_at_any_moment_leaves_whole_entries(path: Path) -> None:
    print(f"seed {SEED}")
    source, counts = random.Random(SEED), []
    for kill in range(KILLS):
        killed_while_it_writes(path, seed=SEED + kill, life_s=source.uniform(0.0, LONGEST_LIFE_S))
        check_tables(path)
        counts.append(check_entries(path))
    assert max(counts) > 10
