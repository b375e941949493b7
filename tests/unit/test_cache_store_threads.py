"""Threads that read, write, evict and tidy at the same time see whole entries, and nothing raises."""

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from cache.store import Entry, Store
from cache.store import file as file_module
from cache.store.file import IDLE_READERS
from tests.unit.cache_store_entries import EMBEDDING, FINGERPRINT, entry, key, random_vectors, semantic

KEYS = 60
VECTORS = random_vectors(KEYS, seed=11)
ROUNDS = 150
LIMIT_S = 60.0  # it takes two or so


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "cache.db", time.time, max_bytes=2**26, max_entries=KEYS * 3 // 4)
    yield made
    made.close()


def version(number: int, count: int) -> Entry:
    """Of a key: what it answers tells which one it is, over and over."""
    now = time.time()
    text = f"{number}:{count}"
    return semantic(
        str(number),
        VECTORS[number],
        text=text,
        answer=text.encode() * 3000,
        prompt_tokens=count,
        created_at=now,
        expires_at=now + 3600.0,
    )


def is_whole(found: Entry) -> bool:
    return found.text.endswith(f":{found.prompt_tokens}") and found.answer == found.text.encode() * 3000


def run(*jobs: Callable[[], None]) -> None:
    """All at once, to their end. Raises what one of them has raised."""
    raised: list[BaseException] = []

    def watched(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:  # noqa: BLE001 - it is raised below
            raised.append(error)

    threads = [threading.Thread(target=watched, args=(job,), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive()
    if raised:
        raise raised[0]


def put_some(store: Store, seed: int) -> None:
    for count, number in enumerate(np.random.default_rng(seed).integers(0, KEYS, ROUNDS)):
        store.put(version(int(number), count))


def get_some(store: Store, seed: int) -> None:
    for number in np.random.default_rng(seed).integers(0, KEYS, ROUNDS * 3):
        found = store.get(key(str(number)))
        if found is not None:
            assert is_whole(found.entry)
            assert found.entry.text.startswith(f"{number}:")
            store.touch([found.id])


def near_some(store: Store, seed: int) -> None:
    for number in np.random.default_rng(seed).integers(0, KEYS, ROUNDS):
        for candidate in store.near(FINGERPRINT, EMBEDDING, VECTORS[number]):
            found = store.entry(candidate.id)
            if found is not None:
                assert is_whole(found.entry)
                assert found.entry.text == candidate.text


def remove_some(store: Store) -> None:
    for _ in range(ROUNDS // 5):
        found = store.get(key("7"))
        if found is not None:
            store.evict(id=found.id)
        store.tidy()
        store.add("x", "chat", {"rounds": 1})
        store.stats()


def test_many_threads_see_whole_entries(store: Store) -> None:
    run(
        *(partial(put_some, store, seed) for seed in range(3)),
        *(partial(get_some, store, seed) for seed in range(3)),
        partial(near_some, store, 4),
        partial(remove_some, store),
    )
    stats = store.stats()
    assert (stats.failures, stats.quarantines, stats.damaged, stats.problem) == (0, 0, 0, None)
    assert stats.entries <= KEYS * 3 // 4
    assert store.totals() == {("x", "chat"): {"rounds": ROUNDS // 5}}


def test_hits_of_many_threads_are_all_counted(store: Store) -> None:
    store.put(version(1, 1))
    found = store.get(key("1"))
    assert found is not None

    def touch() -> None:
        for _ in range(50):
            store.touch([found.id])

    run(*[touch] * 4)
    after = store.get(key("1"))
    assert after is not None
    assert after.hits == 200


def test_more_readers_than_are_kept_all_get_an_answer(store: Store) -> None:
    store.put(version(1, 1))
    together = threading.Barrier(IDLE_READERS * 2)

    def get() -> None:
        with store._file.reading() as db:
            together.wait(LIMIT_S)
            assert db.execute("SELECT count(*) FROM answers").fetchall() == [(1,)]

    run(*[get] * IDLE_READERS * 2)
    assert len(store._file._idle) == IDLE_READERS


def test_a_file_that_is_deleted_again_and_again_under_many_threads_harms_nobody(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_module, "REST_S", 0.0)
    stop = threading.Event()

    def delete() -> None:
        while not stop.wait(0.02):
            for end in ("", "-wal", "-shm"):
                (tmp_path / f"cache.db{end}").unlink(missing_ok=True)

    def use() -> None:
        try:
            run(*(partial(job, store, seed) for job in (put_some, get_some, near_some) for seed in (1, 2)))
        finally:
            stop.set()

    run(delete, use)
    for _ in range(3):
        store.put(entry("after", created_at=time.time(), expires_at=time.time() + 3600.0))
    assert store.get(key("after")) is not None


def test_a_store_that_is_closed_under_its_readers_raises_nothing(store: Store) -> None:
    for number in range(KEYS // 2):
        store.put(version(number, 1))
    begun = threading.Barrier(4)

    def read() -> None:
        begun.wait(LIMIT_S)
        for number in range(KEYS // 2):
            found = store.get(key(str(number)))
            assert found is None or is_whole(found.entry)
            store.near(FINGERPRINT, EMBEDDING, VECTORS[number])

    def close() -> None:
        begun.wait(LIMIT_S)
        store.close()

    run(read, read, read, close)
    assert store.get(key("1")) is None
