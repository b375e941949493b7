"""A daemon on virtual time: the policies of admission and of the step loop, with a simulated engine below them.

What it leaves out is what the daemon itself costs: HTTP, processes, the time from a decision to its effect.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Final

from appliance.admission.breaker import Transition
from appliance.admission.controller import Controller
from appliance.admission.gate import Gate
from appliance.admission.saturation import MachineLoad
from appliance.admission.ticket import CLASSES, Ticket
from appliance.admission_settings import AdmissionSettings, SloSettings
from appliance.errors import ApplianceError
from appliance.protocol import Criticality, Hints, Request, Stopping, TokenPrompt
from runtimes.engine import EngineStats
from runtimes.supervisor import Status
from tests.bench.overload.judge import Served
from tests.bench.overload.machines import Machine
from tests.bench.overload.scenario import Arrival
from tests.bench.overload.virtual import Stream, VirtualEngine

MODEL: Final = "simulated"
TICK_S: Final = 0.1
PROMPT_TOKENS: Final = 90
MAX_WAITING: Final = 512


@dataclass(frozen=True, slots=True)
class Outcome:
    served: tuple[Served, ...]
    transitions: tuple[Transition, ...]
    longest_wait_s: float  # of a request that had its turn
    inversions: int  # requests that went before a more critical one that waited, without having waited for long


@dataclass(slots=True, eq=False)
class _Visit:
    """One request's."""

    arrival: Arrival
    ticket: Ticket
    stream: Stream


class Simulation:
    def __init__(self, machine: Machine, *, noise: float = 0.0, seed: str = "") -> None:
        """`noise`: relative standard deviation of a step's time."""
        self._machine = machine
        self._engine = VirtualEngine(machine, noise, seed)
        self._controller = Controller(
            [MODEL],
            AdmissionSettings(),
            SloSettings(),
            slots=machine.slots,
            most_waiting=MAX_WAITING,
        )
        self._gate: Gate = self._controller.gates[MODEL]
        self._gate.estimator.curve = machine.curve
        self._visits: dict[Stream, _Visit] = {}
        self._transitions: list[Transition] = []
        self._served: list[Served] = []
        self._longest_wait_s = 0.0
        self._inversions = 0
        self._now_s = 0.0

    def run(self, arrivals: Iterable[Arrival], until_s: float) -> Outcome:
        """All of them, to their ends."""
        coming = iter(arrivals)
        next_one = next(coming, None)
        tick_s, step_ends_s = TICK_S, float("inf")
        while next_one is not None or self._visits or tick_s < until_s:
            arrives_s = float("inf") if next_one is None else next_one.at_s
            self._now_s = now_s = min(arrives_s, tick_s, step_ends_s)
            if now_s == step_ends_s:
                self._step_ended()
                step_ends_s = float("inf")
            elif now_s == arrives_s:
                assert next_one is not None
                self._arrive(next_one)
                next_one = next(coming, None)
                arrives_s = float("inf") if next_one is None else next_one.at_s
            else:
                self._tick()
                tick_s += TICK_S
            if step_ends_s == float("inf"):
                ends_s = self._engine.step(now_s, min(arrives_s, tick_s))
                step_ends_s = float("inf") if ends_s is None else ends_s
        return Outcome(tuple(self._served), tuple(self._transitions), self._longest_wait_s, self._inversions)

    def _arrive(self, arrival: Arrival) -> None:
        now_s, request = self._now_s, _request(arrival.criticality, arrival.answer_tokens)
        ticket = self._gate.ticket(request, "key", now_s, now_s + arrival.deadline_s)
        visit = _Visit(arrival, ticket, Stream(ticket.rank, PROMPT_TOKENS, arrival.answer_tokens))

        def grant(error: ApplianceError | None) -> None:
            if error is not None:
                self._controller.noted(ticket, error)
                self._end(visit, error.code)
                return
            self._longest_wait_s = max(self._longest_wait_s, self._now_s - ticket.arrived_s)
            better = CLASSES[: ticket.rank]
            self._inversions += not ticket.aged and any(self._gate.queue.waiting[name] for name in better)
            self._engine.submit(visit.stream)

        self._visits[visit.stream] = visit
        try:
            self._controller.come(self._gate, ticket, grant, now_s)
        except ApplianceError as error:
            self._end(visit, error.code)

    def _step_ended(self) -> None:
        for stream in list(self._engine.finished()):
            visit = self._visits[stream]
            self._note_progress(visit)
            self._end(visit, None)
            self._controller.done(self._gate, visit.ticket, self._now_s, whole=True)

    def _tick(self) -> None:
        now_s = self._now_s
        for visit in self._late():
            if visit.ticket.started_s is None:
                self._controller.leave(self._gate, visit.ticket, now_s)
                self._end(visit, "deadline_exceeded")
            else:
                self._cut(visit, "deadline_exceeded")
        for visit in self._visits.values():
            self._note_progress(visit)
        transition, ended = self._controller.look({MODEL: self._status()}, MachineLoad(), now_s)
        if transition is not None:
            self._transitions.append(transition)
        for ticket in ended:
            self._cut(next(v for v in self._visits.values() if v.ticket is ticket), "branch_shed")

    def _status(self) -> Status:
        engine = self._engine
        return status(
            self._machine,
            running=len(engine.running),
            waiting=len(engine.waiting),
            kv_used_tokens=sum(PROMPT_TOKENS - s.prompt_left + s.tokens for s in engine.running),
            drift=engine.drift,
        )

    def _late(self) -> list[_Visit]:
        return [visit for visit in self._visits.values() if visit.ticket.deadline_s <= self._now_s]

    def _cut(self, visit: _Visit, code: str) -> None:
        """Ends a request that the engine has."""
        self._engine.cancel(visit.stream)
        self._note_progress(visit)
        self._end(visit, code)
        self._controller.done(self._gate, visit.ticket, self._now_s, whole=False)

    @staticmethod
    def _note_progress(visit: _Visit) -> None:
        visit.ticket.prompt_tokens = PROMPT_TOKENS - visit.stream.prompt_left
        visit.ticket.answer_tokens = visit.stream.tokens

    def _end(self, visit: _Visit, error: str | None) -> None:
        del self._visits[visit.stream]
        stream, arrival = visit.stream, visit.arrival
        self._served.append(
            Served(
                criticality=arrival.criticality,
                phase=arrival.phase,
                at_s=arrival.at_s,
                done_s=self._now_s,
                error=error,
                ttft_s=None if stream.first_s is None else stream.first_s - arrival.at_s,
                gaps_s=stream.gaps_s,
                tokens=stream.tokens if error is None else 0,
            )
        )


def status(machine: Machine, *, running: int, waiting: int = 0, kv_used_tokens: int = 0, drift: float = 1.0) -> Status:
    """As a supervisor would give it."""
    stats = EngineStats(
        slots=machine.slots,
        running=running,
        waiting=waiting,
        kv_used_tokens=kv_used_tokens,
        kv_total_tokens=machine.slots * machine.context_tokens,
        step_drift=drift,
        **_NOT_LOOKED_AT,
    )
    return Status("ready", None, 0, None, None, None, stats, running + waiting, machine.curve, 0.0)


_NOT_LOOKED_AT: Final = dict.fromkeys(
    (
        "retained_sequences",
        "archived_tokens",
        "steps",
        "prompt_tokens",
        "computed_prompt_tokens",
        "cached_prompt_tokens",
        "generated_tokens",
        "preemptions",
        "last_step_s",
    ),
    0,
)


@cache
def _request(criticality: Criticality, answer_tokens: int) -> Request:
    return Request(
        "r",
        MODEL,
        (TokenPrompt((0,) * PROMPT_TOKENS),),
        stopping=Stopping(max_tokens=answer_tokens, ignore_eos=True),
        hints=Hints(criticality=criticality),
    )


def capacity(machine: Machine, requests: int = 400) -> tuple[float, float]:
    """(requests, tokens) a second of a machine that is always full, and holds nothing back."""
    engine, rng = VirtualEngine(machine, 0.0, ""), random.Random(0)
    now_s, done, tokens = 0.0, 0, 0
    while done < requests:
        while len(engine.running) + len(engine.waiting) < machine.slots:
            engine.submit(Stream(1, PROMPT_TOKENS, rng.randint(*machine.answer_tokens)))
        ends_s = engine.step(now_s, now_s)
        assert ends_s is not None
        now_s = ends_s
        for stream in engine.finished():
            done += 1
            tokens += stream.tokens
    return done / now_s, tokens / now_s
