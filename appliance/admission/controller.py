"""All that admission decides, for the engines of one daemon. Pure but for the callables that requests leave behind;
times are passed in.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from appliance.admission.breaker import MOST_REMEMBERED, Breaker, State, Transition
from appliance.admission.gate import Breaking, Gate, Grant, shed
from appliance.admission.queue import Queue
from appliance.admission.saturation import Gauge, MachineLoad, Saturation
from appliance.admission.ticket import Ticket
from appliance.admission.work import Estimator
from appliance.admission_settings import AdmissionSettings, SloSettings
from appliance.errors import ApplianceError
from appliance.protocol import Criticality
from runtimes.supervisor import Status


class Refused(NamedTuple):
    """For the counters."""

    criticality: Criticality
    code: str


class Look(NamedTuple):
    """What came of one."""

    transition: Transition | None
    ended: Sequence[Ticket] = ()  # running branches that have to go now; each says why


class Controller:
    def __init__(
        self, models: Iterable[str], settings: AdmissionSettings, slo: SloSettings, *, slots: int, most_waiting: int
    ) -> None:
        """One gate for each model, which has so many slots."""
        self._settings = settings
        self._gauge = Gauge(slo.queue_wait_s)
        self._not_closed_s: float | None = None  # since when
        self.gates = {
            name: Gate(
                Queue(most_waiting, settings.max_waiting_tokens),
                slots,
                (settings.normal_ceiling, settings.sheddable_ceiling),
                settings.overload_wait_s,
                Estimator(slots=slots),
            )
            for name in models
        }
        self.breaker = Breaker(settings.rules)
        self.saturation = Saturation(0.0, None)
        self.changes: Counter[State] = Counter()  # of the breaker's state, by the new one
        self.transitions: deque[Transition] = deque(maxlen=MOST_REMEMBERED)
        self.refused: Counter[Refused] = Counter()
        self.ended: Counter[Criticality] = Counter()  # running ones that were shed

    def come(self, gate: Gate, ticket: Ticket, grant: Grant, now_s: float) -> None:
        """`grant` is called when it is the ticket's turn, maybe at once, or when it has to go. Raises the refusal."""
        breaking = self._breaking(now_s)
        if (refusal := gate.refusal(ticket, breaking, now_s)) is not None:
            raise self.noted(ticket, refusal)
        gate.come(ticket, grant)
        gate.let_go(breaking, now_s)

    def leave(self, gate: Gate, ticket: Ticket, now_s: float) -> None:
        """It does not wait any longer."""
        gate.leave(ticket)
        gate.let_go(self._breaking(now_s), now_s)

    def done(self, gate: Gate, ticket: Ticket, now_s: float, *, whole: bool) -> None:
        """It has left the engine. `whole`: its answer came to its own end."""
        gate.done(ticket, whole=whole)
        gate.let_go(self._breaking(now_s), now_s)

    def look(self, statuses: Mapping[str, Status], machine: MachineLoad, now_s: float) -> Look:
        """At the machine, several times a second."""
        before = self._breaking(now_s)
        loads = [gate.load(statuses[name], before, now_s) for name, gate in self.gates.items()]
        self.saturation = self._gauge.read(loads, machine, now_s)
        transition = self._noted_transition(self.breaker.observe(self.saturation, now_s))
        breaking = self._breaking(now_s)
        ended: list[Ticket] = []
        for gate in self.gates.values():
            gate.observe(now_s)
            if breaking.state == "open":
                ended += self._shed(gate, breaking, now_s)
            gate.let_go(breaking, now_s)
        return Look(transition, ended)

    def hold(self, state: Literal["open", "closed"] | None, now_s: float) -> Transition | None:
        """The owner's word; None: it goes by saturation again."""
        return self._noted_transition(self.breaker.hold(state, now_s))

    def noted(self, ticket: Ticket, refusal: ApplianceError) -> ApplianceError:
        """Counts it."""
        self.refused[Refused(ticket.criticality, refusal.code)] += 1
        if ticket.criticality == "sheddable" and self.breaker.state == "half-open":
            self.breaker.refused()
        return refusal

    def _shed(self, gate: Gate, breaking: Breaking, now_s: float) -> list[Ticket]:
        gate.shed_waiting(breaking)
        if self.breaker.held != "open" and self.saturation.value < self._settings.trip_at:
            return []
        ending = [t for t in gate.queue.to_shed(now_s, self._settings.grace_s) if t.ended is None]
        for ticket in ending:
            ticket.ended = shed("The machine became saturated, and this branch was ended.", breaking.reopens_in_s)
            self.ended[ticket.criticality] += 1
        return ending

    def _breaking(self, now_s: float) -> Breaking:
        breaker = self.breaker
        since_s = 0.0 if self._not_closed_s is None else now_s - self._not_closed_s
        return Breaking(
            state=breaker.state,
            since_s=now_s - breaker.since_s,
            since_closed_s=since_s,
            reopens_in_s=breaker.reopens_in_s(now_s),
            machine=self.saturation.of_the_machine,
        )

    def _noted_transition(self, transition: Transition | None) -> Transition | None:
        if transition is None:
            return None
        self.transitions.append(transition)
        self.changes[transition.after] += 1
        if transition.after == "closed":
            self._not_closed_s = None
        elif transition.before == "closed":
            self._not_closed_s = transition.at_s
        return transition
