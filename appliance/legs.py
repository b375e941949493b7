"""The two ways to an answer: the local engine and the frontier. Each leaves its row in the ledger, whatever came of it.

Knows no policy and no HTTP: who calls it has decided.
"""

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Final

from appliance.admission.admission import Admission, Place
from appliance.answer_reader import AnswerReader
from appliance.engines import Engines
from appliance.errors import ApplianceError, from_code
from appliance.exchange import Exchange, LocalAttempt
from appliance.ledger import Ledger, Row, percentile_ms
from appliance.protocol import ChatPrompt, Delta, Event, Failed, Private, Queued, Request, Started, TextPrompt
from appliance.security.auth import Principal
from appliance.telemetry.metrics import Metrics
from fallback import AttemptRecord, Caller, Frontier, FrontierFailed
from runtimes.dialects import Dialect
from runtimes.supervisor import EngineError, Supervisor
from runtimes.worker.messages import Generate

QUEUE_NEWS_S: Final = 5.0  # a client that streams is told so often how long it will still wait


@dataclass(frozen=True, slots=True)
class Legs:
    engines: Engines
    frontier: Frontier
    ledger: Ledger
    metrics: Metrics
    admission: Admission
    clock: Callable[[], float] = time.time  # Unix time, for the ledger

    async def local(
        self, request: Request, model: str, exchange: Exchange, principal: Principal, deadline_s: float
    ) -> AsyncGenerator[Event, None]:
        """The events of every choice. Raises an `ApplianceError` for whatever ends it early; leaving the iteration
        cancels the request, wherever it is."""
        supervisor = self.engines.supervisors[model]
        noted = LocalAttempt(time.monotonic())
        at = self.clock()
        reader: AnswerReader | None = None
        try:
            async with self.admission.place(request, model, principal.id, deadline_s) as place:
                exchange.queue_position = place.position
                while not await place.granted(within_s=QUEUE_NEWS_S):
                    yield Queued(place.ahead, place.waited_s, place.expected_wait_s)
                generate = supervisor.generate(lambda flight: _message(flight, request), deadline_s, place.interruption)
                async with aclosing(generate) as events:
                    async for event in events:
                        if reader is None:  # the model is loaded now, so that it is known how it speaks
                            reader = _reader(request, supervisor)
                        told = _told(event, place)
                        gap_s = noted.saw(told, time.monotonic())
                        if gap_s is not None:
                            self.metrics.inter_token(model, gap_s)
                        if isinstance(told, Failed):
                            raise place.ticket.ended or from_code(told.code, told.message, told.param)
                        for news in reader.read(told):
                            yield news
                place.whole = True
            noted.outcome = "completed"
        except EngineError as error:
            noted.outcome = error.code
            raise from_code(error.code, error.message, error.param) from None
        except ApplianceError as error:
            noted.outcome = error.code
            raise
        finally:
            self.ledger.add(_local_row(noted, at, model, exchange, principal))

    async def remote(
        self, request: Request, exchange: Exchange, principal: Principal, redact: frozenset[Private], deadline_s: float
    ) -> AsyncGenerator[Event, None]:
        """The events of every choice. Raises `FrontierFailed`."""

        def record(attempt: AttemptRecord) -> None:
            if attempt.outcome != "started":
                self.metrics.frontier_attempt(attempt)
            self.ledger.add(_frontier_row(attempt, exchange, principal))

        caller = Caller(principal.id, redact | principal.redact)
        answer = self.frontier.generate(request, caller, deadline_s, record=record, count_tokens=self._count_tokens)
        async with aclosing(answer) as events:
            async for event in events:
                yield event

    async def _count_tokens(self, text: str) -> int:
        """By the local model's tokenizer. Raises `EngineError`."""
        supervisor = next(iter(self.engines.supervisors.values()))
        if supervisor.status().state != "ready":
            raise EngineError("model_loading", "there is no tokenizer yet")
        return len((await supervisor.tokenize(TextPrompt(text, add_special=False))).tokens)


def _told(event: Event, place: Place) -> Event:
    """Notes what an event tells of the engine's work; the wait above the engine is a part of the whole."""
    match event:
        case Started():
            place.ticket.prompt_tokens += event.prompt_tokens - event.cached_tokens
            return replace(event, queue_s=event.queue_s + place.waited_s)
        case Delta():
            place.ticket.answer_tokens += event.tokens
    return event


def frontier_error(failure: FrontierFailed) -> ApplianceError:
    return from_code(failure.code, failure.message, failure.param, retry_after_s=failure.retry_after_s)


def _reader(request: Request, supervisor: Supervisor) -> AnswerReader:
    is_chat = isinstance(request.prompts[0], ChatPrompt)
    return AnswerReader(supervisor.dialect if is_chat else Dialect(), request.tool_use)


def _message(flight: str, request: Request) -> Generate:
    return Generate(
        id=flight,
        prompts=request.prompts,
        n=request.n,
        sampling=request.sampling,
        stopping=request.stopping,
        logprobs=request.logprobs,
        constraint=request.constraint,
        tool_use=request.tool_use,
        reasoning=request.reasoning,
        echo=request.echo,
        measure_margin=request.measure_margin,
        criticality=request.hints.criticality,
    )


def _local_row(noted: LocalAttempt, at: float, model: str, exchange: Exchange, principal: Principal) -> Row:
    return Row(
        at=at,
        route="local",
        provider=None,
        model=model,
        prompt_tokens=noted.prompt_tokens,
        cached_tokens=noted.cached_tokens,
        completion_tokens=noted.completion_tokens,
        total_ms=(time.monotonic() - noted.began_s) * 1000,
        queue_ms=_ms(noted.queue_s),
        cost_usd=None,
        outcome=noted.outcome,
        flags="degraded" if exchange.degraded else "",
        **asked(exchange, principal),
        **_latencies(noted.ttft_s, noted.gaps_s),
    )


def _frontier_row(attempt: AttemptRecord, exchange: Exchange, principal: Principal) -> Row:
    return Row(
        at=attempt.at.timestamp(),
        route="frontier",
        provider=attempt.provider,
        model=attempt.model,
        prompt_tokens=attempt.prompt_tokens,
        cached_tokens=attempt.cached_tokens,
        completion_tokens=attempt.completion_tokens,
        total_ms=attempt.total_s * 1000,
        queue_ms=None,
        cost_usd=attempt.cost_usd,
        outcome=attempt.outcome,
        flags=",".join(attempt.flags),
        attempt=attempt.id,
        **asked(exchange, principal),
        **_latencies(attempt.ttft_s, attempt.gaps_s),
    )


def asked(exchange: Exchange, principal: Principal) -> dict[str, Any]:
    """What a row says of the request itself."""
    return {
        "request": exchange.request_id,
        "key": principal.id,
        "task": exchange.task,
        "step": exchange.step,
        "criticality": exchange.criticality,
        "reason": exchange.reason or "",
    }


def _latencies(ttft_s: float | None, gaps_s: Sequence[float]) -> dict[str, Any]:
    return {
        "ttft_ms": _ms(ttft_s),
        "itl_p50_ms": percentile_ms(gaps_s, 50),
        "itl_p99_ms": percentile_ms(gaps_s, 99),
    }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000
