"""A cancelled job says nothing more and holds nothing more, wherever it was."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contract.engine_driver import Drive, alone, job

SHARED = "a prefix of some length for all: "


def drive() -> Drive:
    return Drive(slots=2, row_s=0.01, end_every=None)


def test_a_job_in_the_queue_leaves_it() -> None:
    driven = drive().submit(*(job(f"j{i}", f"{i}" * 20) for i in range(4)))
    driven.step()
    driven.cancel("j3")
    assert driven.engine.stats().waiting == 1
    assert set(driven.drain()) == {("j0", 0), ("j1", 0), ("j2", 0)}
    assert ("j3", 0) not in driven.events


def test_a_job_in_its_prefill_frees_its_slot_at_once() -> None:
    driven = drive().submit(job("a", "x" * 200), job("b", "y" * 200), job("c", "z" * 20))
    driven.step()
    driven.cancel("a")
    assert driven.engine.stats().running == 1
    driven.step()
    assert driven.engine.stats().running == 2
    assert set(driven.drain()) == {("b", 0), ("c", 0)}
    driven.check_nothing_is_held()


def test_a_job_that_speaks_falls_silent_at_once() -> None:
    driven = drive().submit(job("a", "x" * 20, max_tokens=50))
    while len(driven.events["a", 0]) < 5:
        driven.step()
    driven.cancel("a")
    assert driven.engine.idle
    assert driven.step() == []
    driven.check_nothing_is_held()


def test_all_choices_of_a_job_go_together_wherever_they_are() -> None:
    driven = drive().submit(job("a", "x" * 40, n=5, max_tokens=50), job("b", "y" * 20))
    for _ in range(8):
        driven.step()
    assert driven.engine.stats().running == 2
    assert driven.engine.stats().waiting > 0
    driven.cancel("a")
    assert driven.engine.stats().running + driven.engine.stats().waiting == 1
    assert set(driven.drain()) == {("b", 0)}
    driven.check_nothing_is_held()


def test_all_jobs_of_one_id_go_together() -> None:
    """A request with several prompts is several jobs of one id."""
    parts = [replace(job("a", f"{i}" * 30, max_tokens=50), first_choice=i) for i in range(4)]
    driven = drive().submit(*parts, job("b", "y" * 20))
    for _ in range(5):
        driven.step()
    driven.cancel("a")
    assert set(driven.drain()) == {("b", 0)}
    driven.check_nothing_is_held()


def test_choices_that_finished_before_stay_finished() -> None:
    driven = drive().submit(job("a", "x" * 20, n=4, max_tokens=5))
    while len(driven.answers()) < 2:
        driven.step()
    driven.cancel("a")
    assert driven.engine.idle
    assert len(driven.answers()) == 2


@pytest.mark.parametrize("name", ["never submitted", "finished", "cancelled"])
def test_cancelling_what_is_not_there_does_nothing(name: str) -> None:
    driven = drive().submit(job("finished", "x" * 20, max_tokens=1), job("cancelled", "y"), job("runs", "z" * 9))
    driven.cancel("cancelled")
    while ("finished", 0) not in driven.answers():
        driven.step()
    before = driven.engine.stats()
    driven.cancel(name)
    assert driven.engine.stats() == before
    assert ("runs", 0) in driven.drain()


def test_a_job_that_stepped_back_can_be_cancelled() -> None:
    driven = Drive(slots=4, kv_tokens=200, context_tokens=120, end_every=None)
    driven.submit(*(job(f"j{i}", f"{i}" * 30, max_tokens=80) for i in range(4)))
    while not driven.engine.stats().preemptions:
        driven.step()
    back = driven.engine._scheduler.waiting[0]
    assert back.started
    driven.cancel(back.job.id)
    answers = driven.drain()
    assert len(answers) == 3
    driven.check_nothing_is_held()


@settings(max_examples=60, deadline=None)
@given(
    when=st.integers(0, 60),
    victim=st.integers(0, 5),
    kv_tokens=st.sampled_from([130, 200, 1000]),
    slots=st.integers(1, 6),
)
def test_the_others_say_the_same_whenever_one_is_cancelled(when: int, victim: int, kv_tokens: int, slots: int) -> None:
    jobs = [job(f"j{i}", SHARED * (i % 2) + f"{i}" * (5 + 7 * i), max_tokens=5 + 9 * i) for i in range(6)]
    driven = Drive(slots=slots, kv_tokens=kv_tokens, context_tokens=130, end_every=50).submit(*jobs)
    for _ in range(when):
        driven.step()
    finished = (f"j{victim}", 0) in driven.answers()
    driven.cancel(f"j{victim}")
    answers = driven.drain()
    for i, each in enumerate(jobs):
        if i == victim:
            assert ((each.id, 0) in answers) == finished
        else:
            assert answers[each.id, 0] == alone(each, context_tokens=130, end_every=50)[each.id, 0]
    driven.check_nothing_is_held()
