"""Drives an engine step by step, and checks at each step what its contract promises whatever the workload.

It knows the fake backend only; `tests/contract/test_engine_on_backends.py` drives real ones.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from appliance.protocol import Delta, Event, Failed, Finished, Queued, Sampling, Started, Stopping, TokenLogprob, Usage
from runtimes.contracts import BackendError, KVCacheFullError, Logits, Row
from runtimes.engine import Engine, Job
from runtimes.engine.engine import FIRST_PAUSE_S
from runtimes.engine.scheduler import Plan
from runtimes.fake import FakeBackend

GREEDY = Sampling(temperature=0.0)
MOST_STEPS = 20_000  # no workload here needs as many: an engine that takes more has stalled


class Clock:
    """A clock that moves only when it is told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class StrictBackend(FakeBackend):
    """The fake with the limits of a real library, a price for each row, and faults on order."""

    def __init__(self, *, clock: Clock, row_s: float = 0.001, **options: Any) -> None:
        super().__init__(**options)
        self._clock = clock
        self._row_s = row_s
        self.batches: list[list[Row]] = []
        self.calls = 0
        self.full_at: set[int] = set()  # calls of `forward` that find no room
        self.broken_at: set[int] = set()
        self.spoil: Callable[[list[Row], Logits], None] = lambda rows, logits: None

    def forward(self, rows: list[Row]) -> Logits:
        call, self.calls = self.calls, self.calls + 1
        if call in self.full_at:
            raise KVCacheFullError("no room, as the test ordered")
        if call in self.broken_at:
            raise BackendError("broken, as the test ordered")
        for row in rows:
            assert 0 <= row.sequence < self.info.max_sequences
            assert 0 <= row.position < self.info.context_tokens
            assert 0 <= row.token < self.info.n_vocab
        assert len(rows) <= self.info.max_batch_tokens
        logits = super().forward(rows)
        self.batches.append(rows)
        self._clock.now_s += self._row_s * len(rows)
        self.spoil(rows, logits)
        return logits

    def fork(self, source: int, target: int, n_tokens: int) -> None:
        used = self.used_cells
        super().fork(source, target, n_tokens)
        assert self.used_cells == used


class ScriptedBackend(StrictBackend):
    """Says `script` after a prompt of any `prompt_tokens`, then ends."""

    def __init__(self, script: bytes, *, prompt_tokens: int, clock: Clock, **options: Any) -> None:
        super().__init__(clock=clock, **options)
        self._script = [*script, *self.info.end_tokens]
        self._prompt_tokens = prompt_tokens

    def _logits(self, sequence: int) -> Logits:
        logits = super()._logits(sequence)
        said = len(self.tokens_of(sequence)) - self._prompt_tokens
        if said >= 0:
            logits[self._script[min(said, len(self._script) - 1)]] = 100.0
        return logits


@dataclass(frozen=True, slots=True)
class Answer:
    """What one choice said, however it was cut into events."""

    text: str
    reason: str
    completion_tokens: int
    logprobs: tuple[TokenLogprob, ...]


def job(
    name: str,
    prompt: str | Iterable[int],
    *,
    max_tokens: int | None = 10,
    sampling: Sampling = GREEDY,
    n: int = 1,
    logprobs: int | None = None,
    **stopping: Any,
) -> Job:
    tokens = tuple(prompt.encode() if isinstance(prompt, str) else prompt)
    return Job(name, tokens, sampling, Stopping(max_tokens=max_tokens, **stopping), n=n, logprobs=logprobs)


class Drive:
    def __init__(
        self, *, slots: int = 4, step_target_s: float = 0.05, backend: StrictBackend | None = None, **options: Any
    ):
        self.clock = Clock() if backend is None else backend._clock
        self.backend = backend or StrictBackend(clock=self.clock, **options)
        self.engine = Engine(self.backend, slots=slots, step_target_s=step_target_s, clock=self.clock)
        self.slots = slots
        self.events: dict[tuple[str, int], list[Event]] = defaultdict(list)
        self.cancelled: set[str] = set()
        self.started_order: list[str] = []

    def submit(self, *jobs: Job) -> "Drive":
        for each in jobs:
            self.engine.submit(each)
            self.check_cells()
        return self

    def cancel(self, name: str) -> None:
        self.engine.cancel(name)
        self.cancelled.add(name)
        self.check_cells()

    def step(self) -> list[tuple[str, Event]]:
        streams = [(s, s.generated) for s in self.engine._scheduler.running if s.decoding]
        prompts = any(not s.decoding for s in [*self.engine._scheduler.running, *self.engine._scheduler.waiting])
        computed, now_s = len(self.backend.batches), self.clock()
        events = self.engine.step()
        went = len(self.backend.batches) > computed
        for sequence, generated in streams:
            failed = (sequence.job.id, sequence.choice) in {(n, e.choice) for n, e in events if isinstance(e, Failed)}
            if went and not failed and sequence not in self.engine._scheduler.waiting:
                just_begun = generated == 1 and now_s - sequence.first_token_s < FIRST_PAUSE_S
                assert (just_begun and prompts) or sequence.allowed or sequence.generated == generated + 1, (
                    "a resident stream was left out of a step"
                )
        for name, event in events:
            assert name not in self.cancelled, "a cancelled job spoke"
            self._take(name, event)
        self.check_cells()
        assert self.engine.stats().running <= self.slots
        return events

    def drain(self) -> dict[tuple[str, int], Answer]:
        for _ in range(MOST_STEPS):
            if self.engine.idle:
                return self.answers()
            self.step()
        raise AssertionError("the engine makes no progress")

    def answers(self) -> dict[tuple[str, int], Answer]:
        """The choices that finished."""
        return {key: answer(events) for key, events in self.events.items() if isinstance(events[-1], Finished)}

    def check_cells(self) -> None:
        stats = self.engine.stats()
        assert self.backend.used_cells == stats.kv_used_tokens
        assert stats.kv_used_tokens <= stats.kv_total_tokens

    def drop_retained(self) -> None:
        """Frees the prefixes kept for later, as a prompt that needs all cells would."""
        plan = Plan()
        self.engine._scheduler._evict_for(plan, self.backend.info.kv_tokens)
        self.engine._carry_out(plan.operations)

    def check_nothing_is_held(self) -> None:
        assert self.engine.idle
        self.drop_retained()
        stats = self.engine.stats()
        assert (stats.running, stats.waiting, stats.retained_sequences) == (0, 0, 0)
        assert stats.kv_used_tokens == self.backend.used_cells == 0
        assert sorted(self.engine._scheduler._free_slots) == list(range(self.backend.info.max_sequences))
        assert not self.engine._scheduler._computed

    def _take(self, name: str, event: Event) -> None:
        assert not isinstance(event, Usage | Queued), "an engine knows no money, and no queue but its own"
        before = self.events[name, event.choice]
        if isinstance(event, Started):
            assert not before, "Started comes first, and once"
            assert event.queue_s >= 0
            assert 0 <= event.cached_tokens < event.prompt_tokens
            self.started_order.append(name)
        else:
            assert before, f"{event} came before Started"
            assert not isinstance(before[-1], Finished | Failed), "nothing comes after the end"
        before.append(event)


def answer(events: list[Event]) -> Answer:
    """Puts one choice's events together; its grammar is checked by `Drive`."""
    deltas = [event for event in events if isinstance(event, Delta)]
    end = events[-1]
    assert isinstance(end, Finished)
    assert sum(delta.tokens for delta in deltas) <= end.completion_tokens
    return Answer(
        "".join(delta.text for delta in deltas),
        end.reason,
        end.completion_tokens,
        tuple(entry for delta in deltas for entry in delta.logprobs),
    )


def alone(each: Job, **options: Any) -> dict[tuple[str, int], Answer]:
    """What a job says with the whole engine to itself, one choice after the other."""
    return Drive(slots=1, kv_tokens=4096, **options).submit(each).drain()
