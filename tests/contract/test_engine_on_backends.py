"""The engine on each backend. What a real model says in other batches may differ: its kernels round differently."""

import time
from collections.abc import Callable

import pytest

from appliance.protocol import Delta, Event, Failed, Finished, Queued, Sampling, Started, Stopping, Usage
from runtimes.contracts import Backend
from runtimes.engine import Engine, Job

QUESTION = "List the days of the week, in order, starting with Monday: Monday, Tuesday, Wednesday,"
GREEDY = Sampling(temperature=0.0)
Asker = Callable[..., Job]


@pytest.fixture
def engine(backend: Backend) -> Engine:
    return Engine(backend, slots=8, step_target_s=0.2, clock=time.monotonic)


@pytest.fixture
def ask(backend: Backend) -> Asker:
    def make(name: str, text: str = QUESTION, *, max_tokens: int = 12, n: int = 1, **options: object) -> Job:
        tokens = tuple(backend.tokenize(text, add_special=False, parse_special=False))
        logprobs = options.pop("logprobs", None)
        assert logprobs is None or isinstance(logprobs, int)
        sampling = options.pop("sampling", GREEDY)
        assert isinstance(sampling, Sampling)
        stopping = Stopping(max_tokens=max_tokens, **options)  # type: ignore[arg-type] # its own keywords
        return Job(name, tokens, sampling, stopping, n=n, logprobs=logprobs)

    return make


def run(engine: Engine, *jobs: Job) -> dict[tuple[str, int], list[Event]]:
    for each in jobs:
        engine.submit(each)
    events: dict[tuple[str, int], list[Event]] = {}
    for _ in range(5_000):
        if engine.idle:
            return events
        for name, event in engine.step():
            assert not isinstance(event, Usage | Queued), "an engine knows no money, and no queue but its own"
            events.setdefault((name, event.choice), []).append(event)
    raise AssertionError("the engine makes no progress")


def text(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Delta))


def started(events: list[Event]) -> Started:
    assert isinstance(events[0], Started)
    return events[0]


def finished(events: list[Event]) -> Finished:
    assert isinstance(events[-1], Finished), events[-1]
    return events[-1]


def test_a_job_says_something_and_finishes(engine: Engine, ask: Asker) -> None:
    events = run(engine, ask("a"))["a", 0]
    assert text(events)
    assert finished(events).completion_tokens <= 12
    assert started(events).prompt_tokens == len(ask("a").prompt)


def test_the_same_job_twice_says_the_same(backend: Backend, ask: Asker) -> None:
    """Each on an engine of its own, so that neither shares what the other computed."""
    said = []
    for _ in range(2):
        for sequence in range(backend.info.max_sequences):
            backend.truncate(sequence, 0)
        engine = Engine(backend, slots=8, step_target_s=0.2, clock=lambda: 0.0)
        engine.step_time.row_s = 0.001  # chunks of one size: the batch's shape is the only thing that may differ
        said.append(text(run(engine, ask("a"))["a", 0]))
    assert said[0] == said[1]


def test_eight_jobs_at_once_all_finish(engine: Engine, ask: Asker) -> None:
    jobs = [ask(f"j{i}", f"The number {i} is", max_tokens=8) for i in range(8)]
    events = run(engine, *jobs)
    for each in jobs:
        assert 1 <= finished(events[each.id, 0]).completion_tokens <= 8
    assert engine.stats().running == 0


def test_a_prompt_seen_before_is_not_computed_again(engine: Engine, ask: Asker) -> None:
    long = QUESTION * 2
    first = run(engine, ask("a", long))["a", 0]
    again = run(engine, ask("b", long))["b", 0]
    assert started(first).cached_tokens == 0
    assert started(again).cached_tokens == len(ask("b", long).prompt) - 1


def test_the_choices_of_one_request_share_their_prompt(engine: Engine, ask: Asker) -> None:
    job = ask("a", QUESTION * 2, n=3, sampling=Sampling(temperature=1.0, seed=4), max_tokens=6)
    events = run(engine, job)
    assert all(finished(events["a", choice]) for choice in range(3))
    assert engine.stats().computed_prompt_tokens < 2 * len(job.prompt)


def test_a_cancelled_job_gives_its_cells_back(backend: Backend, engine: Engine, ask: Asker) -> None:
    for when in (0, 1, 4):
        engine.submit(ask("a", "x", max_tokens=50, ignore_eos=True))
        for _ in range(when):
            engine.step()
        engine.cancel("a")
        assert engine.idle
        assert engine.stats().kv_used_tokens == 0  # too short to be kept as a prefix
        assert engine.step() == []


def test_traffic_larger_than_the_cache_is_served(engine: Engine, ask: Asker) -> None:
    """Eight prompts that together need more cells than there are: they wait, step back and finish."""
    cells = engine.info.kv_tokens
    jobs = [ask(f"j{i}", f"{i}. {QUESTION}"[: cells // 4], max_tokens=24, ignore_eos=True) for i in range(8)]
    assert sum(len(each.prompt) + 24 for each in jobs) > cells
    events = run(engine, *jobs)
    for each in jobs:
        assert finished(events[each.id, 0]).completion_tokens == 24


def test_a_full_context_ends_with_length(engine: Engine, ask: Asker) -> None:
    prompt = ask("x", QUESTION * 20).prompt[: engine.info.context_tokens - 3]
    job = Job("a", prompt, GREEDY, Stopping(ignore_eos=True))
    events = run(engine, job)["a", 0]
    assert (finished(events).reason, finished(events).completion_tokens) == ("length", 3)


def test_logprobs_spell_the_text(engine: Engine, ask: Asker) -> None:
    events = run(engine, ask("a", logprobs=3, ignore_eos=True))["a", 0]
    entries = [entry for event in events if isinstance(event, Delta) for entry in event.logprobs]
    assert len(entries) == finished(events).completion_tokens
    assert b"".join(entry.token for entry in entries).decode(errors="replace") == text(events)
    for entry in entries:
        assert entry.logprob <= 0
        assert [top.logprob for top in entry.top] == sorted((top.logprob for top in entry.top), reverse=True)
        assert entry.top[0].token_id == entry.token_id  # greedy


def test_a_stop_string_is_not_shown(engine: Engine, ask: Asker) -> None:
    whole = text(run(engine, ask("a", max_tokens=12))["a", 0])
    stop = whole[len(whole) // 2 :][:3]
    events = run(engine, ask("b", max_tokens=12, stop=(stop,)))["b", 0]
    assert stop not in text(events)


def test_no_job_fails(engine: Engine, ask: Asker) -> None:
    hot = Sampling(temperature=1.5, top_p=0.9, top_k=50, min_p=0.01, repetition_penalty=1.1, seed=1)
    events = run(engine, *(ask(f"j{i}", max_tokens=10, sampling=hot, n=2) for i in range(3)))
    assert not [each for said in events.values() for each in said if isinstance(each, Failed)]
