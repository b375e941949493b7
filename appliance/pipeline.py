"""The life of a request between the wire formats and the engines: the decision, the deadline, the answer."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

from appliance.answering import SATURATED, Answering, Order, refuse_images
from appliance.caching import Caching
from appliance.exchange import Exchange
from appliance.legs import Legs
from appliance.protocol import Event, Request
from appliance.routing.classifier import Classifier
from appliance.routing.conversations import Conversations
from appliance.routing.decision import Decision, Place, Situation, decide
from appliance.security.auth import Principal
from appliance.settings import Settings
from cache.cache import Lookup
from fallback.contents import said

BYTES_A_TOKEN: Final = 4  # of English; a text is too long for certain at that many bytes for each token of the context


@dataclass(frozen=True, slots=True)
class Routed:
    """A request whose way is decided."""

    request: Request
    decision: Decision | None  # None: the cache answers
    lookup: Lookup
    exchange: Exchange
    principal: Principal


class Pipeline:
    def __init__(self, legs: Legs, settings: Settings, classifier: Classifier, caching: Caching) -> None:
        self.legs = legs
        self.caching = caching
        self.engines = legs.engines
        self._policy = settings.routing
        self._at_limit = settings.economics.at_limit
        self._default_timeout_s = settings.server.request_timeout_s
        self._classifier = classifier
        self._conversations = Conversations()

    async def route(self, request: Request, exchange: Exchange, principal: Principal) -> Routed:
        """Decides where the request goes. Raises an `ApplianceError`."""
        exchange.asked(request)
        self.engines.check_model(request.model)
        if principal.local_only or self._policy.privacy == "local-only":
            # From here on the request itself says so, and the gate reads it there.
            request = replace(request, hints=replace(request.hints, privacy="local-only"))
        lookup = await self.caching.find(request, principal)
        if lookup.hit is not None:
            exchange.route, exchange.model = f"cache-{lookup.hit.tier}", lookup.hit.answer.model
            return Routed(request, None, lookup, exchange, principal)
        decision = decide(request, self._policy, await self._situation(request, principal.id))
        if decision.place == "local" and not decision.may_escalate:
            refuse_images(request)
        self._note(decision, exchange, request)
        return Routed(request, decision, lookup, exchange, principal)

    async def run(self, routed: Routed) -> AsyncGenerator[Event, None]:
        """The events of every choice. Raises an `ApplianceError` for whatever ends it early.

        Leaving the iteration cancels the request, wherever it is.
        """
        async with aclosing(self._events(routed)) as events:
            async for event in events:
                routed.exchange.shown(event, time.monotonic())
                yield event
        self._conversations.answered(routed.request, routed.principal.id, self._made_by(routed))

    def _made_by(self, routed: Routed) -> Place:
        """Who made the answer, a cached one too, and reads what follows in the conversation: not the frontier where it
        only stood in."""
        if routed.lookup.hit is not None:
            return "local" if routed.lookup.hit.answer.model in self.engines.supervisors else "frontier"
        stood_in = routed.exchange.reason == SATURATED
        return "frontier" if routed.exchange.route == "frontier" and not stood_in else "local"

    def _events(self, routed: Routed) -> AsyncGenerator[Event, None]:
        request, exchange, lookup = routed.request, routed.exchange, routed.lookup
        if lookup.hit is not None:
            return self.caching.replayed(lookup.hit, request, exchange, routed.principal)
        assert routed.decision is not None  # noqa: S101 - there is one where there is no hit
        timeout_s = request.hints.timeout_s or self._default_timeout_s
        now_s = asyncio.get_running_loop().time()
        deadline_s = now_s + timeout_s
        model = self.local_model(request)
        shared_s = deadline_s if lookup.identity is None else max(deadline_s, now_s + self._default_timeout_s)
        order = Order(request, routed.decision, exchange, routed.principal, shared_s, model)
        answering = Answering(self.legs, self._policy, self._at_limit, order)
        return self.caching.generated(lookup, request, exchange, deadline_s, answering.events)

    def local_model(self, request: Request) -> str:
        """Which of the local models answers."""
        return request.model if request.model in self.engines.supervisors else self.engines.models[0].name

    async def _situation(self, request: Request, key: str) -> Situation:
        frontier = self.legs.frontier
        has_frontier = bool(frontier.providers)
        return Situation(
            local_models=frozenset(self.engines.supervisors),
            has_frontier=has_frontier,
            offline=frontier.gate.offline,
            excluded_field=frontier.excluded(request) if has_frontier else None,
            too_long=self._is_too_long(request),
            before=self._conversations.before(request, key),
            guess=await self._classifier.guess(request),
        )

    def _is_too_long(self, request: Request) -> bool:
        info = self.engines.supervisors[self.local_model(request)].status().info
        return info is not None and sum(map(len, said(request))) > BYTES_A_TOKEN * info.context_tokens

    def _note(self, decision: Decision, exchange: Exchange, request: Request) -> None:
        exchange.route, exchange.reason, exchange.degraded = decision.place, decision.reason, decision.degraded
        exchange.step = decision.step
        if decision.place == "local":
            exchange.model = self.local_model(request)
        else:
            exchange.model = self.legs.frontier.providers[0].model
