"""One attempt with all that surrounds it: its key, breaker, money, limits of time, and the record that it leaves.

The worst that it can cost is set aside before it begins. Whatever comes of it, it is paid for and recorded once.
"""

import asyncio
import json
import math
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import httpx

from appliance.protocol import Event, Finished, Request, Started, Usage
from fallback.attempt import Attempt, AttemptFailed, Progress
from fallback.breaker import ProviderBreaker
from fallback.budget import Budget, BudgetExceeded, Reservation
from fallback.contents import everything_said, images
from fallback.gate import EgressGate, EgressRefused
from fallback.prices import Price, PriceTable
from fallback.provider import KeyUnavailable, Provider, fingerprint
from fallback.usage import Counted, UsageFlag, settled
from fallback.wire import wire_of
from fallback.wire.contract import Claimed

COUNTING_LIMIT_S = 2.0
SLACK_PIECES = 16  # the name of a call is one, and so may be half a character
BYTES_A_TOKEN = 4  # of English, where no tokenizer is at hand
# Of a picture that is fetched, at the most: OpenAI counts 1,445 for its dearest detail, Anthropic 1,600.
IMAGE_TOKENS = 2048

CountTokens = Callable[[str], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """What one try at one provider came to."""

    id: str  # of the attempt: its first record, "started", comes before it leaves, with the worst that it may cost
    provider: str
    model: str
    at: datetime
    outcome: str  # "started", then "completed", "cancelled", or an attempt's kind of failure
    status: int | None  # HTTP
    ttft_s: float | None
    gaps_s: tuple[float, ...]  # between pieces of the answer
    total_s: float
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost_usd: float | None  # None: unknown
    flags: tuple[UsageFlag, ...]


@dataclass(slots=True)
class Lane:
    """A provider, and how it has fared."""

    provider: Provider
    breaker: ProviderBreaker = field(default_factory=ProviderBreaker)
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all attempts share."""

    gate: EgressGate
    client: httpx.AsyncClient | None  # None: nobody is to be asked
    prices: PriceTable
    budget: Budget
    clock: Callable[[], float]
    waits: set[asyncio.Timeout] = field(default_factory=set)

    async def pause(self, for_s: float) -> None:
        """Shorter when the appliance goes offline meanwhile."""
        with suppress(TimeoutError):
            async with asyncio.timeout(for_s) as wait:
                self.waits.add(wait)
                try:
                    await asyncio.Event().wait()
                finally:
                    self.waits.discard(wait)

    def interrupt(self) -> None:
        """The appliance has gone offline: whatever is waited for outside ends now."""
        for wait in self.waits:
            wait.reschedule(asyncio.get_running_loop().time())


@dataclass(frozen=True, slots=True)
class Order:
    """What is wanted, whoever brings it."""

    request: Request
    outward: Request  # as it goes out: without what must not
    account: str  # who pays
    deadline_s: float  # the event loop's time
    record: Callable[[AttemptRecord], None]
    count_tokens: CountTokens | None


class PaidAttempt:
    def __init__(self, surroundings: Surroundings, lane: Lane, order: Order) -> None:
        self._around = surroundings
        self._lane = lane
        self._provider = lane.provider
        self._order = order
        self._body = json.dumps(
            wire_of(lane.provider.kind).body(order.outward, lane.provider), ensure_ascii=False, separators=(",", ":")
        ).encode()
        self.begun = False  # something was handed on, which cannot be taken back

    async def events(self) -> AsyncGenerator[Event, None]:
        """`Started`, what the model says, `Usage`, and `Finished` of each choice.

        Raises `KeyUnavailable`, `BudgetExceeded` and `AttemptFailed`.
        """
        key = self._admitted()
        price = self._around.prices.of(self._provider.model, datetime.now(UTC).date())
        try:
            reservation = self._reserve(price)
        except (BudgetExceeded, AttemptFailed):
            self._lane.breaker.not_counted()
            raise
        bill = _Bill(self, datetime.now(UTC), price, reservation, Progress(asyncio.get_running_loop().time()))
        worst = Usage(0, 0, 0, 0, None if price is None else reservation.usd)
        self.recorded(bill, "started", None, worst, ())
        try:
            finished: list[Finished] = []
            held: list[Event] = []  # until there is something to show
            assert self._around.client is not None  # noqa: S101 - there is a provider
            attempt = Attempt(self._around.client, self._provider, key)
            async with aclosing(attempt.events(self._order.outward, self._body, bill.progress)) as events:
                while (came := await self._next(events, bill.progress)) is not None:
                    for event in came:
                        if isinstance(event, Finished):
                            finished.append(event)
                        elif isinstance(event, Started):
                            held.append(replace(event, model=self._provider.model))
                        else:
                            self._check_length(bill.progress)
                            self.begun = True
                            for ready in (*held, event):
                                yield ready
                            held = []
            self._lane.breaker.succeeded()
            self._lane.problem = None
            usage = await bill.pay("completed", 200, self._order.count_tokens)
            self.begun = True
            for event in (*held, usage, *finished):
                yield event
        except AttemptFailed as error:
            self._blame(error, key)
            await bill.pay(error.kind, error.status, self._order.count_tokens)
            raise
        finally:
            if not bill.is_paid:  # whoever asked has left
                self._lane.breaker.not_counted()
                await bill.pay("cancelled", None, None)

    def _check_length(self, progress: Progress) -> None:
        """Ends an answer that does not keep to its limit: what was set aside is for no more."""
        if len(progress.text_s) > self._most_tokens + SLACK_PIECES:  # each is a token at least
            raise AttemptFailed("failed", f"{self._provider.name} does not keep to the limit of tokens")

    @property
    def _most_tokens(self) -> int:
        limit = self._order.request.stopping.max_tokens
        return (self._provider.max_tokens if limit is None else limit) * self._order.request.n

    def _admitted(self) -> str | None:
        """The key, when a request may go."""
        try:
            self._around.gate.foresee(self._provider.name, self._order.request.hints.privacy)
        except EgressRefused as error:
            raise AttemptFailed("refused", str(error)) from None
        try:
            key = self._provider.key.read()
        except KeyUnavailable as error:
            self._lane.problem = str(error)
            raise
        now_s, breaker = self._around.clock(), self._lane.breaker
        if not breaker.admit(now_s, fingerprint(key)):
            problem = self._lane.problem or f"{self._provider.name} is not asked for the moment"
            raise AttemptFailed("held-back", problem, retry_after_s=breaker.opens_in_s(now_s))
        return key

    def _reserve(self, price: Price | None) -> Reservation:
        budget, provider = self._around.budget, self._provider
        if price is None:
            if budget.limits.any:
                why = (
                    f"the price of {provider.model} is not known, so that no budget could be kept ([economics] prices)"
                )
                raise AttemptFailed("held-back", why)
            return budget.reserve(self._order.account, 0.0)
        # No tokenizer makes more tokens of a text than it has bytes.
        prompt_tokens = len(self._body) + IMAGE_TOKENS * len(list(images(self._order.request)))
        return budget.reserve(self._order.account, price.usd(prompt_tokens, 0, self._most_tokens))

    async def _next(self, events: AsyncGenerator[Event | None, None], progress: Progress) -> tuple[Event, ...] | None:
        """What came next; empty when it tells nothing yet. None: that was all."""
        loop, provider, waits = asyncio.get_running_loop(), self._provider, self._around.waits
        patience_s = provider.chunk_timeout_s if progress.text_s else provider.first_byte_timeout_s
        gives_up_s, deadline_s = loop.time() + patience_s, self._order.deadline_s
        try:
            async with asyncio.timeout_at(min(deadline_s, gives_up_s)) as wait:
                waits.add(wait)
                try:
                    event = await anext(events)
                except StopAsyncIteration:
                    return None
                finally:
                    waits.discard(wait)
        except TimeoutError:
            if self._around.gate.offline:
                raise AttemptFailed("refused", "the appliance has gone offline") from None
            if deadline_s <= gives_up_s:  # the clock would not tell: a timer may fire a millisecond early
                raise AttemptFailed("expired", "the request did not finish before its deadline") from None
            raise AttemptFailed(
                "failed", f"{provider.name}: nothing came for {patience_s:g} s", retriable=True
            ) from None
        return () if event is None else (event,)

    def _blame(self, error: AttemptFailed, key: str | None) -> None:
        now_s, breaker = self._around.clock(), self._lane.breaker
        if error.kind == "limited":
            breaker.limited(now_s, error.retry_after_s)
        elif error.kind == "key":
            breaker.refused_key(fingerprint(key))
        elif error.kind == "failed":
            breaker.failed(now_s)
        else:
            breaker.not_counted()
            return
        self._lane.problem = error.message

    async def counted(self, progress: Progress, count_tokens: CountTokens | None) -> Counted:
        texts = "\n".join(everything_said(self._order.outward)), "".join(progress.texts)
        prompt, completion = [await _count(text, count_tokens) for text in texts]
        return Counted(prompt, completion, has_images=any(images(self._order.request)))

    def recorded(
        self, bill: "_Bill", outcome: str, status: int | None, usage: Usage, flags: tuple[UsageFlag, ...]
    ) -> None:
        progress = bill.progress
        self._order.record(
            AttemptRecord(
                id=bill.id,
                provider=self._provider.name,
                model=self._provider.model,
                at=bill.at,
                outcome=outcome,
                status=status,
                ttft_s=None if progress.first_s is None else progress.first_s - progress.began_s,
                gaps_s=tuple(b - a for a, b in zip(progress.text_s, progress.text_s[1:], strict=False)),
                total_s=asyncio.get_running_loop().time() - progress.began_s,
                prompt_tokens=usage.prompt_tokens,
                cached_tokens=usage.cached_tokens,
                completion_tokens=usage.completion_tokens,
                cost_usd=usage.cost_usd,
                flags=flags,
            )
        )

    @property
    def budget(self) -> Budget:
        return self._around.budget


@dataclass(slots=True)
class _Bill:
    """What an attempt owes."""

    attempt: PaidAttempt
    at: datetime
    price: Price | None
    reservation: Reservation
    progress: Progress
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    is_paid: bool = False

    async def pay(self, outcome: str, status: int | None, count_tokens: CountTokens | None) -> Usage:
        """For what has come. An attempt of which nothing came costs nothing, as far as anyone knows."""
        self.is_paid = True
        progress = self.progress
        used, flags = Claimed(0, 0, 0, 0), tuple[UsageFlag, ...]()
        try:
            if progress.text_s or progress.complete:
                counted = await self.attempt.counted(progress, count_tokens)
                used, flags = settled(progress.claimed, counted, complete=progress.complete)
            elif status is None:
                flags = ("cost-uncertain",)  # the provider may have worked on it, and want to be paid
        finally:
            cost_usd: float | None = 0.0
            if used.prompt_tokens or used.completion_tokens:
                cost_usd = None
                if self.price is not None:
                    cost_usd = self.price.usd(used.prompt_tokens, used.cached_tokens, used.completion_tokens)
                else:
                    flags = (*flags, "price-unknown")
            self.attempt.budget.settle(self.reservation, cost_usd or 0.0)
            usage = Usage(
                used.prompt_tokens, used.cached_tokens, used.completion_tokens, used.reasoning_tokens, cost_usd
            )
            self.attempt.recorded(self, outcome, status, usage, flags)
        return usage


async def _count(text: str, count_tokens: CountTokens | None) -> int:
    estimate = math.ceil(len(text.encode("utf-8", "replace")) / BYTES_A_TOKEN)
    if count_tokens is None or not text:
        return estimate
    try:
        async with asyncio.timeout(COUNTING_LIMIT_S):
            return await count_tokens(text)
    except Exception:  # noqa: BLE001 - a count is never worth a request
        return estimate
