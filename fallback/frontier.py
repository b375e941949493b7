"""The remote engine: one request, several providers, and the events of the one that answers.

Providers are asked in their order. Before the first piece of an answer a failed attempt is made again, or made with the
next provider, within the request's one deadline; after it nothing is switched.
"""

import asyncio
import math
import random
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from appliance.protocol import ErrorCode, Event, Private, Request
from fallback.attempt import AttemptFailed
from fallback.breaker import BreakerState
from fallback.budget import Budget, BudgetExceeded
from fallback.expressible import excluded_by
from fallback.failure import FrontierFailed
from fallback.gate import EgressGate
from fallback.paid_attempt import AttemptRecord, CountTokens, Lane, Order, PaidAttempt, Surroundings
from fallback.prices import PriceTable
from fallback.provider import KeyUnavailable, Provider, fingerprint
from fallback.redaction import Redaction
from fallback.retry import pause_s

WAIT_BESIDE_ANOTHER_S = 1.0  # a longer pause is not waited for while another provider may answer at once

_CODES: Final[dict[str, ErrorCode]] = {
    "expired": "deadline_exceeded",
    "refused": "offline",
    "request": "invalid_request",
}


@dataclass(frozen=True, slots=True)
class Caller:
    """On whose behalf a request goes out."""

    key: str  # its id: the account that pays
    redact: frozenset[Private] = frozenset()


@dataclass(frozen=True, slots=True)
class ProviderStatus:
    name: str
    model: str
    breaker: BreakerState
    opens_in_s: float | None  # until it may be asked again, where time decides that
    problem: str | None  # the last that went wrong, while nothing has gone right since


class Frontier:
    def __init__(
        self,
        providers: Sequence[Provider],
        gate: EgressGate,
        prices: PriceTable,
        budget: Budget,
        *,
        proxy: str | None = None,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        """`clock` is monotonic, in seconds."""
        self.gate = gate
        self.budget = budget
        self._lanes = tuple(Lane(provider) for provider in providers)
        self._random = rng or random.Random()  # noqa: S311 - it spreads retries
        # Without a provider there is nothing to load certificates for.
        client = gate.client(proxy) if providers else None
        self._surroundings = Surroundings(gate, client, prices, budget, clock)
        gate.on_closing(self._surroundings.interrupt)

    @property
    def providers(self) -> tuple[Provider, ...]:
        return tuple(lane.provider for lane in self._lanes)

    async def close(self) -> None:
        if self._surroundings.client is not None:
            await self._surroundings.client.aclose()

    def excluded(self, request: Request) -> str | None:
        """Why no provider can have this request: a field of it. None: one can."""
        fields = [excluded_by(request, provider) for provider in self.providers]
        return None if None in fields else next(iter(fields), "model")

    def status(self) -> tuple[ProviderStatus, ...]:
        now_s = self._surroundings.clock()
        found = []
        for lane in self._lanes:
            provider, breaker = lane.provider, lane.breaker
            try:
                key = fingerprint(provider.key.read())
            except KeyUnavailable as error:
                found.append(ProviderStatus(provider.name, provider.model, "open", None, str(error)))
                continue
            state, opens_in_s = breaker.state(now_s, key), breaker.opens_in_s(now_s)
            found.append(ProviderStatus(provider.name, provider.model, state, opens_in_s, lane.problem))
        return tuple(found)

    async def generate(
        self,
        request: Request,
        caller: Caller,
        deadline_s: float,
        *,
        record: Callable[[AttemptRecord], None],
        count_tokens: CountTokens | None = None,
    ) -> AsyncGenerator[Event, None]:
        """The events of an answer; leaving the iteration ends the exchange. `deadline_s` is the event loop's time.

        `record` is told of every attempt. Raises `FrontierFailed`.
        """
        redaction = Redaction(caller.redact)
        outward = redaction.outward(request)
        lanes = self._lanes_for(request)
        order = Order(request, outward, caller.key, deadline_s, record, count_tokens)
        failures: list[AttemptFailed | BudgetExceeded | KeyUnavailable] = []
        for lane in lanes:
            for tries in range(1, lane.provider.attempts + 1):
                attempt = PaidAttempt(self._surroundings, lane, order)
                try:
                    async with aclosing(attempt.events()) as events:
                        async for event in events:
                            for news in redaction.inward(event):
                                yield news
                except (BudgetExceeded, KeyUnavailable) as error:
                    failures.append(error)
                    break
                except AttemptFailed as error:
                    failures.append(error)
                    if attempt.begun or error.kind in _CODES.keys() - {"request"}:
                        raise _explained([error], begun=attempt.begun) from None
                    wait_s = self._pause_s(lane, tries, error, is_last=lane is lanes[-1], deadline_s=deadline_s)
                    if wait_s is None:
                        break
                    await self._surroundings.pause(wait_s)
                else:
                    return
        raise _explained(failures)

    def _lanes_for(self, request: Request) -> list[Lane]:
        lanes = [lane for lane in self._lanes if excluded_by(request, lane.provider) is None]
        if not lanes:
            field = self.excluded(request) or "model"
            raise FrontierFailed("invalid_request", f"No frontier provider can express '{field}'.", param=field)
        return lanes

    def _pause_s(
        self, lane: Lane, tries: int, error: AttemptFailed, *, is_last: bool, deadline_s: float
    ) -> float | None:
        """Before the same provider is asked again; None: it is not."""
        if not error.retriable or tries == lane.provider.attempts:
            return None
        wait_s = pause_s(tries, error.retry_after_s, self._random)
        wait_s = max(wait_s, lane.breaker.opens_in_s(self._surroundings.clock()) or 0.0)
        if asyncio.get_running_loop().time() + wait_s >= deadline_s:
            return None
        return None if wait_s > WAIT_BESIDE_ANOTHER_S and not is_last else wait_s


def _explained(
    failures: Sequence[AttemptFailed | BudgetExceeded | KeyUnavailable], *, begun: bool = False
) -> FrontierFailed:
    """What a client is told: of several reasons the one that it can do most about."""
    for failure in failures:
        if isinstance(failure, AttemptFailed) and failure.kind == "request":
            return FrontierFailed("invalid_request", f"The frontier model refused the request: {failure.message}.")
    for failure in failures:
        if isinstance(failure, BudgetExceeded):
            return FrontierFailed("budget_exceeded", str(failure), retry_after_s=failure.resets_in_s)
    last = failures[-1]
    if isinstance(last, AttemptFailed):
        wait_s = None if last.retry_after_s is None else max(1, math.ceil(last.retry_after_s))
        code = _CODES.get(last.kind, "frontier_error")
        what = "The frontier model's answer broke off" if begun else "The frontier model gave no answer"
        return FrontierFailed(code, f"{what}: {last.message}.", retry_after_s=wait_s)
    return FrontierFailed("frontier_error", "The frontier provider's key cannot be read: `appliance status` says why.")
