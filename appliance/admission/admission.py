"""Lets requests into the engines, and sheds what has to go: the shell around the policies of this package.

Runs in the event loop; a task of its own looks at the machine ten times a second while there is work.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, Literal, Protocol

from appliance.admission.breaker import Transition
from appliance.admission.controller import Controller
from appliance.admission.gate import Gate
from appliance.admission.saturation import MachineLoad
from appliance.admission.ticket import Ticket
from appliance.errors import ApplianceError, DeadlineExceeded
from appliance.protocol import Request
from appliance.telemetry import logs
from runtimes.engine import CostCurve
from runtimes.supervisor import Interruption, Status

TICK_S: Final = 0.1
IDLE_TICK_S: Final = 1.0

log = logs.get(__name__)


class EngineOfModel(Protocol):
    """What admission needs of a supervisor."""

    @property
    def curve(self) -> CostCurve | None: ...

    def status(self) -> Status: ...


class Place:
    """A request's, in the queue and then in the engine."""

    def __init__(self, gate: Gate, ticket: Ticket) -> None:
        self._gate = gate
        self._turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ticket = ticket
        self.interruption = Interruption()
        self.whole = False  # the answer came to its own end
        self.position = 0  # how many went first when it came
        self.waited_s = 0.0

    async def granted(self, within_s: float) -> bool:
        """Whether it is this request's turn, at the latest after so long. Raises an `ApplianceError` when it has to
        leave, and `DeadlineExceeded`."""
        now_s = asyncio.get_running_loop().time()
        await asyncio.wait({self._turn}, timeout=min(within_s, max(0.0, self.ticket.deadline_s - now_s)))
        self.waited_s = asyncio.get_running_loop().time() - self.ticket.arrived_s
        if self._turn.done():
            self._turn.result()
            return True
        if now_s + within_s >= self.ticket.deadline_s:
            raise DeadlineExceeded(f"The request has waited until its deadline; {self.ahead} went first.")
        return False

    @property
    def ahead(self) -> int:
        """How many go first now."""
        return 0 if self._turn.done() else self._gate.queue.position(self.ticket)

    @property
    def expected_wait_s(self) -> float:
        """From now."""
        return 0.0 if self._turn.done() else self._gate.queue.expected_wait_s(self.ticket)

    def grant(self, error: ApplianceError | None) -> None:
        if error is None:
            self._turn.set_result(None)
        else:
            self._turn.set_exception(error)

    @property
    def is_over(self) -> bool:
        """It was refused after all, and has left the queue."""
        return self._turn.done() and self._turn.exception() is not None


class Admission:
    def __init__(
        self,
        engines: Mapping[str, EngineOfModel],
        controller: Controller,
        *,
        machine: Callable[[float], MachineLoad],
    ) -> None:
        """`engines`: by model, one for each of the controller's gates. `machine` is asked with the lag of the event
        loop, in seconds; it must not block."""
        self._engines = engines
        self._machine = machine
        self._places: dict[Ticket, Place] = {}
        self._work = asyncio.Event()
        self.controller = controller
        self.changed = asyncio.Event()  # set at each change of the breaker, and replaced

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
            if self._places:
                await asyncio.sleep(TICK_S)
                lag_s = max(0.0, loop.time() - due_s)
            else:
                self._work.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(IDLE_TICK_S):
                        await self._work.wait()
                lag_s = 0.0

    @asynccontextmanager
    async def place(self, request: Request, model: str, key: str, deadline_s: float) -> AsyncIterator[Place]:
        """In the queue of a model's engine; once it is `granted`, the engine may be asked. `key` is whose the request
        is; `deadline_s` is in the event loop's time. Raises an `ApplianceError` when there is none for it."""
        gate = self.controller.gates[model]
        gate.estimator.curve = self._engines[model].curve
        now_s = asyncio.get_running_loop().time()
        place = Place(gate, gate.ticket(request, key, now_s, deadline_s))
        ticket = place.ticket
        self.controller.come(gate, ticket, place.grant, now_s)
        place.position = place.ahead
        self._places[ticket] = place
        self._work.set()
        try:
            yield place
        except ApplianceError as error:
            if ticket.started_s is None:
                self.controller.noted(ticket, error)
            raise
        finally:
            del self._places[ticket]
            now_s = asyncio.get_running_loop().time()
            if ticket.started_s is not None:
                self.controller.done(gate, ticket, now_s, whole=place.whole)
            elif not place.is_over:
                self.controller.leave(gate, ticket, now_s)

    def hold(self, state: Literal["open", "closed"] | None) -> None:
        """The owner's word; None: it goes by saturation again."""
        now_s = asyncio.get_running_loop().time()
        self._tell(self.controller.hold(state, now_s))
        self._look(now_s, 0.0)

    @staticmethod
    def now_s() -> float:
        """As its own times are."""
        return asyncio.get_running_loop().time()

    def _look(self, now_s: float, lag_s: float) -> None:
        statuses = {name: engine.status() for name, engine in self._engines.items()}
        transition, ended = self.controller.look(statuses, self._machine(lag_s), now_s)
        for ticket in ended:
            assert ticket.ended is not None  # noqa: S101 - says why it has to go
            self._places[ticket].interruption.interrupt("branch_shed", ticket.ended.message)
        self._tell(transition)

    def _tell(self, transition: Transition | None) -> None:
        if transition is None:
            return
        self.changed.set()
        self.changed = asyncio.Event()
        tell = log.warning if transition.after == "open" else log.info
        signals = self.controller.saturation.signals
        tell(
            "breaker",
            state=transition.after,
            before=transition.before,
            reason=transition.reason,
            signals={cause: round(value, 2) for cause, value in signals.items() if value >= 0.01},
        )
