"""The limits hold after every entry; what goes is what is worth least. Space that is dead is given back."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest
import sqlite_vec  # type: ignore[import-untyped]

from cache.store import Store, eviction, index, tidying
from cache.store.worth import HALF_LIFE_S, worth
from tests.unit.cache_store_entries import EMBEDDING, FINGERPRINT, NOW, Clock, entry, key, random_vectors, semantic

MIB = 2**20
PRAGMAS = "pragma_page_count, pragma_freelist_count, pragma_page_size"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache.db"


@pytest.fixture
def make(path: Path, clock: Clock) -> Iterator[Callable[..., Store]]:
    made: list[Store] = []

    def store(max_entries: int = 1000, max_bytes: int = 256 * MIB) -> Store:
        made.append(Store(path, clock, max_bytes=max_bytes, max_entries=max_entries))
        return made[-1]

    yield store
    for one in made:
        one.close()


def kept(store: Store, names: str) -> str:
    return "".join(name for name in names if store.get(key(name)) is not None)


def query(path: Path, question: str) -> list[Any]:
    with closing(apsw.Connection(str(path))) as db:
        db.enable_load_extension(True)  # noqa: FBT003
        db.load_extension(sqlite_vec.loadable_path())
        return db.execute(question).fetchall()


# Limits


def test_there_are_never_more_entries_than_allowed(make: Callable[..., Store]) -> None:
    store = make(max_entries=3)
    for name in "abcdef":
        store.put(entry(name))
        assert store.stats().entries <= 3
        assert store.get(key(name)) is not None
    assert store.stats().evictions == 3


def test_the_file_never_grows_beyond_what_is_allowed(make: Callable[..., Store], path: Path) -> None:
    store = make(max_bytes=2 * MIB)
    sizes = np.random.default_rng(1).integers(1, 60_000, 200)
    for i, size in enumerate(sizes):
        store.put(semantic(str(i), [1.0, i], answer=b"x" * int(size)))
        assert store.get(key(str(i))) is not None
        ((used,),) = query(path, f"SELECT (page_count - freelist_count) * page_size FROM {PRAGMAS}")
        assert used <= 2 * MIB
    assert store.stats().evictions > 100
    store.close()
    assert path.stat().st_size <= 2.5 * MIB


def test_one_entry_does_not_get_the_place_of_all(make: Callable[..., Store]) -> None:
    store = make(max_bytes=2 * MIB)
    store.put(entry("a"))
    store.put(entry("b", answer=b"x" * MIB))
    assert kept(store, "ab") == "a"


def test_a_limit_that_was_lowered_holds_after_the_next_entry(make: Callable[..., Store]) -> None:
    store = make()
    for i in range(3 * eviction.AT_ONCE):
        store.put(entry(str(i)))
    store.close()
    smaller = make(max_entries=5)
    smaller.put(entry("new"))
    assert smaller.stats().entries == 5
    assert smaller.stats().evictions == 3 * eviction.AT_ONCE - 4
    assert smaller.get(key("new")) is not None


# What goes


def test_what_has_expired_goes_first(make: Callable[..., Store], clock: Clock) -> None:
    store = make(max_entries=3)
    store.put(entry("a"))
    store.put(entry("b", expires_at=NOW + 1.0, completion_tokens=10_000))
    store.put(entry("c"))
    clock.now = NOW + 2.0
    store.put(entry("d"))
    assert kept(store, "abcd") == "acd"


def test_what_was_hit_stays(make: Callable[..., Store]) -> None:
    store = make(max_entries=3)
    for name in "abc":
        store.put(entry(name))
    for name in "ac":
        stored = store.get(key(name))
        assert stored is not None
        store.touch([stored.id])
    store.put(entry("d"))
    assert kept(store, "abcd") == "acd"


def test_what_was_used_lately_stays(make: Callable[..., Store], clock: Clock) -> None:
    store = make(max_entries=3)
    for name in "abc":
        store.put(entry(name, expires_at=NOW + 1e9))
        clock.now += 60.0
    store.put(entry("d"))
    assert kept(store, "abcd") == "bcd"


def test_what_took_many_tokens_stays(make: Callable[..., Store]) -> None:
    store = make(max_entries=3)
    for name, tokens in (("a", 100), ("b", 10), ("c", 1000)):
        store.put(entry(name, completion_tokens=tokens))
    store.put(entry("d"))
    assert kept(store, "abcd") == "acd"


def test_what_takes_much_space_goes(make: Callable[..., Store]) -> None:
    store = make(max_entries=3)
    for name, size in (("a", 100), ("b", 50_000), ("c", 100)):
        store.put(entry(name, answer=b"x" * size))
    store.put(entry("d"))
    assert kept(store, "abcd") == "acd"


def test_a_popular_entry_that_nobody_asks_for_any_more_goes(make: Callable[..., Store], clock: Clock) -> None:
    store = make(max_entries=2)
    store.put(entry("a", expires_at=NOW + 1e9))
    stored = store.get(key("a"))
    assert stored is not None
    store.touch([stored.id] * 7)  # worth three half-lives
    clock.now = NOW + 2.9 * HALF_LIFE_S
    for name in "bc":
        store.put(entry(name, expires_at=NOW + 1e9))
    assert kept(store, "abc") == "ac"
    clock.now = NOW + 6.2 * HALF_LIFE_S
    for name in "de":
        store.put(entry(name, expires_at=NOW + 1e9))
    assert kept(store, "ade") == "de"


def test_worth_is_told_for_any_number() -> None:
    assert worth(0, 100, 1000, NOW) > worth(0, 100, 2000, NOW)
    assert worth(1, 100, 1000, NOW) == pytest.approx(worth(0, 100, 1000, NOW + HALF_LIFE_S))
    assert worth(-5, -1, 0, 0.0) == 0.0


# Tidying


def test_what_has_expired_is_tidied_away(make: Callable[..., Store], clock: Clock) -> None:
    store = make()
    for i in range(tidying.ROWS_AT_ONCE + 50):
        store.put(semantic(f"old {i}", [1.0, i], expires_at=NOW + 1.0))
    store.put(semantic("new", [1.0]))
    clock.now = NOW + 2.0
    assert store.tidy() == tidying.ROWS_AT_ONCE + 50
    assert store.tidy() == 0
    assert store.stats().entries == 1
    assert store.stats().evictions == 0


def test_a_mostly_dead_table_is_built_anew_with_what_lives(
    make: Callable[..., Store], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cache.store.index.CHUNK_ROWS", 64)
    store = make()
    vectors = random_vectors(500, seed=3)
    for i, one in enumerate(vectors):
        store.put(semantic(str(i), one, namespace="short" if i % 5 else "long"))
    assert store.evict(namespace="short") == 400  # some in every chunk, so that none of them goes by itself
    ((before,),) = query(path, "SELECT count(*) FROM coarse_1_0_chunks")
    store.tidy()
    ((after,),) = query(path, "SELECT count(*) FROM coarse_1_1_chunks")
    assert (before, after) == (8, 2)
    assert query(path, "SELECT name FROM sqlite_schema WHERE name = 'coarse_1_0'") == []
    for i in range(0, 500, 5):
        assert store.near(FINGERPRINT, EMBEDDING, vectors[i], k=1)[0].text == f"text {i}"
    store.put(semantic("new", vectors[1]))
    assert store.near(FINGERPRINT, EMBEDDING, vectors[1], k=1)[0].text == "text new"
    store.tidy()
    assert query(path, "SELECT side FROM tags") == [(1,)]  # nothing to do


def test_a_table_that_was_half_built_when_the_daemon_was_killed_is_built_again(
    make: Callable[..., Store], path: Path
) -> None:
    store = make()
    vectors = random_vectors(50, seed=4)
    for i, one in enumerate(vectors):
        store.put(semantic(str(i), one))
    store.close()
    query(path, "CREATE VIRTUAL TABLE coarse_1_1 USING vec0(code bit[256], fingerprint integer)")
    query(path, "UPDATE tags SET building = 1")
    again = make()
    stored = again.get(key("7"))
    assert stored is not None
    assert again.evict(id=stored.id) == 1
    again.put(semantic("new", vectors[7]))
    again.tidy()
    assert query(path, "SELECT side, building FROM tags") == [(1, 0)]
    assert query(path, "SELECT count(*) FROM coarse_1_1") == [(50,)]
    assert again.near(FINGERPRINT, EMBEDDING, vectors[7], k=1)[0].text == "text new"
    assert again.near(FINGERPRINT, EMBEDDING, vectors[8], k=1)[0].text == "text 8"


def test_what_is_put_and_removed_while_a_table_is_built_is_not_missed(
    make: Callable[..., Store], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidying, "ROWS_AT_ONCE", 10)
    store = make()
    vectors = random_vectors(100, seed=5)
    for i in range(50):
        store.put(semantic(str(i), vectors[i]))
    store.close()
    query(path, "UPDATE tags SET building = 1")
    again = make()
    rebuild, steps = index.rebuild, iter(range(50, 55))

    def beside(*args: Any, **more: Any) -> Any:
        result = rebuild(*args, **more)
        step = next(steps, None)
        if step is not None:
            waiting.append(step)
        return result

    waiting: list[int] = []
    monkeypatch.setattr(index, "rebuild", beside)
    writing = again._file.writing

    def interrupted() -> Any:  # between two steps
        while waiting:
            step = waiting.pop()
            again.put(semantic(str(step), vectors[step]))
            stored = again.get(key(str(step - 50)))
            assert stored is not None
            again.evict(id=stored.id)
        return writing()

    monkeypatch.setattr(again._file, "writing", interrupted)
    again.tidy()
    monkeypatch.setattr(again._file, "writing", writing)
    assert query(path, "SELECT side, building FROM tags") == [(1, 0)]
    assert query(path, "SELECT rowid FROM coarse_1_1 ORDER BY 1") == query(path, "SELECT id FROM vectors ORDER BY 1")
    assert again.near(FINGERPRINT, EMBEDDING, vectors[54], k=1)[0].text == "text 54"
    assert "text 0" not in [found.text for found in again.near(FINGERPRINT, EMBEDDING, vectors[0])]


def test_space_is_given_back_when_most_of_it_is_free(make: Callable[..., Store], path: Path) -> None:
    store = make()
    for i in range(300):
        store.put(semantic(str(i), [1.0, i], answer=b"x" * 20_000))
    store.tidy()
    full = path.stat().st_size
    store.evict()
    store.put(entry("a"))
    assert store.stats().bytes_on_disk >= full
    store.tidy()
    assert store.stats().bytes_on_disk < full / 10
    assert store.get(key("a")) is not None


def test_a_model_that_has_no_vectors_any_more_leaves_no_table(make: Callable[..., Store], path: Path) -> None:
    store = make()
    store.put(semantic("a", [1.0]))
    store.put(semantic("b", [1.0], embedding="other"))
    stored = store.get(key("a"))
    assert stored is not None
    store.evict(id=stored.id)
    store.tidy()
    assert query(path, "SELECT embedding FROM tags") == [("other",)]
    assert query(path, "SELECT name FROM sqlite_schema WHERE name GLOB 'coarse_1_*'") == []
    store.put(semantic("c", random_vectors(1, seed=1, dimensions=99)[0]))  # dimensions are free again
    assert store.stats().entries == 2


def test_a_second_tidying_at_the_same_time_leaves_it_to_the_first(make: Callable[..., Store], clock: Clock) -> None:
    store = make()
    store.put(entry("a", expires_at=NOW + 1.0))
    clock.now = NOW + 2.0
    with store._tidying:
        assert store.tidy() == 0
    assert store.tidy() == 1
