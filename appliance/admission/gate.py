"""The way into one engine: takes tickets, lets them go when it is their turn, says what waits. Pure but for the
callables that a waiting request leaves behind; times are passed in.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from appliance.admission.breaker import State
from appliance.admission.demand import Demand
from appliance.admission.queue import Queue, Room
from appliance.admission.saturation import EngineLoad
from appliance.admission.ticket import Ticket
from appliance.admission.work import Estimator
from appliance.errors import ApplianceError, BranchShed, DeadlineExceeded, Overloaded
from appliance.protocol import Request
from runtimes.supervisor import Status

CRITICAL_EXPECTED_FOR_S: Final = 60.0  # after the last one, batches are kept small enough for the next
OVERLOAD_LASTS_AFTER_S: Final = 10.0  # that the breaker has not been closed: less is a burst, which may wait its turn
DEMAND_COUNTS_FOR_S: Final = 60.0  # that a breaker has been open
SURELY: Final = 0.25  # of an expected wait: prompts may turn out to share what is the most of them
LONGEST_RETRY_AFTER_S: Final = 60

Grant = Callable[[ApplianceError | None], None]  # None: it may go


@dataclass(frozen=True, slots=True)
class Breaking:
    """What a gate needs to know of the breaker."""

    state: State
    since_s: float = 0.0  # that it has been in it
    since_closed_s: float = 0.0  # how long it has not been closed
    reopens_in_s: float = 0.0
    machine: float = 0.0  # saturation, apart from the queue's


@dataclass(slots=True)
class Gate:
    queue: Queue
    slots: int
    ceilings: tuple[float, float]
    overload_wait_s: float
    estimator: Estimator = field(default_factory=Estimator)
    _others_gone_s: float = 0.0  # seconds' worth of work of others than critical ones that have left the engine
    _demand: Demand = field(default_factory=Demand)
    _grants: dict[Ticket, Grant] = field(default_factory=dict)
    _critical_s: float | None = None  # when critical work was here last

    def ticket(self, request: Request, key: str, now_s: float, deadline_s: float) -> Ticket:
        work = self.estimator.work(request)
        hints = request.hints
        seconds = self.estimator.seconds(work)
        return Ticket(hints.criticality, key, hints.task, work, seconds, now_s, deadline_s)

    def refusal(self, ticket: Ticket, breaking: Breaking, now_s: float) -> ApplianceError | None:
        """Why a ticket is not taken; None: it is."""
        self._demand.came(ticket.seconds, now_s)
        if ticket.criticality == "sheddable" and breaking.state == "open":
            return shed("The machine is saturated, and this branch may be shed.", breaking.reopens_in_s)
        if self.queue.fits(ticket, self._room(breaking, now_s)) and not self.queue.anybody_before(ticket):
            return None
        if ticket.criticality == "sheddable" and (self._expects_critical(now_s) or breaking.state == "half-open"):
            return shed("There is no room to spare beside more critical work.", 1.0)
        why = self.queue.full(ticket)
        if why is None and ticket.criticality != "critical":
            why = self._too_late(ticket, breaking, now_s)
        return None if why is None else self._overloaded(ticket, why)

    def _too_late(self, ticket: Ticket, breaking: Breaking, now_s: float) -> str | None:
        """Why it should not wait; None: it may."""
        wait_s = self.queue.expected_wait_s(rank=ticket.rank)
        surely = 1.0 if self._expects_critical(now_s) else SURELY
        done_s, left_s = wait_s * surely + self._service_s(ticket, breaking, now_s), ticket.deadline_s - now_s
        if done_s > left_s:
            return f"The request would take about {done_s:.1f} s, and has {left_s:.1f} s"
        lasting = breaking.since_closed_s >= OVERLOAD_LASTS_AFTER_S and self._expects_critical(now_s)
        if lasting and ticket.criticality == "normal" and wait_s > self.overload_wait_s:
            return f"The machine is saturated: the wait would be about {wait_s:.0f} s"
        return None

    def come(self, ticket: Ticket, grant: Grant) -> None:
        self.queue.come(ticket)
        self._grants[ticket] = grant

    def leave(self, ticket: Ticket) -> None:
        self._grants.pop(ticket, None)
        self.queue.leave(ticket)

    def done(self, ticket: Ticket, *, whole: bool) -> None:
        """It has left the engine. `whole`: its answer came to its own end."""
        took_s = self.estimator.done_s(ticket.prompt_tokens, ticket.answer_tokens)
        if ticket.rank:
            self._others_gone_s += took_s
        self.queue.fairness.charge(ticket, took_s - ticket.seconds)
        if whole and ticket.answer_tokens:
            self.estimator.answered(ticket.work, ticket.prompt_tokens, ticket.answer_tokens)
        self.leave(ticket)

    def observe(self, now_s: float) -> None:
        """Again and again: how fast work of others than critical ones is done."""
        others = [t for t in self.queue.running if t.rank]
        under_way_s = sum(self.estimator.done_s(t.prompt_tokens, t.answer_tokens) for t in others)
        self.queue.drain.observe(now_s, self._others_gone_s + under_way_s, busy=bool(others))

    def let_go(self, breaking: Breaking, now_s: float) -> None:
        """Everybody whose turn it is."""
        if self.queue.waiting["critical"] or self.queue.sequences(critical=True):
            self._critical_s = now_s
        room = self._room(breaking, now_s)
        while (ticket := self.queue.next(room, now_s)) is not None:
            waited = ticket.rank and now_s > ticket.arrived_s
            if waited and now_s + self._service_s(ticket, breaking, now_s) > ticket.deadline_s:
                self.queue.leave(ticket)  # what it would take is better given to one that can still be done
                self._grants.pop(ticket)(DeadlineExceeded("The request had to wait too long to be done in time."))
                continue
            self.queue.start(ticket, now_s)
            if ticket.rank == 0:
                self._critical_s = now_s
                room = self._room(breaking, now_s)
            self._grants.pop(ticket)(None)

    def _service_s(self, ticket: Ticket, breaking: Breaking, now_s: float) -> float:
        """From its turn to its end. Where no critical work has to be spared, only what is impossible is too late."""
        if breaking.state == "closed" or not self._expects_critical(now_s):
            return self.estimator.least_s(ticket.work)
        return self.queue.service_s(ticket)

    def shed_waiting(self, breaking: Breaking) -> int:
        """Refuses every branch that waits and may be shed. How many there were."""
        waiting = list(self.queue.waiting["sheddable"])
        for ticket in waiting:
            self.queue.leave(ticket)
            self._grants.pop(ticket)(
                shed("The machine became saturated while this branch waited.", breaking.reopens_in_s)
            )
        return len(waiting)

    def load(self, status: Status, breaking: Breaking, now_s: float) -> EngineLoad:
        stats = status.stats
        tickets = (*self.queue.everyone_waiting, *self.queue.running)
        return EngineLoad(
            waiting=len(self.queue),
            demand=self._asked_for(breaking, now_s),
            expected_wait_s=self.queue.expected_wait_s(rank=2) if len(self.queue) else 0.0,
            tokens_in_flight=sum(t.work.tokens for t in tickets),
            kv_tokens=stats.kv_total_tokens if stats else 0,
            kv_used_tokens=stats.kv_used_tokens if stats else 0,
            running=stats.running if stats else 0,
            drift=stats.step_drift if stats else 1.0,
            silent_s=status.silent_s,
        )

    def _expects_critical(self, now_s: float) -> bool:
        """Whether room is kept for critical work: no batch larger than pays, no branch that waits, no long queue."""
        return self._critical_s is not None and now_s - self._critical_s < CRITICAL_EXPECTED_FOR_S

    def _asked_for(self, breaking: Breaking, now_s: float) -> float:
        """Of the engine, as far as it matters. It keeps a breaker open, whatever of it is refused; but not for ever,
        since those who ask again and again may be few."""
        if breaking.state == "open":
            return self._demand.lasting(now_s) if breaking.since_s < DEMAND_COUNTS_FOR_S else 0.0
        has_room = self.queue.sequences() < self._room(breaking, now_s).others / 2
        return 0.0 if has_room else self._demand.newest(now_s)

    def _room(self, breaking: Breaking, now_s: float) -> Room:
        others = self.estimator.lean_batch if self._expects_critical(now_s) else self.slots
        return Room(self.slots, others, breaking.machine, self.ceilings)

    def _overloaded(self, ticket: Ticket, why: str) -> Overloaded:
        wait_s = self.queue.expected_wait_s(rank=ticket.rank)
        return Overloaded(f"{why}; try again later.", retry_after_s=_retry_after_s(wait_s))


def shed(why: str, retry_after_s: float) -> BranchShed:
    return BranchShed(f"{why} Try again later.", retry_after_s=_retry_after_s(retry_after_s))


def _retry_after_s(seconds: float) -> int:
    return max(1, min(LONGEST_RETRY_AFTER_S, ceil(seconds)))
