"""The queue above one engine: who may wait, who goes next, who has to go. Pure: times are passed in.

The more critical class goes first. A request that has waited for `AGED_S` may go before its turn, one at a time, so
that no class starves the others. Inside a class the turn is `Fairness`'s.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import exp
from typing import Final

from appliance.admission.fairness import Fairness
from appliance.admission.ticket import CLASSES, Ticket
from appliance.protocol import Criticality

AGED_S: Final = 10.0
DRAIN_SMOOTHING_S: Final = 3.0
SLOWEST_DRAIN: Final = 0.05  # of an engine
CAUTION: Final = 1.5  # critical work comes in bursts: what ends too late was for nothing
SHED_AT_ONCE: Final = 2  # running branches that one decision ends


@dataclass(frozen=True, slots=True)
class Room:
    """What the engine may hold, and how it fares."""

    slots: int
    others: int  # of them, while there is critical work: sequences of all classes beyond which others wait
    machine: float = 0.0  # saturation, apart from the queue's
    ceilings: tuple[float, float] = (0.8, 0.6)  # of it: from there on normal and sheddable ones wait


@dataclass(slots=True)
class Drain:
    """How much of the engine is left to others than critical ones: seconds of it a second."""

    rate: float = 1.0
    _at_s: float | None = None
    _done_s: float = 0.0

    def observe(self, now_s: float, done_s: float, *, busy: bool) -> None:
        """Again and again, with the seconds' worth of such work that was ever done. `busy`: there was some in the
        engine all the time; else the rate goes back to all of it."""
        if self._at_s is not None and now_s > self._at_s:
            weight = 1 - exp((self._at_s - now_s) / DRAIN_SMOOTHING_S)
            rate = (done_s - self._done_s) / (now_s - self._at_s) if busy else 1.0
            self.rate = max(SLOWEST_DRAIN, self.rate + weight * (rate - self.rate))
        self._at_s, self._done_s = now_s, done_s


@dataclass(slots=True)
class Queue:
    most_waiting: int
    most_tokens: int
    waiting: dict[Criticality, list[Ticket]] = field(default_factory=lambda: {name: [] for name in CLASSES})
    running: list[Ticket] = field(default_factory=list)  # in the order of their start
    fairness: Fairness = field(default_factory=Fairness)
    drain: Drain = field(default_factory=Drain)

    def __len__(self) -> int:
        return sum(map(len, self.waiting.values()))

    @property
    def everyone_waiting(self) -> Iterable[Ticket]:
        return (ticket for name in CLASSES for ticket in self.waiting[name])

    def sequences(self, *, critical: bool | None = None) -> int:
        """In the engine."""
        return sum(t.work.sequences for t in self.running if critical is None or (t.rank == 0) == critical)

    def full(self, ticket: Ticket) -> str | None:
        """Why it cannot wait; None: it can. Less critical ones do not take its place."""
        before = [t for t in self.everyone_waiting if t.rank <= ticket.rank]
        if len(before) >= self.most_waiting:
            return f"{len(before)} requests are waiting, the limit"
        tokens = sum(t.work.tokens for t in before)
        if tokens and tokens + ticket.work.tokens > self.most_tokens:
            return f"requests of some {tokens} tokens are waiting, and {self.most_tokens} are the limit"
        return None

    def come(self, ticket: Ticket) -> None:
        self.fairness.came(ticket)
        self.waiting[ticket.criticality].append(ticket)

    def leave(self, ticket: Ticket) -> None:
        """It is done, wherever it was."""
        if ticket.started_s is None:
            self.waiting[ticket.criticality].remove(ticket)
        else:
            self.running.remove(ticket)
        self.fairness.left(ticket)

    def start(self, ticket: Ticket, now_s: float) -> None:
        """The engine gets it."""
        self.waiting[ticket.criticality].remove(ticket)
        ticket.started_s = now_s
        self.running.append(ticket)
        self.fairness.charge(ticket, ticket.seconds)

    def next(self, room: Room, now_s: float) -> Ticket | None:
        """Who goes now, if anybody may."""
        aged = self._aged(now_s)
        if aged is not None and (self.fits(aged, room) or not self.sequences(critical=False)):
            aged.aged = True
            return aged
        for name in CLASSES:
            if self.waiting[name]:
                ticket = self.fairness.next(self.waiting[name])
                # Nobody behind it may pass: a request of many sequences would starve.
                return ticket if self.fits(ticket, room) else None
        return None

    def expected_wait_s(self, ticket: Ticket | None = None, *, rank: int = 1) -> float:
        """Of one that waits, or of one of that class that came now."""
        rank = rank if ticket is None else ticket.rank
        ahead_s = sum(t.seconds for t in self.everyone_waiting if t.rank < rank)
        for other in self.waiting[CLASSES[rank]]:
            if other is ticket:
                break
            ahead_s += other.seconds
        under_way_s = sum(t.seconds for t in self.running) / 2  # half done, on average
        return (ahead_s + under_way_s / max(1, len(self.running))) / (self.drain.rate if rank else 1.0)

    def anybody_before(self, ticket: Ticket) -> bool:
        """Whether one that waits is as critical, or more so."""
        return any(self.waiting[name] for name in CLASSES[: ticket.rank + 1])

    def service_s(self, ticket: Ticket) -> float:
        """From its turn to its end, beside the others that are in the engine."""
        others_s = sum(t.seconds for t in self.running if t.rank)
        return CAUTION * (others_s + ticket.seconds) / self.drain.rate

    def position(self, ticket: Ticket) -> int:
        """How many go first."""
        ahead = sum(len(self.waiting[name]) for name in CLASSES[: ticket.rank])
        return ahead + self.waiting[ticket.criticality].index(ticket)

    def longest_wait_s(self, name: Criticality, now_s: float) -> float:
        return max((now_s - t.arrived_s for t in self.waiting[name]), default=0.0)

    def to_shed(self, now_s: float, grace_s: float) -> Sequence[Ticket]:
        """Running branches to end now: the newest first, since least is lost with them; none that has only just begun,
        since it may be about to end."""
        sheddable = [t for t in self.running if t.criticality == "sheddable"]
        ripe = [t for t in sheddable if t.started_s is not None and now_s - t.started_s >= grace_s]
        return ripe[::-1][:SHED_AT_ONCE]

    def _aged(self, now_s: float) -> Ticket | None:
        """Of those whom more critical ones keep waiting the one that has waited the longest, when its time has come and
        no other one is out of its turn."""
        if any(t.aged for t in self.running):
            return None
        best = min((t.rank for t in self.everyone_waiting), default=0)
        old = [t for t in self.everyone_waiting if t.rank > best and now_s - t.arrived_s >= AGED_S]
        return min(old, key=lambda t: t.arrived_s, default=None)

    def fits(self, ticket: Ticket, room: Room) -> bool:
        sequences, everyone = ticket.work.sequences, self.sequences()
        if ticket.rank == 0:
            # The engine takes a slot from the others for it, but not from the one that was let through.
            reserved = sum(t.work.sequences for t in self.running if t.aged)
            critical = self.sequences(critical=True)
            return critical == 0 or critical + sequences + reserved <= room.slots
        if ticket.rank and room.machine >= room.ceilings[ticket.rank - 1] and everyone:
            return False
        return everyone == 0 or everyone + sequences <= room.others
