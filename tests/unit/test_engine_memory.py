"""A cache too small for the traffic: who waits, who steps back, and that the text stays the same."""

from typing import Any

import pytest

from appliance.protocol import Sampling, Started
from runtimes.contracts import BackendError, KVCacheFullError, Logits, Row
from runtimes.engine import Job
from tests.contract.engine_driver import Clock, Drive, StrictBackend, alone, job


def distinct(i: int, length: int) -> str:
    """A prompt that shares no prefix with those of other `i`."""
    return chr(48 + i) * length


def test_streams_that_outgrow_the_cache_step_back_and_resume_with_the_same_text() -> None:
    jobs = [job(f"j{i}", distinct(i, 30), max_tokens=60, logprobs=1) for i in range(4)]
    drive = Drive(slots=4, kv_tokens=240, context_tokens=120, end_every=None).submit(*jobs)
    answers = drive.drain()
    assert drive.engine.stats().preemptions > 0
    for each in jobs:
        assert answers[each.id, 0] == alone(each, end_every=None)[each.id, 0]
    drive.check_nothing_is_held()


def test_sampled_streams_resume_with_the_same_draws() -> None:
    hot = Sampling(temperature=1.3, frequency_penalty=0.4, repetition_penalty=1.1, seed=3)
    jobs = [job(f"j{i}", distinct(i, 30), max_tokens=60, sampling=hot, stop=("qx",)) for i in range(4)]
    drive = Drive(slots=4, kv_tokens=240, context_tokens=120, end_every=None).submit(*jobs)
    answers = drive.drain()
    assert drive.engine.stats().preemptions > 0
    for each in jobs:
        assert answers[each.id, 0] == alone(each, end_every=None)[each.id, 0]


def test_a_stream_that_steps_back_says_started_once() -> None:
    jobs = [job(f"j{i}", distinct(i, 30), max_tokens=60) for i in range(4)]
    drive = Drive(slots=4, kv_tokens=240, context_tokens=120, end_every=None).submit(*jobs)
    drive.drain()
    for events in drive.events.values():
        assert sum(isinstance(event, Started) for event in events) == 1


def test_the_oldest_stream_is_never_the_one_that_steps_back() -> None:
    jobs = [job(f"j{i}", distinct(i, 30), max_tokens=80) for i in range(4)]
    drive = Drive(slots=4, kv_tokens=200, context_tokens=120, end_every=None).submit(*jobs)
    tokens_a_step = []
    while "j0" in drive.engine._jobs:
        first = next((s for s in drive.engine._scheduler.running if s.job.id == "j0"), None)
        before = first.generated if first else 0
        drive.step()
        if first and before > 1:  # right after its first token it waits for the prompts that came with it
            tokens_a_step.append(first.generated - before)
    assert drive.engine.stats().preemptions > 0
    assert set(tokens_a_step) == {1}


def test_a_prompt_that_does_not_fit_now_waits_and_then_runs() -> None:
    drive = Drive(slots=4, kv_tokens=200, context_tokens=180, end_every=None)
    drive.submit(job("small", distinct(0, 60), max_tokens=30), job("large", distinct(1, 170), max_tokens=5))
    for _ in range(10):
        drive.step()
    assert drive.engine.stats().waiting == 1
    drive.drain()
    assert drive.started_order == ["small", "large"]
    assert drive.engine.stats().preemptions == 0


def test_younger_jobs_do_not_starve_one_that_waits_for_room() -> None:
    drive = Drive(slots=4, kv_tokens=200, context_tokens=180, end_every=None)
    drive.submit(job("first", distinct(0, 40), max_tokens=20), job("large", distinct(1, 170), max_tokens=5))
    for i in range(30):  # small ones that would fit beside the first arrive all the time
        drive.submit(job(f"young{i}", distinct(2 + i, 10), max_tokens=5))
        drive.step()
    drive.drain()
    assert drive.started_order[:3] == ["first", "large", "young0"]


@pytest.mark.parametrize("kv_tokens", [130, 250, 600])
@pytest.mark.parametrize("slots", [1, 3, 16])
def test_jobs_start_in_the_order_they_came(kv_tokens: int, slots: int) -> None:
    drive = Drive(slots=slots, kv_tokens=kv_tokens, context_tokens=120, end_every=15)
    names = [f"j{i}" for i in range(20)]
    drive.submit(*(job(name, distinct(i, 5 + 37 * i % 90), max_tokens=1 + 11 * i % 30) for i, name in enumerate(names)))
    drive.drain()
    assert drive.started_order == names


def test_a_stream_may_grow_to_the_whole_cache() -> None:
    drive = Drive(slots=4, kv_tokens=128, context_tokens=128, end_every=None)
    drive.submit(job("kept", distinct(0, 60), max_tokens=2))
    drive.drain()
    answers = drive.submit(job("a", distinct(1, 100), max_tokens=None)).drain()
    assert (answers["a", 0].reason, answers["a", 0].completion_tokens) == ("length", 28)


def test_a_prompt_larger_than_the_whole_cache_is_not_kept_waiting_for_ever() -> None:
    """The cache may be smaller than the context: refused when it is made, or when the job is submitted."""
    with pytest.raises((ValueError, BackendError)):
        Drive(slots=2, kv_tokens=64, context_tokens=128, end_every=None).submit(job("a", "x" * 100)).drain()


class SmallerThanItSays(StrictBackend):
    """Some libraries keep a part of the cache for themselves: the ledger is then too hopeful."""

    def __init__(self, *, cells: int, **options: Any) -> None:
        super().__init__(clock=Clock(), **options)
        self._usable_cells = cells

    def forward(self, rows: list[Row]) -> Logits:
        if self.used_cells + len(rows) > self._usable_cells:
            raise KVCacheFullError(f"{self.used_cells} cells in use, {len(rows)} wanted")
        return super().forward(rows)


@pytest.mark.parametrize("row_s", [0.01, 1e-6])
@pytest.mark.parametrize("lengths", [(80, 80), (40, 40, 40, 40), (100, 20, 100), (16, 130, 17)])
def test_a_cache_with_less_room_than_it_says_still_serves_everyone(lengths: tuple[int, ...], row_s: float) -> None:
    backend = SmallerThanItSays(cells=150, kv_tokens=200, context_tokens=140, row_s=row_s, end_every=None)
    drive = Drive(slots=4, backend=backend)
    drive.submit(job("warm", distinct(9, 30), max_tokens=9)).drain()
    jobs: list[Job] = [job(f"j{i}", distinct(i, n), max_tokens=9) for i, n in enumerate(lengths)]
    answers = drive.submit(*jobs).drain()
    for each in jobs:
        assert answers[each.id, 0] == alone(each, end_every=None)[each.id, 0]
