"""Where the cache meets the pipeline: hits are replayed, answers are kept, identical requests share one generation."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

from appliance.exchange import Exchange
from appliance.flights import Flights
from appliance.ledger import Ledger, Row
from appliance.legs import asked
from appliance.protocol import Event, Request, Usage
from appliance.rechecks import Rechecks
from appliance.security.auth import Principal
from cache.answers import events_of
from cache.cache import Hit, Lookup, SemanticCache

KEEPING_LIMIT_S: Final = 0.25  # an answer's end waits for no longer, so that the next request finds it
REMEMBERED_HITS: Final = 10_000  # that a user may still complain about

Start = Callable[[], AsyncGenerator[Event, None]]


@dataclass(frozen=True, slots=True)
class _Served:
    namespace: str
    step: str | None
    hit: Hit


class Caching:
    def __init__(
        self, cache: SemanticCache, ledger: Ledger, rechecks: Rechecks, clock: Callable[[], float] = time.time
    ) -> None:
        self.cache = cache
        self._rechecks = rechecks
        self._ledger = ledger
        self._clock = clock
        self._flights = Flights()
        self._served: OrderedDict[str, _Served] = OrderedDict()
        self._keeping: set[asyncio.Task[None]] = set()

    async def find(self, request: Request, principal: Principal) -> Lookup:
        return await self.cache.find(request, principal.id)

    async def replayed(
        self, hit: Hit, request: Request, exchange: Exchange, principal: Principal
    ) -> AsyncGenerator[Event, None]:
        """A stored answer as the events of a normal one."""
        began_s = time.monotonic()
        exchange.route, exchange.reason, exchange.model = f"cache-{hit.tier}", hit.tier, hit.answer.model
        exchange.cost_usd, exchange.cache_age_s = 0.0, hit.age_s
        exchange.cache_similarity = hit.similarity
        self._remember(exchange.request_id, _Served(principal.id, request.hints.step, hit))
        self.cache.served(hit)
        if hit.tier == "semantic":
            self._rechecks.offer(request, principal, hit)
        for event in events_of(hit.answer):
            yield event
        self._ledger.add(_row(hit, exchange, principal, self._clock(), time.monotonic() - began_s))

    async def generated(
        self, lookup: Lookup, request: Request, exchange: Exchange, deadline_s: float, start: Start
    ) -> AsyncGenerator[Event, None]:
        """A new answer, by one generation for all that ask the same at this time; kept when it came to a clean end.

        `deadline_s` is this client's, by the event loop's time; the generation must not end with it, as others may have
        longer.
        """
        if lookup.identity is None:
            async with aclosing(start()) as events:
                async for event in events:
                    yield event
            return
        hints = request.hints
        key = (lookup.identity.key, hints.privacy, hints.criticality, hints.cache == "refresh")
        flight = self._flights.find(key)
        joined = flight is not None
        if flight is None:
            flight = self._flights.begin(key, exchange, lambda: self._kept(lookup, request, exchange, start))
        async with aclosing(self._flights.listen(flight, deadline_s)) as events:
            async for event in events:
                if joined:
                    _follow(exchange, flight.exchange)
                yield _unpaid(event) if joined else event

    async def complain(self, request_id: str, principal: Principal, *, correct: bool) -> bool:
        """A user's word on a hit that they were given, or an admin's on any. Whether it is known; a wrong one is gone
        from the cache."""
        served = self._served.get(request_id)
        if served is None or (served.namespace != principal.id and "admin" not in principal.scopes):
            return False
        del self._served[request_id]
        if served.hit.tier == "semantic":
            self.cache.check(served.namespace, served.step, served.hit.score, right=correct)
        if not correct:
            await asyncio.to_thread(self.cache.evict, id=served.hit.id)
        return True

    async def _kept(
        self, lookup: Lookup, request: Request, exchange: Exchange, start: Start
    ) -> AsyncGenerator[Event, None]:
        events: list[Event] = []
        async with aclosing(start()) as generated:
            async for event in generated:
                events.append(event)
                yield event
        if exchange.degraded:
            return
        keeping = asyncio.create_task(self.cache.keep(lookup, request, events, exchange.model or ""))
        self._keeping.add(keeping)
        keeping.add_done_callback(self._keeping.discard)
        await asyncio.wait({keeping}, timeout=KEEPING_LIMIT_S)

    def _remember(self, request_id: str, served: _Served) -> None:
        self._served[request_id] = served
        if len(self._served) > REMEMBERED_HITS:
            self._served.popitem(last=False)


def _unpaid(event: Event) -> Event:
    """For those who share an answer that another pays for."""
    return replace(event, cost_usd=0.0) if isinstance(event, Usage) and event.cost_usd is not None else event


def _follow(exchange: Exchange, leader: Exchange) -> None:
    exchange.route, exchange.model, exchange.degraded = leader.route, leader.model, leader.degraded
    exchange.reason = "shared"


def _row(hit: Hit, exchange: Exchange, principal: Principal, at: float, total_s: float) -> Row:
    answer, total_ms = hit.answer, total_s * 1000
    return Row(
        at=at,
        route=exchange.route or "",
        provider=None,
        model=answer.model,
        prompt_tokens=answer.prompt_tokens,
        cached_tokens=answer.prompt_tokens,
        completion_tokens=answer.completion_tokens,
        ttft_ms=total_ms,
        itl_p50_ms=None,
        itl_p99_ms=None,
        total_ms=total_ms,
        queue_ms=0.0,
        cost_usd=0.0,
        outcome="completed",
        flags="",
        **asked(exchange, principal),
    )
