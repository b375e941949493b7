"""Some semantic hits, answered afresh while nothing else is to be done: how the share of wrong ones is measured.

Only what the local engine answered is asked again, since the frontier costs money.
"""

import asyncio
import logging
import random
import time
import uuid
from collections import deque
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

from appliance.exchange import Exchange
from appliance.legs import Legs
from appliance.protocol import Request
from appliance.security.auth import Principal
from cache.cache import Hit, SemanticCache

MOST_WAITING: Final = 64
LOOKS_EVERY_S: Final = 1.0
DEADLINE_S: Final = 120.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Recheck:
    request: Request
    principal: Principal
    hit: Hit


class Rechecks:
    def __init__(self, cache: SemanticCache, legs: Legs, share: float) -> None:
        """`share`: of the hits that are offered."""
        self._cache = cache
        self._legs = legs
        self._share = share
        self._random = random.Random()  # noqa: S311 - not a secret
        self._waiting: deque[_Recheck] = deque(maxlen=MOST_WAITING)

    def offer(self, request: Request, principal: Principal, hit: Hit) -> None:
        """A semantic hit that was served."""
        if hit.answer.model in self._legs.engines.supervisors and self._random.random() < self._share:
            self._waiting.append(_Recheck(request, principal, hit))

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(LOOKS_EVERY_S)
            if self._waiting and self._is_idle():
                await self._made(self._waiting.popleft())

    def _is_idle(self) -> bool:
        return all(
            s.status().state == "ready" and not s.status().in_flight for s in self._legs.engines.supervisors.values()
        )

    async def _made(self, recheck: _Recheck) -> None:
        hints = replace(recheck.request.hints, criticality="sheddable")  # whatever it was, nobody waits for it now
        request = replace(recheck.request, id=uuid.uuid4().hex, stream=False, hints=hints)
        exchange = Exchange(request.id, time.monotonic(), reason="recheck", route="local")
        exchange.step, exchange.criticality = request.hints.step, request.hints.criticality
        deadline_s = asyncio.get_running_loop().time() + DEADLINE_S
        model = recheck.hit.answer.model
        try:
            async with aclosing(self._legs.local(request, model, exchange, recheck.principal, deadline_s)) as answer:
                events = [event async for event in answer]
        except Exception as error:  # noqa: BLE001 - a check is never worth the others
            log.debug("a hit could not be checked", extra={"fields": {"reason": str(error)}})
            return
        self._cache.compare(recheck.hit, recheck.principal.id, request.hints.step, events)
