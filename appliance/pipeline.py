"""The life of a request between the wire formats and the engine: route, deadline, events, what is noted of it."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from appliance.answer_reader import AnswerReader
from appliance.engines import Engines, Route
from appliance.errors import from_code
from appliance.exchange import Exchange
from appliance.protocol import ChatPrompt, Event, Failed, Request
from appliance.telemetry.metrics import Metrics
from runtimes.dialects import Dialect
from runtimes.supervisor import EngineError
from runtimes.worker.messages import Generate


class Pipeline:
    def __init__(self, engines: Engines, metrics: Metrics, default_timeout_s: float) -> None:
        self.engines = engines
        self._metrics = metrics
        self._default_timeout_s = default_timeout_s

    def route(self, request: Request, exchange: Exchange) -> Route:
        """Decides where the request goes. Raises an `ApplianceError`."""
        exchange.asked(request)
        route = self.engines.route(request.model)
        exchange.model, exchange.route, exchange.reason = route.model, "local", route.reason
        return route

    async def run(self, request: Request, route: Route, exchange: Exchange) -> AsyncGenerator[Event, None]:
        """The events of every choice. Raises an `ApplianceError` for whatever ends it early.

        Leaving the iteration cancels the request, wherever it is.
        """
        timeout_s = request.hints.timeout_s or self._default_timeout_s
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        reader: AnswerReader | None = None
        try:
            generate = route.supervisor.generate(lambda flight: _message(flight, request), deadline_s)
            async with aclosing(generate) as events:
                async for event in events:
                    if reader is None:  # the model is loaded now, so that it is known how it speaks
                        reader = _reader(request, route)
                    gap_s = exchange.saw(event, time.monotonic())
                    if gap_s is not None:
                        self._metrics.inter_token(route.model, gap_s)
                    if isinstance(event, Failed):
                        raise from_code(event.code, event.message, event.param)
                    for news in reader.read(event):
                        exchange.shown(news)
                        yield news
        except EngineError as error:
            raise from_code(error.code, error.message, error.param) from None


def _reader(request: Request, route: Route) -> AnswerReader:
    is_chat = isinstance(request.prompts[0], ChatPrompt)
    dialect = route.supervisor.dialect if is_chat else Dialect()
    return AnswerReader(dialect, request.tool_use)


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
    )
