"""Prefixes are computed once and shared, between choices, neighbours and turns."""

from itertools import count

import pytest

from appliance.protocol import Started
from runtimes.engine import Job
from runtimes.engine.scheduler import RETAIN_FOR_WORK_TOKENS
from tests.contract.engine_driver import Clock, Drive, StrictBackend, alone, job

SYSTEM = "".join(chr(33 + (i * i + 7 * i) % 90) for i in range(1_000))  # 1,000 tokens


def unlike(i: int, length: int) -> list[int]:
    """A text of which only the first token tells it from others: the least that two prompts can differ in."""
    return [128 + i, *([ord("s")] * (length - 1))]


def cached(drive: Drive, name: str, choice: int = 0) -> int:
    start = drive.events[name, choice][0]
    assert isinstance(start, Started)
    return start.cached_tokens


def computed(drive: Drive) -> int:
    return drive.engine.stats().computed_prompt_tokens


def large(**options: int) -> Drive:
    backend = StrictBackend(clock=Clock(), row_s=1e-6, kv_tokens=8192, context_tokens=2048, end_every=None, **options)
    return Drive(slots=16, backend=backend)


# The chunks in which a prefix is computed end at other places with each of these: some just before its end.
@pytest.mark.parametrize("rows", [64, 128, 163, 256, 489, 512, 977, 2048])
def test_forty_jobs_at_once_compute_their_prefix_once(rows: int) -> None:
    prefix = list(SYSTEM.encode())
    jobs = [job(f"j{i}", [*prefix, *unlike(i, 20)], max_tokens=3) for i in range(40)]
    drive = large(max_batch_tokens=rows)
    answers = drive.submit(*jobs).drain()
    assert computed(drive) <= 1.1 * (len(prefix) + 40 * 20)
    assert sum(cached(drive, each.id) for each in jobs) == 40 * 1020 - computed(drive)
    assert answers["j39", 0] == alone(jobs[39], context_tokens=2048, end_every=None)["j39", 0]


def test_the_choices_of_one_request_share_its_prompt() -> None:
    drive = large()
    drive.submit(job("a", SYSTEM, n=8, max_tokens=4)).drain()
    assert computed(drive) <= len(SYSTEM) + 7 * 16
    assert {events[0].prompt_tokens for events in drive.events.values() if isinstance(events[0], Started)} == {1_000}


def test_the_next_turn_of_a_conversation_computes_only_what_is_new() -> None:
    drive = large()
    first = drive.submit(job("a", SYSTEM, max_tokens=30)).drain()["a", 0]
    history = SYSTEM + first.text
    drive.submit(job("b", history + " And then?", max_tokens=5)).drain()
    # The newest token of an answer is not computed when it ends.
    assert cached(drive, "b") == len(history) - 1


def test_the_same_prompt_again_computes_its_last_token_only() -> None:
    drive = large()
    first = drive.submit(job("a", SYSTEM)).drain()["a", 0]
    again = drive.submit(job("b", SYSTEM)).drain()["b", 0]
    assert cached(drive, "b") == len(SYSTEM) - 1
    assert again == first


def test_a_cancelled_prompt_leaves_what_it_computed_to_others() -> None:
    drive = large(max_batch_tokens=256)
    drive.submit(job("a", SYSTEM))
    for _ in range(3):
        drive.step()
    done = drive.engine._scheduler.running[0].computed
    assert 0 < done < len(SYSTEM)
    drive.cancel("a")
    drive.submit(job("b", SYSTEM)).drain()
    assert cached(drive, "b") == done


def test_a_job_that_waits_for_a_prefix_goes_on_when_its_owner_is_cancelled() -> None:
    drive = large(max_batch_tokens=64)
    drive.submit(job("a", SYSTEM), job("b", SYSTEM + "b"), job("c", SYSTEM + "c"))
    for _ in range(4):
        drive.step()
    drive.cancel("a")
    answers = drive.drain()
    assert set(answers) == {("b", 0), ("c", 0)}
    assert computed(drive) <= len(SYSTEM) + 2 * 16


def test_a_job_that_waits_for_room_keeps_the_prefix_it_will_share() -> None:
    """Evicting it would free no room for this job: it would have to be computed again."""
    drive = Drive(slots=4, kv_tokens=1_000, context_tokens=900, end_every=None)
    prefix = "p" * 300
    drive.submit(job("turn1", prefix + "abc", max_tokens=2)).drain()
    drive.submit(job("other", "q" * 300, max_tokens=200))
    while drive.engine.stats().generated_tokens < 10:
        drive.step()
    drive.submit(job("turn2", prefix + "z" * 400, max_tokens=2)).drain()
    assert drive.started_order == ["turn1", "other", "turn2"]
    assert cached(drive, "turn2") == 300


def test_a_job_that_waits_for_room_leaves_others_prefixes_alone() -> None:
    """What cannot make enough room is not worth losing."""
    drive = Drive(slots=4, kv_tokens=1_000, context_tokens=900, end_every=None)
    drive.submit(job("turn1", "p" * 200, max_tokens=2)).drain()
    drive.submit(job("other", "q" * 300, max_tokens=100))
    while drive.engine.stats().generated_tokens < 12:
        drive.step()
    drive.submit(job("waits", "z" * 800, max_tokens=2))
    for _ in range(5):
        drive.step()
    assert drive.engine.stats().waiting == 1
    assert drive.engine.stats().retained_sequences == 1


def test_a_prefix_that_nobody_asked_for_in_a_long_time_is_forgotten() -> None:
    drive = large()
    drive.submit(job("old", "o" * 50, max_tokens=1)).drain()
    for i in count():
        drive.submit(job(f"new{i}", unlike(i % 100, 1_000), max_tokens=1)).drain()
        if drive.engine.stats().computed_prompt_tokens > RETAIN_FOR_WORK_TOKENS + 2_000:
            break
    drive.submit(job("again", "o" * 50, max_tokens=1)).drain()
    assert cached(drive, "again") == 0


def test_a_prefix_in_use_is_kept() -> None:
    drive = Drive(slots=2, max_sequences=3, kv_tokens=4096, context_tokens=1024, end_every=None)
    for i in range(12):
        drive.submit(job(f"hot{i}", "h" * 100 + f"{i:02}", max_tokens=1), job(f"cold{i}", unlike(i, 60), max_tokens=1))
        drive.drain()
    assert all(cached(drive, f"hot{i}") >= 100 for i in range(1, 12))


def test_short_prefixes_are_not_worth_sharing_and_do_no_harm() -> None:
    jobs: list[Job] = [job(f"j{i}", "ab" * (i % 4 + 1) + "c" * i) for i in range(8)]
    answers = Drive(end_every=None).submit(*jobs).drain()
    for each in jobs:
        assert answers[each.id, 0] == alone(each, end_every=None)[each.id, 0]


def test_a_model_that_cannot_share_prefixes_computes_each_prompt_whole() -> None:
    clock = Clock()
    backend = StrictBackend(clock=clock, end_every=None)
    backend._info = type(backend.info)(
        **{field: getattr(backend.info, field) for field in backend.info.__slots__} | {"shares_prefixes": False}
    )
    drive = Drive(backend=backend)
    drive.submit(job("a", "same prompt " * 5), job("b", "same prompt " * 5)).drain()
    assert cached(drive, "a") == cached(drive, "b") == 0
    assert computed(drive) == 120
    assert drive.engine.stats().retained_sequences == 0
    assert backend.used_cells == 0
