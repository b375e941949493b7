"""Prefixes that leave the KV cache wait in host memory and come back instead of being computed again."""

import random

import numpy as np
import pytest

from appliance.protocol import Started
from runtimes.engine.archive import Archive
from runtimes.engine.scheduler import RETAIN_FOR_WORK_TOKENS, RETAIN_SAVED_FOR_WORK_TOKENS
from tests.contract.engine_driver import Clock, Drive, StrictBackend, alone, job


def tokens(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def drive(*, archive_tokens: int, kv_tokens: int = 4096, slots: int = 4) -> Drive:
    backend = StrictBackend(
        clock=Clock(), kv_tokens=kv_tokens, context_tokens=1024, end_every=None, archive_tokens=archive_tokens
    )
    return Drive(slots=slots, backend=backend)


def cached(driven: Drive, name: str) -> int:
    start = driven.events[name, 0][0]
    assert isinstance(start, Started)
    return start.cached_tokens


def check_saved(driven: Drive) -> None:
    """The engine holds the states that the scheduler counts on, and no others."""
    archive = driven.engine._scheduler.archive
    assert set(driven.engine._saved) == set(archive._lengths)
    assert archive.used_tokens == sum(archive._lengths.values()) <= archive.capacity_tokens


PREFIX = "the rules of this house, word by word, for all who come to it and ask. " * 4


@pytest.mark.parametrize("archive_tokens", [0, 4096])
def test_a_prefix_that_has_left_the_cache_comes_back_from_host_memory_if_there_is_any(archive_tokens: int) -> None:
    driven = drive(archive_tokens=archive_tokens)
    driven.submit(job("first", PREFIX + "one", max_tokens=4)).drain()
    driven.drop_retained()
    assert driven.engine.stats().kv_used_tokens == 0
    driven.submit(job("second", PREFIX + "two", max_tokens=4)).drain()
    assert cached(driven, "second") == (len(PREFIX) if archive_tokens else 0)
    assert (
        driven.answers()["second", 0] == alone(job("second", PREFIX + "two", max_tokens=4), end_every=None)["second", 0]
    )
    check_saved(driven)


def test_a_finished_sequence_slows_others_for_a_short_while_only() -> None:
    driven = drive(archive_tokens=4096)
    driven.submit(job("first", PREFIX, max_tokens=4)).drain()
    driven.submit(job("other", "x" * 20, max_tokens=RETAIN_FOR_WORK_TOKENS + 10))
    while not driven.engine.idle:
        driven.step()
    assert driven.engine.stats().retained_sequences == 1  # the newer one
    assert driven.engine.stats().archived_tokens == len(PREFIX) + 3


def test_what_was_saved_ahead_leaves_the_cache_sooner() -> None:
    driven = drive(archive_tokens=4096)
    driven.submit(job("first", PREFIX, max_tokens=4)).drain()
    assert driven.engine.save_ahead()
    driven.submit(job("other", "x" * 20, max_tokens=RETAIN_SAVED_FOR_WORK_TOKENS + 10)).drain()
    assert driven.engine.stats().retained_sequences == 1
    check_saved(driven)


def test_what_was_saved_ahead_needs_no_copy_later() -> None:
    driven = drive(archive_tokens=4096)
    driven.submit(job("first", PREFIX, max_tokens=4)).drain()
    driven.submit(job("second", "another " + PREFIX, max_tokens=4)).drain()
    assert [driven.engine.save_ahead() for _ in range(3)] == [True, True, False]
    assert driven.engine.stats().retained_sequences == 2
    check_saved(driven)
    saved = dict(driven.engine._saved)
    driven.drop_retained()
    assert driven.engine._saved == saved
    driven.submit(job("third", PREFIX, max_tokens=4)).drain()
    assert cached(driven, "third") == len(PREFIX) - 1


def test_saving_ahead_pushes_nothing_out_and_ends() -> None:
    driven = drive(archive_tokens=250)
    for name in "abcd":
        driven.submit(job(name, name * 100, max_tokens=4)).drain()
    assert [driven.engine.save_ahead() for _ in range(3)] == [True, True, False]
    check_saved(driven)


def test_a_whole_conversation_goes_on_from_host_memory() -> None:
    driven = drive(archive_tokens=4096)
    history, said = PREFIX, ""
    for turn in range(4):
        name = f"turn{turn}"
        driven.submit(job(name, history, max_tokens=8)).drain()
        if turn:
            assert cached(driven, name) >= len(history) - len(f" and {turn}?") - 1
        said = driven.answers()[name, 0].text
        history += said + f" and {turn + 1}?"
        driven.drop_retained()
    assert len(driven.engine._scheduler.archive) == 1  # each turn contains the one before
    check_saved(driven)


@pytest.mark.parametrize("seed", range(12))
def test_random_traffic_says_what_lone_runs_say_whatever_is_saved_and_restored(seed: int) -> None:
    rng = random.Random(seed)
    prefixes = ["".join(rng.choices("abcdefgh ", k=rng.randrange(20, 150))) for _ in range(4)]
    jobs = []
    for i in range(30):
        prompt = rng.choice(prefixes) + "".join(rng.choices("xyz", k=rng.randrange(1, 40)))
        jobs.append(job(f"j{i}", prompt, max_tokens=rng.randrange(1, 30)))
    driven = drive(archive_tokens=rng.choice([200, 600, 3000]), kv_tokens=1024, slots=rng.choice([1, 3, 6]))
    waiting = list(jobs)
    while waiting or not driven.engine.idle:
        if waiting and rng.random() < 0.3:
            driven.submit(waiting.pop())
        driven.step()
        check_saved(driven)
        if rng.random() < 0.05:
            driven.drop_retained()
    said = driven.answers()
    for each in jobs:
        assert said[each.id, 0] == alone(each, end_every=None)[each.id, 0]
    assert driven.engine.stats().cached_prompt_tokens > 0
    driven.check_nothing_is_held()


def test_the_archive_forgets_the_least_recently_used_first() -> None:
    archive = Archive(10)
    first, _ = archive.put(tokens(1, 2, 3, 4))
    second, _ = archive.put(tokens(5, 6, 7, 8))
    assert first is not None
    archive.touch(first)
    _, gone = archive.put(tokens(9, 9, 9, 9))
    assert gone == [second]
    assert archive.longest(tokens(1, 2, 3, 9)).tokens == 3
    assert archive.longest(tokens(5, 6)).tokens == 0


def test_the_archive_keeps_nothing_twice() -> None:
    archive = Archive(100)
    short, _ = archive.put(tokens(1, 2, 3))
    long, gone = archive.put(tokens(1, 2, 3, 4))
    assert gone == [short]
    assert archive.put(tokens(1, 2)) == (None, [])
    assert archive.length(long or 0) == archive.used_tokens == 4


def test_one_sequence_cannot_push_out_all_others() -> None:
    archive = Archive(10)
    archive.put(tokens(1, 2, 3))
    assert archive.put(tokens(*range(10, 16))) == (None, [])
    assert archive.used_tokens == 3
