"""An entry comes back as it was put, until it expires, is replaced or is evicted."""

import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cache.store import Store
from tests.unit.cache_store_entries import EMBEDDING, FINGERPRINT, NOW, Clock, entry, key, semantic

MIB = 2**20


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "cache.db"


@pytest.fixture
def store(path: Path, clock: Clock) -> Iterator[Store]:
    made = Store(path, clock, max_bytes=64 * MIB, max_entries=1000)
    yield made
    made.close()


# Entries


def test_an_entry_comes_back_as_it_was_put(store: Store) -> None:
    put = entry(
        "a",
        namespace="ü🙂",
        step="plan",
        text="x'; DROP TABLE answers; --\0\n",
        answer=b"\0\xff" * 5000,
        created_at=NOW + 0.125,
    )
    store.put(put)
    found = store.get(key("a"))
    assert found is not None
    assert found.entry == put
    assert (found.hits, found.last_used_at) == (0, NOW)


def test_an_entry_of_both_tiers_comes_back_with_its_vector_by_its_id(store: Store) -> None:
    put = semantic("a", [3.0, 4.0])
    store.put(put)
    by_key = store.get(key("a"))
    assert by_key is not None
    assert by_key.entry == put
    by_id = store.entry(by_key.id)
    assert by_id is not None
    assert by_id.entry == put
    assert by_id.entry.vector is not None
    assert put.vector is not None
    np.testing.assert_array_equal(by_id.entry.vector, put.vector)


def test_what_was_never_put_is_not_found(store: Store) -> None:
    store.put(entry("a"))
    assert store.get(key("b")) is None
    assert store.entry(1) is None


def test_entries_outlive_the_store(store: Store, path: Path, clock: Clock) -> None:
    store.put(semantic("a", [1.0]))
    store.close()
    again = Store(path, clock, max_bytes=64 * MIB, max_entries=1000)
    found = again.get(key("a"))
    assert found is not None
    assert [candidate.id for candidate in again.near(FINGERPRINT, EMBEDDING, semantic("a", [1.0]).vector)] == [found.id]  # type: ignore[arg-type]
    again.close()


def test_an_expired_entry_is_not_found_in_any_way(store: Store, clock: Clock) -> None:
    put = semantic("a", [1.0], expires_at=NOW + 10.0)
    store.put(put)
    found = store.get(key("a"))
    assert found is not None
    assert put.vector is not None
    clock.now = NOW + 10.0
    assert store.get(key("a")) is None
    assert store.entry(found.id) is None
    assert store.near(FINGERPRINT, EMBEDDING, put.vector) == []


def test_an_entry_takes_the_place_of_the_one_of_its_key(store: Store) -> None:
    first, second = semantic("a", [1.0]), semantic("a", [0.0, 1.0], text="newer", answer=b"newer")
    assert first.vector is not None
    assert second.vector is not None
    store.put(first)
    old = store.get(key("a"))
    assert old is not None
    store.put(second)
    new = store.get(key("a"))
    assert new is not None
    assert new.entry == second
    assert store.entry(old.id) is None
    assert [found.text for found in store.near(FINGERPRINT, EMBEDDING, second.vector)] == ["newer"]
    assert store.near(FINGERPRINT, EMBEDDING, first.vector) == []
    assert store.stats().entries == 1


def test_a_replacement_for_the_exact_tier_takes_the_vector_away(store: Store) -> None:
    first = semantic("a", [1.0])
    assert first.vector is not None
    store.put(first)
    store.put(entry("a"))
    assert store.near(FINGERPRINT, EMBEDDING, first.vector) == []


def test_an_id_is_never_given_to_another_entry(store: Store) -> None:
    store.put(entry("a"))
    first = store.get(key("a"))
    assert first is not None
    assert store.evict() == 1
    store.put(entry("b"))
    second = store.get(key("b"))
    assert second is not None
    assert second.id > first.id


def test_ids_of_a_new_file_are_none_of_the_old_one_s(path: Path, clock: Clock) -> None:
    ids = []
    for _ in range(2):
        store = Store(path, clock, max_bytes=64 * MIB, max_entries=1000)
        store.put(entry("a"))
        found = store.get(key("a"))
        assert found is not None
        ids.append(found.id)
        store.close()
        path.unlink()
        clock.now += 1.0
    assert ids[1] > ids[0] + 1000


# Hits


def test_hits_are_counted_as_often_as_they_are_named(store: Store, clock: Clock) -> None:
    store.put(entry("a"))
    store.put(entry("b"))
    a, b = store.get(key("a")), store.get(key("b"))
    assert a is not None
    assert b is not None
    clock.now = NOW + 5.0
    store.touch([a.id, b.id, a.id, 12345])
    store.touch([a.id])
    after = store.get(key("a"))
    assert after is not None
    assert (after.hits, after.last_used_at) == (3, NOW + 5.0)
    assert after.entry == a.entry


# Eviction on demand


def test_an_entry_is_evicted_by_its_id_with_its_vector(store: Store) -> None:
    put = semantic("a", [1.0])
    assert put.vector is not None
    store.put(put)
    store.put(entry("b"))
    found = store.get(key("a"))
    assert found is not None
    assert store.evict(id=found.id) == 1
    assert store.evict(id=found.id) == 0
    assert store.get(key("a")) is None
    assert store.near(FINGERPRINT, EMBEDDING, put.vector) == []
    assert store.get(key("b")) is not None


def test_a_namespace_is_evicted_without_the_others(store: Store) -> None:
    for name in ("a", "b", "c"):
        store.put(entry(name, namespace="x" if name != "c" else "y"))
    assert store.stats().namespaces == {"x": 2, "y": 1}
    assert store.evict(namespace="x") == 2
    assert store.stats().namespaces == {"y": 1}
    assert store.get(key("c")) is not None


def test_conditions_hold_together(store: Store, clock: Clock) -> None:
    store.put(entry("old x", namespace="x", created_at=NOW - 100.0))
    store.put(entry("new x", namespace="x", created_at=NOW))
    store.put(entry("old y", namespace="y", created_at=NOW - 100.0))
    assert store.evict(namespace="x", older_than_s=50.0) == 1
    assert store.get(key("old x")) is None
    assert store.evict(older_than_s=50.0) == 1
    assert store.get(key("new x")) is not None
    assert store.evict(namespace="nobody") == 0
    assert store.evict() == 1
    assert store.stats().entries == 0


# Counters


def test_counters_add_up_by_namespace_and_step(store: Store) -> None:
    store.add("x", "plan", {"audited": 1})
    store.add("x", "plan", {"audited": 2, "wrong": 1})
    store.add("x", "chat", {"audited": 5})
    store.add("y", "plan", {})
    assert store.totals() == {("x", "plan"): {"audited": 3, "wrong": 1}, ("x", "chat"): {"audited": 5}}


def test_counters_outlive_the_entries(store: Store) -> None:
    store.add("x", "plan", {"audited": 1})
    store.put(entry("a", namespace="x"))
    store.evict()
    store.tidy()
    assert store.totals() == {("x", "plan"): {"audited": 1}}


def test_it_says_where_candidates_may_be_found(store: Store) -> None:
    assert not store.holds(FINGERPRINT, EMBEDDING)
    store.put(entry("exact only"))
    assert not store.holds(FINGERPRINT, EMBEDDING)
    store.put(semantic("a", [1.0]))
    assert store.holds(FINGERPRINT, EMBEDDING)
    assert not store.holds(FINGERPRINT, "another")
    assert not store.holds(b"g" * 32, EMBEDDING)
    store.evict()
    assert not store.holds(FINGERPRINT, EMBEDDING)


# The file


def test_nothing_is_opened_before_there_is_something_to_write(store: Store, path: Path) -> None:
    assert store.get(key("a")) is None
    assert store.entry(1) is None
    assert store.near(FINGERPRINT, EMBEDDING, np.ones(3, dtype=np.float32)) == []
    store.touch([1])
    assert store.evict() == 0
    assert store.tidy() == 0
    assert store.totals() == {}
    assert store.stats().problem is None
    store.close()
    assert not path.parent.exists()


def test_only_the_owner_can_read_what_was_asked(store: Store, path: Path) -> None:
    store.put(entry("a"))
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == {"cache.db": 0o600, "cache.db-wal": 0o600, "cache.db-shm": 0o600}


def test_a_file_that_others_could_read_is_closed_to_them(store: Store, path: Path, clock: Clock) -> None:
    store.put(entry("a"))
    store.close()
    path.chmod(0o644)
    again = Store(path, clock, max_bytes=64 * MIB, max_entries=1000)
    assert again.get(key("a")) is not None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again.close()


def test_the_file_is_alone_again_when_the_store_is_closed(store: Store, path: Path) -> None:
    store.put(entry("a"))
    store.get(key("a"))
    store.close()
    store.close()
    assert [file.name for file in path.parent.iterdir()] == ["cache.db"]
    assert store.get(key("a")) is None
    store.put(entry("b"))
    assert store.stats().entries == 0


def test_two_stores_over_one_file_see_each_other_s_entries(store: Store, path: Path, clock: Clock) -> None:
    other = Store(path, clock, max_bytes=64 * MIB, max_entries=1000)
    store.put(semantic("a", [1.0]))
    other.put(semantic("b", [1.0, 0.1]))
    assert store.get(key("b")) is not None
    assert other.get(key("a")) is not None
    query = semantic("a", [1.0]).vector
    assert query is not None
    assert [found.text for found in store.near(FINGERPRINT, EMBEDDING, query)] == ["text a", "text b"]
    assert other.stats().entries == store.stats().entries == 2
    other.close()


def test_stats_say_how_large_it_is(store: Store, path: Path) -> None:
    store.put(entry("a", answer=b"x" * MIB))
    stats = store.stats()
    assert (stats.entries, stats.namespaces, stats.evictions, stats.quarantines) == (1, {"tenant": 1}, 0, 0)
    assert stats.bytes_on_disk == path.stat().st_size + path.with_name("cache.db-wal").stat().st_size > MIB
