"""The step loop over one backend: submit jobs, call `step` until it is idle, get events.

One thread drives it. It knows no processes, no sockets and no templates; time is passed in.
"""

import secrets
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass

import numpy as np

from appliance.protocol import Delta, Event, Failed, Finished, FinishReason, Started
from runtimes.contracts import (
    Backend,
    BackendError,
    ConstraintError,
    KVCacheFullError,
    Logits,
    SavedCells,
)
from runtimes.engine.batching import Share, saved, share
from runtimes.engine.logprobs import token_logprob
from runtimes.engine.sampler import Sampler
from runtimes.engine.scheduler import Forget, Fork, Limits, Operation, Plan, Restore, Save, Scheduler, Truncate
from runtimes.engine.sequence import UNPLACED, Job, Sequence
from runtimes.engine.step_time import StepTime
from runtimes.engine.stop_matcher import StopMatcher
from runtimes.engine.thinking import Mind

# A stream that has just begun lets the prompts that came with it have their first tokens too, for so long at most.
# Of 16 prompts at once the last waited 1.11 times as long as in the C++ server with it, 1.31 times without (5 pairs).
FIRST_PAUSE_S = 1.0
HELPERS = 4  # threads that follow constraints; one that takes its time must not hold up the others
LONGEST_WAIT_S = 0.05  # for them, while the model has nothing to compute and a command may come


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A snapshot. Counters count from the start of the engine."""

    slots: int
    running: int
    waiting: int
    kv_used_tokens: int
    kv_total_tokens: int
    retained_sequences: int
    archived_tokens: int
    steps: int
    prompt_tokens: int
    computed_prompt_tokens: int  # rows of prompts that were computed, again after a preemption too
    cached_prompt_tokens: int
    generated_tokens: int
    preemptions: int
    last_step_s: float
    step_drift: float  # what steps of streams take now, against the cost curve


class Engine:
    def __init__(
        self,
        backend: Backend,
        *,
        slots: int,
        step_target_s: float,
        clock: Callable[[], float],
        itl_target_s: float = 0.0,
    ) -> None:
        """`itl_target_s`: what a step with critical streams may take, however much less it could."""
        info = backend.info
        self.info = info
        if info.context_tokens > info.kv_tokens:
            raise ValueError(f"a context of {info.context_tokens} tokens does not fit a cache of {info.kv_tokens}")
        if slots > min(info.max_sequences - 1, info.max_batch_tokens):
            room = f"{info.max_sequences} sequences and {info.max_batch_tokens} rows"
            raise ValueError(f"{slots} slots are too many for {room}")
        self._backend = backend
        self._clock = clock
        self._scheduler = Scheduler(
            Limits(slots, info.max_sequences, info.kv_tokens, info.shares_prefixes, info.archive_tokens)
        )
        self._saved: dict[int, SavedCells] = {}  # cells in host memory, by the scheduler's keys
        self.step_time = StepTime(step_target_s, info.max_batch_tokens, slots=slots)
        self._itl_target_s = itl_target_s
        self._critical_s: float | None = None  # when critical work was seen last
        self._others_s = 0.0  # when other work had a row last, or there was none
        self._saved_s = 0.0  # of the time of critical streams, for others
        self._end_tokens = frozenset(info.end_tokens)
        self._helpers = ThreadPoolExecutor(HELPERS, thread_name_prefix="constraints")
        self._undrawn: dict[Sequence, Logits] = {}  # computed, while it is not known what they may say
        self._jobs: dict[str, list[Sequence]] = {}
        self._steps = self._prompt_tokens = self._computed_prompt_tokens = self._cached_prompt_tokens = 0
        self._generated_tokens = 0
        self._last_step_s = 0.0

    @property
    def idle(self) -> bool:
        return not self._jobs

    def submit(self, job: Job) -> None:
        """Queues a job, beside others of the same id.

        Its prompt must be 1 to `context_tokens` - 1 tokens of the vocabulary.
        """
        prompt = np.array(job.prompt, dtype=np.int32)
        stopping = job.stopping
        thinks_first = job.thinking is not None and job.constraint is not None  # it may not end before it has answered
        forbidden = self.info.end_tokens if stopping.ignore_eos or stopping.min_tokens or thinks_first else ()
        room = self.info.context_tokens - len(job.prompt)
        length = len(job.prompt) + (room if stopping.max_tokens is None else min(room, stopping.max_tokens))
        # One seed gives n different choices, the same ones each time.
        seed = secrets.randbits(64) if job.sampling.seed is None else job.sampling.seed % 2**64
        siblings = self._jobs.setdefault(job.id, [])
        for i in range(job.n):
            choice = job.first_choice + i
            sequence = Sequence(
                job=job,
                choice=choice,
                sampler=Sampler(job.sampling, self.info.n_vocab, (seed, choice), prompt, forbidden),
                stops=StopMatcher(() if job.stops_until == "" else stopping.stop, job.stops_until),
                arrived_s=self._clock(),
                tokens=list(job.prompt),
                max_length=length,
                constraint=job.constraint.fork() if job.constraint is not None else None,
                mind=Mind(job.thinking) if job.thinking is not None else None,
            )
            siblings.append(sequence)
            self._scheduler.add(sequence)

    def cancel(self, job_id: str) -> None:
        """Frees all that the jobs of this id hold; what their prompts computed stays as a prefix for others."""
        self._carry_out(self._scheduler.finish(self._jobs.pop(job_id, [])))

    def step(self) -> list[tuple[str, Event]]:
        """One forward pass and what came of it, by job. Raises `BackendError` when the model is beyond use."""
        began_s = self._clock()
        events = self._draw_late()
        running = self._scheduler.running
        patient = [s for s in running if s.generated == 1 and began_s - s.first_token_s < FIRST_PAUSE_S]
        plan = self._scheduler.schedule(self._share(patient, began_s), patient)
        self._carry_out(plan.operations)
        if not plan.rows:
            if self._undrawn:  # there is nothing else to do
                wait([s.allowed for s in self._undrawn if s.allowed], LONGEST_WAIT_S, FIRST_COMPLETED)
            return events
        self._look_ahead(plan.sampled)
        try:
            logits = self._backend.forward(plan.rows)
        except KVCacheFullError as error:
            operations = self._scheduler.undo(plan)
            if not operations:
                raise BackendError(f"one sequence alone does not fit the KV cache: {error}") from error
            self._carry_out(operations)
            return events
        events += [(s.job.id, self._start(s, began_s)) for s in self._scheduler.running if not s.started]
        sampled = plan.sampled
        self._scheduler.commit(plan)
        self._computed_prompt_tokens += len(plan.rows) - plan.decode_rows
        for sequence, row in zip(sampled, logits, strict=True):
            if sequence.allowed is None or sequence.allowed.done():
                events += self._draw_next(sequence, row)
            else:
                self._undrawn[sequence] = row.copy()
        self._steps += 1
        self._last_step_s = self._clock() - began_s
        self._learn(plan, began_s)
        return events

    def _learn(self, plan: Plan, began_s: float) -> None:
        """From how long a step took, and for whom it was."""
        rows_of_critical = [n for sequence, n in plan.parts if sequence.critical]
        if len(rows_of_critical) < len(plan.parts):
            self._others_s = began_s
        if rows_of_critical and max(rows_of_critical) == 1:
            alone_s = self.step_time.streams_s(len(rows_of_critical))
            self._saved_s = saved(self._saved_s, alone_s, self._last_step_s)
        if plan.decode_rows == len(plan.rows):
            self.step_time.observe_streams(plan.decode_rows, self._scheduler.cells.used, self._last_step_s)
        if plan.decode_rows * 2 <= len(plan.rows):  # a row of a stream costs more than a prompt's: it has logits
            self.step_time.observe(len(plan.rows), self._last_step_s)

    def save_ahead(self) -> bool:
        """For a moment without work: copies one finished sequence to host memory, so that no step has to wait for
        that later. Whether there was one."""
        operations = self._scheduler.save_ahead()
        self._carry_out(operations)
        return bool(operations)

    def stats(self) -> EngineStats:
        scheduler = self._scheduler
        return EngineStats(
            slots=scheduler.limits.slots,
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            kv_used_tokens=scheduler.cells.used,
            kv_total_tokens=scheduler.cells.capacity,
            retained_sequences=scheduler.retained_sequences,
            archived_tokens=scheduler.archive.used_tokens,
            steps=self._steps,
            prompt_tokens=self._prompt_tokens,
            computed_prompt_tokens=self._computed_prompt_tokens,
            cached_prompt_tokens=self._cached_prompt_tokens,
            generated_tokens=self._generated_tokens,
            preemptions=scheduler.preemptions,
            last_step_s=self._last_step_s,
            step_drift=self.step_time.drift,
        )

    def _share(self, patient: list[Sequence], now_s: float) -> Share:
        crowd = self._scheduler.crowd(patient)
        if crowd.critical_streams or crowd.critical_prompts:
            self._critical_s = now_s
        if all(s.critical for s in (*self._scheduler.running, *self._scheduler.waiting)):
            self._others_s = now_s
        critical_s = None if self._critical_s is None else now_s - self._critical_s
        return share(
            crowd,
            self.step_time,
            critical_s=critical_s,
            rested_s=now_s - self._others_s,
            saved_s=self._saved_s,
            itl_target_s=self._itl_target_s,
        )

    def _carry_out(self, operations: list[Operation]) -> None:
        for operation in operations:
            match operation:
                case Fork():
                    self._backend.fork(operation.source, operation.target, operation.n_tokens)
                case Truncate():
                    self._backend.truncate(operation.sequence, operation.n_tokens)
                case Save():
                    self._saved[operation.key] = self._backend.save(operation.sequence)
                case Restore():
                    self._backend.restore(operation.sequence, self._saved[operation.key])
                case Forget():
                    self._saved.pop(operation.key, None)

    def _start(self, sequence: Sequence, now_s: float) -> Started:
        sequence.started = True
        self._prompt_tokens += sequence.prompt_tokens
        self._cached_prompt_tokens += sequence.cached_tokens
        return Started(
            choice=sequence.choice,
            prompt_tokens=sequence.prompt_tokens,
            cached_tokens=sequence.cached_tokens,
            queue_s=max(0.0, now_s - sequence.arrived_s),
            prompt_text=sequence.job.prompt_text,
            thinking=sequence.job.thinking is not None and sequence.job.thinking.begun,
        )

    def _look_ahead(self, sampled: list[Sequence]) -> None:
        """Lets other threads find out, while the model computes, what constrained sequences may say next."""
        for sequence in sampled:
            if sequence.constraint is not None and sequence.bound and sequence.allowed is None:
                sequence.allowed = self._helpers.submit(sequence.constraint.allowed)

    def _draw_late(self) -> list[tuple[str, Event]]:
        """Goes on with sequences whose constraint took longer than a step, which nobody else has waited for."""
        events: list[tuple[str, Event]] = []
        for sequence, row in list(self._undrawn.items()):
            if sequence.slot == UNPLACED or sequence.rows_left:  # it had to step back, and will be computed again
                del self._undrawn[sequence]
            elif sequence.allowed is not None and sequence.allowed.done():
                del self._undrawn[sequence]
                events += self._draw_next(sequence, row)
        return events

    def _draw_next(self, sequence: Sequence, logits: Logits) -> list[tuple[str, Event]]:
        news = self._advance(sequence, logits)
        if news and isinstance(news[-1], Finished | Failed):
            # What a broken distribution came from must not become another request's prefix.
            self._carry_out(self._scheduler.finish([sequence], retain=isinstance(news[-1], Finished)))
            self._leave(sequence)
        return [(sequence.job.id, event) for event in news]

    def _advance(self, sequence: Sequence, logits: Logits) -> list[Event]:
        """Draws a sequence's next token; says what can be shown of it, and whether that was the last."""
        job = sequence.job
        try:
            token = self._draw(sequence, logits)
        except BackendError as error:
            return [Failed(sequence.choice, "engine_crashed", str(error))]
        except ConstraintError as error:
            return [Failed(sequence.choice, "invalid_request", str(error))]
        logprob = None
        sequence.measure(logits)
        if job.logprobs is not None:
            logprob = token_logprob(logits, token, job.logprobs, self._token_bytes)
        sequence.tokens.append(token)
        if sequence.generated == 1:
            sequence.first_token_s = self._clock()
        self._generated_tokens += 1
        ended = token in self._end_tokens
        piece = self._backend.piece(token) or sequence.mark(token)
        text = sequence.detokenizer.flush() if ended else sequence.detokenizer.feed(piece)
        sequence.hold(text, None if ended else logprob)
        answers = sequence.mind is None or sequence.mind.saw(token)
        shown = sequence.stops.feed(text) if answers else text
        reason: FinishReason | None = None
        if sequence.stops.stopped_by is not None:
            return self._end(sequence, shown, "stop", everything=False)
        if ended:
            reason = "stop"
        elif len(sequence.tokens) >= sequence.max_length:
            reason = "length"
            shown += sequence.stops.feed(sequence.detokenizer.flush())
        if reason is not None:
            if sequence.stops.stopped_by is None:
                shown += sequence.stops.flush()
            return self._end(sequence, shown, reason, everything=True)
        delta = sequence.release(shown)
        return [delta] if delta else []

    def _draw(self, sequence: Sequence, logits: Logits) -> int:
        stopping, mind = sequence.job.stopping, sequence.mind
        if mind is not None and (forced := mind.forced()) is not None:
            return forced
        if sequence.constraint is None or sequence.allowed is None:
            may_end = sequence.generated >= stopping.min_tokens and not stopping.ignore_eos
            return sequence.sampler.draw(logits, may_end=may_end and sequence.constraint is None)
        # An answer that must have a form ends where the form does.
        allowed, sequence.allowed = sequence.allowed.result(), None
        begins_to_think = mind.thinking.opening if mind is not None and mind.state == "undecided" else None
        if begins_to_think is not None:
            allowed = allowed.copy()
            allowed[begins_to_think] = True
        token = sequence.sampler.draw(logits, may_end=True, allowed=allowed)
        if token != begins_to_think:
            sequence.constraint.accept(token)
        return token

    def _end(self, sequence: Sequence, shown: str, reason: FinishReason, *, everything: bool) -> list[Event]:
        delta: Delta | None = sequence.release(shown, everything=everything)
        end = Finished(sequence.choice, reason, sequence.generated, sequence.mean_margin)
        return [delta, end] if delta else [end]

    def _leave(self, sequence: Sequence) -> None:
        siblings = self._jobs.get(sequence.job.id, [])
        if sequence in siblings:
            siblings.remove(sequence)
        if not siblings:
            self._jobs.pop(sequence.job.id, None)

    def _token_bytes(self, token: int) -> bytes:
        return self._backend.piece(token) or self._backend.token_text(token).encode()
