"""Lets requests into the engines, and sheds what has to go: the shell around the policies of this package.

Runs in the event loop; a task of its own looks at the machine ten times a second while there is work.
"""

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from appliance.admission.breaker import MOST_REMEMBERED, Breaker, State, Transition
from appliance.admission.gate import Breaking, Gate, shed
from appliance.admission.queue import Queue
from appliance.admission.saturation import Gauge, MachineLoad, Saturation
from appliance.admission.ticket import Ticket
from appliance.admission.work import Estimator
from appliance.admission_settings import AdmissionSettings, SloSettings
from appliance.errors import ApplianceError, DeadlineExceeded
from appliance.protocol import Criticality, Request
from appliance.telemetry import logs
from runtimes.supervisor import Interruption, Supervisor

TICK_S: Final = 0.1
IDLE_TICK_S: Final = 1.0

log = logs.get(__name__)


@dataclass(slots=True, eq=False)
class Lease:
    """The right to use the engine, until it is given back."""

    waited_s: float
    position: int  # how many went first
    interruption: Interruption = field(default_factory=Interruption)
    prompt_tokens: int = 0  # that were computed
    answer_tokens: int = 0
    whole: bool = False  # the answer came to its own end
    error: ApplianceError | None = None  # that it was ended with


class Refused(NamedTuple):
    """For the counters."""

    criticality: Criticality
    code: str


class Admission:
    def __init__(
        self,
        supervisors: Mapping[str, Supervisor],
        settings: AdmissionSettings,
        slo: SloSettings,
        *,
        slots: int,
        most_waiting: int,
        machine: Callable[[float], MachineLoad],
    ) -> None:
        """`machine` is asked with the lag of the event loop, in seconds; it must not block."""
        self._supervisors = supervisors
        self._settings = settings
        self._machine = machine
        self._gauge = Gauge(slo.queue_wait_s)
        self._gates = {
            name: Gate(
                Queue(most_waiting, settings.max_waiting_tokens),
                slots,
                (settings.normal_ceiling, settings.sheddable_ceiling),
                settings.overload_wait_s,
                Estimator(slots=slots),
            )
            for name in supervisors
        }
        self._leases: dict[Ticket, Lease] = {}
        self._work = asyncio.Event()
        self._not_closed_s: float | None = None  # since when
        self.breaker = Breaker(settings.rules)
        self.saturation = Saturation(0.0, None)
        self.changes: Counter[State] = Counter()  # of the breaker's state, by the new one
        self.transitions: deque[Transition] = deque(maxlen=MOST_REMEMBERED)
        self.refused: Counter[Refused] = Counter()
        self.ended: Counter[Criticality] = Counter()  # running ones that were shed

    async def run(self) -> None:
        """Until it is cancelled."""
        loop = asyncio.get_running_loop()
        lag_s = 0.0
        while True:
            try:
                self._look(loop.time(), lag_s)
            except Exception:  # whatever it is, those who wait still get their turn
                log.exception("admission_failed")
            due_s = loop.time() + TICK_S
            if any(gate.queue.running or len(gate.queue) for gate in self._gates.values()):
                await asyncio.sleep(TICK_S)
                lag_s = max(0.0, loop.time() - due_s)
            else:
                self._work.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(IDLE_TICK_S):
                        await self._work.wait()
                lag_s = 0.0

    @asynccontextmanager
    async def lease(self, request: Request, model: str, key: str, deadline_s: float) -> AsyncIterator[Lease]:
        """A place in the engine, once it is this request's turn. `key` is whose it is; `deadline_s` is in the event
        loop's time. Raises an `ApplianceError` when there is none for it, or not in time."""
        gate = self._gates[model]
        now_s = asyncio.get_running_loop().time()
        gate.estimator.curve = self._supervisors[model].curve
        ticket = gate.ticket(request, key, now_s, deadline_s)
        breaking = self._breaking(now_s)
        if (refusal := gate.refusal(ticket, breaking, now_s)) is not None:
            raise self._noted(ticket, refusal)
        self._work.set()
        lease = await self._turn(gate, ticket, breaking)
        self._leases[ticket] = lease
        try:
            yield lease
        finally:
            del self._leases[ticket]
            gate.done(ticket, lease.prompt_tokens, lease.answer_tokens, whole=lease.whole)
            now_s = asyncio.get_running_loop().time()
            gate.let_go(self._breaking(now_s), now_s)

    def hold(self, state: Literal["open", "closed"] | None) -> None:
        """The owner's word; None: it goes by saturation again."""
        now_s = asyncio.get_running_loop().time()
        self._noted_transition(self.breaker.hold(state, now_s))
        self._look(now_s, 0.0)

    def queues(self) -> Mapping[str, Gate]:
        """By model."""
        return self._gates

    @staticmethod
    def now_s() -> float:
        """As its own times are."""
        return asyncio.get_running_loop().time()

    async def _turn(self, gate: Gate, ticket: Ticket, breaking: Breaking) -> Lease:
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()

        def grant(error: ApplianceError | None) -> None:
            if turn.done():
                return
            if error is None:
                turn.set_result(None)
            else:
                turn.set_exception(error)

        gate.come(ticket, grant)
        gate.let_go(breaking, ticket.arrived_s)
        position = 0 if turn.done() else gate.queue.position(ticket)
        try:
            async with asyncio.timeout_at(ticket.deadline_s):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled() and turn.exception() is not None:  # it was shed, and has left
                if isinstance(error, ApplianceError):
                    raise self._noted(ticket, error) from None
                raise
            gate.leave(ticket)
            gate.let_go(self._breaking(loop.time()), loop.time())
            if isinstance(error, TimeoutError):
                message = f"The request has waited until its deadline; {position} went first."
                raise self._noted(ticket, DeadlineExceeded(message)) from None
            raise
        return Lease(loop.time() - ticket.arrived_s, position)

    def _look(self, now_s: float, lag_s: float) -> None:
        """At the machine, and what follows from it."""
        before = self._breaking(now_s)
        loads = [gate.load(self._supervisors[name].status(), before, now_s) for name, gate in self._gates.items()]
        self.saturation = self._gauge.read(loads, self._machine(lag_s), now_s)
        self._noted_transition(self.breaker.observe(self.saturation, now_s))
        breaking = self._breaking(now_s)
        for gate in self._gates.values():
            gate.queue.drain.observe(now_s, self._others_done_s(gate), busy=gate.queue.sequences(critical=False) > 0)
            if breaking.state == "open":
                self._shed(gate, breaking, now_s)
            gate.let_go(breaking, now_s)

    def _others_done_s(self, gate: Gate) -> float:
        under_way = (self._leases[t] for t in gate.queue.running if t.rank and t in self._leases)
        so_far_s = sum(gate.estimator.done_s(lease.prompt_tokens, lease.answer_tokens) for lease in under_way)
        return gate.others_done_s + so_far_s

    def _shed(self, gate: Gate, breaking: Breaking, now_s: float) -> None:
        gate.shed_waiting(breaking)
        if self.breaker.held != "open" and self.saturation.value < self._settings.trip_at:
            return
        for ticket in gate.queue.to_shed(now_s, self._settings.grace_s):
            lease = self._leases.get(ticket)
            if lease is not None and lease.error is None:
                lease.error = shed("The machine became saturated, and this branch was ended.", breaking.reopens_in_s)
                lease.interruption.interrupt("branch_shed", lease.error.message)
                self.ended[ticket.criticality] += 1

    def _breaking(self, now_s: float) -> Breaking:
        since_s = 0.0 if self._not_closed_s is None else now_s - self._not_closed_s
        breaker = self.breaker
        return Breaking(breaker.state, since_s, breaker.reopens_in_s(now_s), self.saturation.of_the_machine)

    def _noted(self, ticket: Ticket, refusal: ApplianceError) -> ApplianceError:
        self.refused[Refused(ticket.criticality, refusal.code)] += 1
        if ticket.criticality == "sheddable" and self.breaker.state == "half-open":
            self.breaker.refused()
        return refusal

    def _noted_transition(self, transition: Transition | None) -> None:
        if transition is None:
            return
        self.transitions.append(transition)
        self.changes[transition.after] += 1
        if transition.after == "closed":
            self._not_closed_s = None
        elif transition.before == "closed":
            self._not_closed_s = transition.at_s
        tell = log.warning if transition.after == "open" else log.info
        signals = {cause: round(value, 2) for cause, value in self.saturation.signals.items() if value >= 0.01}
        tell("breaker", state=transition.after, before=transition.before, reason=transition.reason, signals=signals)
