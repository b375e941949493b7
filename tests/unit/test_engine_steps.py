"""What one step holds: every running stream, then as much of the prompts as time and the backend allow."""

import pytest

from appliance.protocol import Delta, Started
from runtimes.engine.step_time import LEAST_ROWS
from tests.contract.engine_driver import Clock, Drive, ScriptedBackend, StrictBackend, job

TALK = b"a long talk " * 200


def talkers(n: int, *, row_s: float = 0.001, step_target_s: float = 0.05, **options: int) -> Drive:
    """`n` streams that go on and on, all past their prompts."""
    backend = ScriptedBackend(
        TALK, prompt_tokens=3, clock=Clock(), row_s=row_s, kv_tokens=8192, context_tokens=2048, **options
    )
    drive = Drive(slots=n + 1, backend=backend, step_target_s=step_target_s)
    drive.submit(*(job(f"s{i}", f"s{i:02}", max_tokens=None) for i in range(n)))
    while len(drive.events) < n or any(len(events) < 3 for events in drive.events.values()):
        drive.step()
    return drive


def test_a_long_prompt_never_stalls_the_running_streams() -> None:
    drive = talkers(3)
    drive.submit(job("long", "L" * 1_500, max_tokens=1))
    steps = 0
    while ("long", 0) not in drive.events or len(drive.events["long", 0]) < 2:
        events = drive.step()
        steps += 1
        spoke = [name for name, event in events if isinstance(event, Delta) and name != "long"]
        assert sorted(spoke) == ["s0", "s1", "s2"]
    assert steps >= 1_500 // 50


@pytest.mark.parametrize("row_s", [0.0005, 0.001, 0.004])
def test_a_step_beside_streams_takes_no_longer_than_its_target(row_s: float) -> None:
    drive = talkers(3, row_s=row_s, step_target_s=0.1)
    drive.submit(job("warm", "W" * 300, max_tokens=1))
    for _ in range(10):
        drive.step()
    first = len(drive.backend.batches)
    drive.submit(job("long", "L" * 1_000, max_tokens=1))
    while ("long", 0) not in drive.events or len(drive.events["long", 0]) < 2:
        drive.step()
        assert drive.engine.stats().last_step_s <= 0.1 + 1e-9
    fitting = min(round(0.1 / row_s), drive.backend.info.max_batch_tokens)
    assert max(map(len, drive.backend.batches[first:])) in (fitting - 1, fitting)  # measured times round


def test_a_slow_machine_takes_a_few_rows_of_a_prompt_in_each_step() -> None:
    drive = talkers(2, row_s=1.0)
    drive.submit(job("long", "L" * 40, max_tokens=1))
    drive.step()
    assert len(drive.backend.batches[-1]) == LEAST_ROWS + 2


def test_prompts_that_fit_are_computed_in_one_step_together() -> None:
    drive = Drive(slots=8, backend=StrictBackend(clock=Clock(), row_s=1e-6))
    drive.submit(job("warm", "w" * 20, max_tokens=1)).drain()
    drive.submit(*(job(f"p{i}", chr(65 + i) * 20, max_tokens=1) for i in range(8)))
    before = len(drive.backend.batches)
    drive.drain()
    assert len(drive.backend.batches) - before == 1


@pytest.mark.parametrize(("slots", "rows"), [(12, 16), (16, 16), (16, 20), (30, 32)])
def test_no_step_exceeds_the_rows_that_a_forward_takes(slots: int, rows: int) -> None:
    backend = StrictBackend(clock=Clock(), row_s=1e-6, max_batch_tokens=rows, end_every=None)
    drive = Drive(slots=slots, backend=backend)
    drive.submit(*(job(f"j{i}", f"{i:03}", max_tokens=150) for i in range(slots + 4)))
    drive.drain()
    assert max(map(len, backend.batches)) <= rows


def test_a_stream_that_resumes_at_once_still_fits_into_the_step() -> None:
    """One that stepped back and finds all its tokens in a retained prefix decodes in the step that admits it."""
    backend = StrictBackend(
        clock=Clock(), row_s=1e-6, max_batch_tokens=16, kv_tokens=200, context_tokens=200, end_every=None
    )
    drive = Drive(slots=2, backend=backend)
    drive.submit(*(job(f"twin{i}", "T" * 20, max_tokens=100) for i in range(2)))
    while len(drive.started_order) < 2:
        drive.step()
    drive.submit(job("long", "L" * 40, max_tokens=2))
    answers = drive.drain()
    assert drive.engine.stats().preemptions == 1
    assert answers["twin0", 0] == answers["twin1", 0]


def test_the_wait_in_the_queue_is_told() -> None:
    drive = Drive(slots=1, row_s=0.01, end_every=None)
    drive.submit(job("first", "a" * 8, max_tokens=10), job("second", "b" * 8, max_tokens=1)).drain()
    first, second = drive.events["first", 0][0], drive.events["second", 0][0]
    assert isinstance(first, Started)
    assert isinstance(second, Started)
    assert first.queue_s == 0
    assert second.queue_s == pytest.approx((8 + 9) * 0.01)


def test_an_engine_with_nothing_to_do_does_nothing() -> None:
    drive = Drive()
    assert drive.engine.idle
    assert drive.step() == []
    assert drive.backend.calls == 0


def test_a_clock_that_does_not_move_does_no_harm() -> None:
    drive = Drive(row_s=0.0, end_every=None).submit(job("a", "some words", max_tokens=3))
    assert drive.drain()["a", 0].completion_tokens == 3


def test_no_more_jobs_run_than_there_are_slots() -> None:
    drive = Drive(slots=3).submit(*(job(f"j{i}", f"{i} hello", max_tokens=5) for i in range(10)))
    seen = set()
    while not drive.engine.idle:
        drive.step()
        seen.add(drive.engine.stats().running)
    assert max(seen) <= 3


def test_as_many_sequences_as_slots_are_enough_or_refused_at_once() -> None:
    """A backend may have no sequence to spare for retained prefixes."""
    try:
        drive = Drive(slots=3, max_sequences=3, end_every=None)
    except ValueError:
        return
    for i in range(12):
        drive.submit(job(f"j{i}", f"{i % 4}" * 40 + f"{i}", max_tokens=3))
    assert len(drive.drain()) == 12
