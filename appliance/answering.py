"""One request being answered: by the place that was decided on, and by the other one where that is right.

A local answer that may escalate is held until it has passed its checks. What a client has been told is never changed.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final, Literal

from appliance.answer_checks import failed_check
from appliance.errors import ApplianceError, InvalidRequest, Overloaded
from appliance.exchange import Exchange
from appliance.frontier_settings import RoutingSettings
from appliance.legs import Legs, frontier_error
from appliance.protocol import ChatPrompt, Event, ImagePart, Queued, Request
from appliance.routing.decision import Decision
from appliance.security.auth import Principal
from fallback import FrontierFailed

# What a local engine may say that the frontier could do better.
_ESCALATED: Final = frozenset({"context_length_exceeded", "engine_crashed", "overloaded", "model_loading"})
SATURATED: Final = "saturated"  # the reason of what the frontier answers for want of room
_TEXT_ONLY: Final = "is an image: the local models read text only, and nothing else may answer this request."


@dataclass(frozen=True, slots=True)
class Order:
    request: Request
    decision: Decision
    exchange: Exchange
    principal: Principal
    deadline_s: float  # the event loop's time
    model: str  # the local one


class Answering:
    def __init__(self, legs: Legs, policy: RoutingSettings, at_limit: Literal["refuse", "local"], order: Order) -> None:
        self._legs = legs
        self._policy = policy
        self._at_limit = at_limit
        self._order = order

    def events(self) -> AsyncGenerator[Event, None]:
        decision = self._order.decision
        if decision.place == "frontier":
            return self._frontier_first()
        if decision.may_overflow and self._legs.admission.controller.breaker.state == "open":
            return self._overflowing(None)
        sent_at_once = self._order.request.stream and self._policy.escalating_stream == "at-once"
        if decision.may_escalate and not sent_at_once:
            return self._checked()
        return self._while_there_is_room() if decision.may_overflow else self._local(self._order.request)

    async def _while_there_is_room(self) -> AsyncGenerator[Event, None]:
        """By the local engine; or by the frontier, when the local one refuses it for want of room."""
        try:
            async with aclosing(self._local(self._order.request)) as events:
                async for event in events:
                    yield event
        except Overloaded as error:  # before the first event
            refusal = error
        else:
            return
        async with aclosing(self._overflowing(refusal)) as events:
            async for event in events:
                yield event

    async def _overflowing(self, refusal: Overloaded | None) -> AsyncGenerator[Event, None]:
        """By the frontier, for want of room here; where it fails by the local engine after all, if that has not refused
        it already."""
        exchange, reason, begun = self._order.exchange, self._order.exchange.reason, False
        exchange.reason = SATURATED
        try:
            async with aclosing(self._frontier()) as events:
                async for event in events:
                    begun = True
                    yield event
        except FrontierFailed as failure:
            if begun or failure.code == "deadline_exceeded":
                raise frontier_error(failure) from None
        else:
            return
        exchange.route, exchange.model, exchange.reason = "local", self._order.model, reason
        if refusal is not None:
            raise refusal
        refuse_images(self._order.request)
        async with aclosing(self._local(self._order.request)) as events:
            async for event in events:
                yield event

    def _local(self, request: Request) -> AsyncGenerator[Event, None]:
        self._order.exchange.route, self._order.exchange.model = "local", self._order.model
        return self._legs.local(
            request, self._order.model, self._order.exchange, self._order.principal, self._order.deadline_s
        )

    def _frontier(self) -> AsyncGenerator[Event, None]:
        self._order.exchange.route = "frontier"
        redact = self._policy.patterns
        return self._legs.remote(
            self._order.request, self._order.exchange, self._order.principal, redact, self._order.deadline_s
        )

    async def _frontier_first(self) -> AsyncGenerator[Event, None]:
        begun = False
        try:
            async with aclosing(self._frontier()) as events:
                async for event in events:
                    begun = True
                    yield event
        except FrontierFailed as failure:
            reason = None if begun or self._order.decision.explicit else self._answered_here_because(failure)
            if reason is None:
                raise frontier_error(failure) from None
            refuse_images(self._order.request)
            self._order.exchange.reason, self._order.exchange.degraded = reason, True
        else:
            return
        async with aclosing(self._local(self._order.request)) as events:
            async for event in events:
                yield event

    def _answered_here_because(self, failure: FrontierFailed) -> str | None:
        """The reason for the local engine to stand in; None: policy or time does not let it."""
        allowed = {
            "budget_exceeded": self._at_limit == "local",
            "offline": self._policy.offline == "local",
            "deadline_exceeded": False,
        }
        if not allowed.get(failure.code, self._policy.frontier_failed == "local"):
            return None
        return {"budget_exceeded": "budget", "offline": "offline"}.get(failure.code, "frontier-failed")

    async def _checked(self) -> AsyncGenerator[Event, None]:
        """A local answer, held until it has passed its checks; or else the frontier's, or the local one after all."""
        answer = await self._tried_locally()
        if answer.why is None:
            for event in answer.events:
                yield event
            return
        exchange, reason, begun = self._order.exchange, self._order.exchange.reason, False
        exchange.reason = f"escalated-{answer.why}"
        try:
            async with aclosing(self._frontier()) as events:
                async for event in events:
                    begun = True
                    yield event
        except FrontierFailed as failure:
            if begun:
                raise frontier_error(failure) from None
        else:
            return
        exchange.route, exchange.model = "local", self._order.model
        if answer.error is not None:
            exchange.reason = reason
            raise answer.error
        exchange.reason, exchange.degraded = "escalation-failed", True
        for event in answer.events:
            yield event

    async def _tried_locally(self) -> "_Tried":
        """Raises an `ApplianceError` that the frontier could not help with either."""
        request = replace(self._order.request, measure_margin=self._policy.min_margin > 0)
        try:
            refuse_images(request)
            async with aclosing(self._local(request)) as events:
                held = [event async for event in events if not isinstance(event, Queued)]
        except _ImageRefused as error:
            return _Tried(why="images", error=error)
        except ApplianceError as error:
            if error.code not in _ESCALATED:
                raise
            return _Tried(why=error.code.replace("_", "-"), error=error)
        return _Tried(held, failed_check(request, self._order.decision.step, held, self._policy.min_margin))


@dataclass(frozen=True, slots=True)
class _Tried:
    events: Sequence[Event] = ()
    why: str | None = None  # it will not do
    error: ApplianceError | None = None


class _ImageRefused(InvalidRequest):
    """The local models cannot see."""


def refuse_images(request: Request) -> None:
    for prompt in request.prompts:
        for i, message in enumerate(prompt.messages if isinstance(prompt, ChatPrompt) else ()):
            for j, part in enumerate(message.content):
                if isinstance(part, ImagePart):
                    where = f"messages[{i}].content[{j}]"
                    raise _ImageRefused(f"'{where}' {_TEXT_ONLY}", param=where)
