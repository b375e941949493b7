"""A backend that fails: what is survived, what is told, and to whom."""

import numpy as np
import pytest

from appliance.protocol import Delta, Failed, Finished, Started
from runtimes.contracts import BackendError, Logits, Row
from runtimes.engine import Job
from tests.contract.engine_driver import Clock, Drive, StrictBackend, alone, job

POISON = 1  # a token after which the model is beyond reason


def three_jobs() -> list[Job]:
    return [job(f"j{i}", f"{i}" * 40, max_tokens=25, logprobs=0) for i in range(3)]


def drive(jobs: list[Job], *, full_at: set[int] | None = None, row_s: float = 0.001) -> Drive:
    backend = StrictBackend(clock=Clock(), row_s=row_s, end_every=None)
    driven = Drive(slots=4, backend=backend)
    driven.submit(job("before", "b" * 50, max_tokens=2)).drain()  # leaves a prefix that can be given up
    backend.calls = 0
    backend.full_at = full_at or set()
    return driven.submit(*jobs)


def forwards() -> int:
    driven = drive(three_jobs())
    driven.drain()
    return driven.backend.calls


def test_a_cache_found_full_at_any_one_forward_changes_no_answer() -> None:
    expected = {key: said for each in three_jobs() for key, said in alone(each, end_every=None).items()}
    for call in range(forwards()):
        driven = drive(three_jobs(), full_at={call})
        answers = driven.drain()
        assert {key: answers[key] for key in expected} == expected, f"forward {call}"
        driven.check_nothing_is_held()


@pytest.mark.parametrize("call", range(4))
def test_a_cache_found_full_twice_running_changes_no_answer(call: int) -> None:
    expected = {key: said for each in three_jobs() for key, said in alone(each, end_every=None).items()}
    answers = drive(three_jobs(), full_at={call, call + 1}).drain()
    assert {key: answers[key] for key in expected} == expected


def test_jobs_admitted_in_a_step_that_found_the_cache_full_still_say_started() -> None:
    driven = drive(three_jobs(), full_at={0})
    driven.drain()
    for each in three_jobs():
        events = driven.events[each.id, 0]
        assert isinstance(events[0], Started)
        assert sum(isinstance(event, Started) for event in events) == 1


def test_a_cache_found_full_by_one_stream_gives_up_what_is_retained() -> None:
    driven = drive([job("only", "o" * 30, max_tokens=10)], full_at={2})
    assert driven.engine.stats().retained_sequences == 1
    answers = driven.drain()
    assert answers["only", 0] == alone(job("only", "o" * 30, max_tokens=10), end_every=None)["only", 0]


def test_a_cache_too_small_for_one_stream_alone_is_an_error() -> None:
    backend = StrictBackend(clock=Clock(), end_every=None)
    backend.full_at = set(range(1_000))
    with pytest.raises(BackendError, match="KV cache"):
        Drive(backend=backend).submit(job("a", "hello")).drain()


@pytest.mark.parametrize("call", [0, 3])
def test_a_broken_backend_is_told_to_the_caller(call: int) -> None:
    driven = drive(three_jobs())
    driven.backend.broken_at = {call}
    with pytest.raises(BackendError, match="as the test ordered"):
        driven.drain()


def spoil(driven: Drive, *, value: float) -> None:
    """Sequences that hold the poison get rows of `value`."""

    def spoiled(rows: list[Row], logits: Logits) -> None:
        asked = [row for row in rows if row.logits]
        for row, out in zip(asked, logits, strict=True):
            if POISON in driven.backend.tokens_of(row.sequence):
                out[:] = value

    driven.backend.spoil = spoiled


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_numbers_fail_only_their_own_job(value: float) -> None:
    jobs = three_jobs()
    driven = drive(jobs)
    spoil(driven, value=value)
    driven.submit(job("bad", [*b"x" * 30, POISON, *b"y" * 10], n=2))
    answers = driven.drain()
    for choice in range(2):
        events = driven.events["bad", choice]
        assert [type(event) for event in events] == [Started, Failed]
        assert isinstance(events[1], Failed)
        assert events[1].code == "engine_crashed"
    for each in jobs:
        assert answers[each.id, 0] == alone(each, end_every=None)[each.id, 0]
    driven.check_nothing_is_held()


def test_a_prefix_that_led_to_broken_logits_is_not_shared() -> None:
    driven = drive([])
    spoil(driven, value=np.nan)
    bad = [*b"x" * 60, POISON]
    driven.submit(job("bad", bad)).drain()
    driven.submit(job("next", [*b"x" * 60, *b"fine"], max_tokens=3)).drain()
    started = driven.events["next", 0][0]
    assert isinstance(started, Started)
    assert started.cached_tokens == 0
    assert isinstance(driven.events["next", 0][-1], Finished)


def test_a_stream_whose_logits_break_on_the_way_fails_after_what_it_said() -> None:
    driven = drive([job("a", "x" * 30, max_tokens=20)])
    while len(driven.events["a", 0]) < 4:
        driven.step()

    def spoiled(rows: list[Row], logits: Logits) -> None:
        logits[:] = np.nan

    driven.backend.spoil = spoiled
    driven.step()
    kinds = [type(event) for event in driven.events["a", 0]]
    assert kinds == [Started, Delta, Delta, Delta, Failed]
    assert driven.engine.idle
    driven.check_nothing_is_held()
