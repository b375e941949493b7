"""An engine's events as an HTTP answer, whole or streamed, for as long as the client is there.

The status line waits for the first token, or for the news that a stream is to wait for longer: what goes wrong before
it is an HTTP error, after it an error event.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Coroutine
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from appliance.api import sse
from appliance.api.failures import error_response
from appliance.api.openai.serialize import Serializer
from appliance.errors import ApplianceError
from appliance.pipeline import Pipeline, Routed
from appliance.protocol import Event, Queued, Started
from appliance.tasks import Tasks
from appliance.telemetry.access import CLIENT_CLOSED


class Answer(Response):
    """Runs a request when the server asks for its answer."""

    def __init__(self, pipeline: Pipeline, tasks: Tasks, routed: Routed, serializer: Serializer) -> None:
        self._pipeline = pipeline
        self._tasks = tasks
        self._routed = routed
        self._request = routed.request
        self._exchange = routed.exchange
        self._serializer = serializer
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("http_version") == "1.0":
            send = _in_one_piece(send)
        work = self._stream(send) if self._request.stream else self._whole(scope, receive, send)
        if not await while_connected(receive, work):
            self._exchange.status = CLIENT_CLOSED

    async def _whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with self._of_its_task(), aclosing(self._events()) as events:
                collected = [event async for event in events]
            self._serializer.answered_by(self._exchange.model or "")
            body = sse.json_bytes(self._serializer.whole(collected))
            response = Response(body, headers=self._hint_headers(), media_type="application/json")
        except ApplianceError as error:
            self._exchange.error = error.code
            response = error_response(error)
        await response(scope, receive, send)

    async def _stream(self, send: Send) -> None:
        begun = False
        pending = b""
        try:
            async with self._of_its_task(), aclosing(self._events()) as events:
                async for event in events:
                    if not begun:  # the model is known for certain now
                        self._serializer.answered_by(self._exchange.model or "")
                    pending += _waiting(event) if isinstance(event, Queued) else self._serializer.frames(event)
                    if isinstance(event, Started) and not begun:
                        continue
                    if not begun:
                        begun = True
                        await self._begin(send)
                    if pending:
                        await send({"type": "http.response.body", "body": pending, "more_body": True})
                        pending = b""
            pending = sse.DONE
        except ApplianceError as error:
            self._exchange.error = error.code
            if not begun:
                await _send_response(error_response(error), send)
                return
            pending += sse.error(error)
        await send({"type": "http.response.body", "body": pending, "more_body": False})

    async def _begin(self, send: Send) -> None:
        headers = {
            **self._hint_headers(),
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache",
            "x-accel-buffering": "no",  # nginx in front must not hold tokens back
        }
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})

    def _events(self) -> AsyncGenerator[Event, None]:
        return self._pipeline.run(self._routed)

    def _of_its_task(self) -> AbstractAsyncContextManager[None]:
        return self._tasks.part_of(self._routed.principal.id, self._request.hints.task)

    def _hint_headers(self) -> dict[str, str]:
        exchange = self._exchange
        headers = {
            "x-appliance-route": exchange.route or "",
            "x-appliance-reason": exchange.reason or "",
            "x-appliance-model": (exchange.model or "").encode("ascii", "replace").decode(),
            "x-appliance-queue-ms": f"{(exchange.queue_s or 0.0) * 1000:.0f}",
        }
        if exchange.queue_position:
            headers["x-appliance-queue-position"] = str(exchange.queue_position)
        if exchange.step is not None:
            headers["x-appliance-step"] = exchange.step
        if exchange.degraded:
            headers["x-appliance-degraded"] = "true"
        if exchange.cache_similarity is not None:
            headers["x-appliance-cache-similarity"] = f"{exchange.cache_similarity:.4f}"
        if exchange.cache_age_s is not None:
            headers["x-appliance-cache-age-s"] = f"{exchange.cache_age_s:.0f}"
        if exchange.cost_usd is not None:
            headers["x-appliance-cost-usd"] = f"{exchange.cost_usd:.8f}".rstrip("0").rstrip(".")
        return headers


def _waiting(event: Queued) -> bytes:
    """Tells a person who looks, and keeps the connection from looking idle."""
    return sse.comment(f"waiting ahead={event.ahead} expected-wait-s={event.expected_wait_s:.1f}")


def _in_one_piece(send: Send) -> Send:
    """For HTTP/1.0, which has no chunks: a stream goes out whole, with its length."""
    start: Message = {}
    body = bytearray()

    async def gather(message: Message) -> None:
        if message["type"] == "http.response.start":
            start.update(message)
            return
        body.extend(message.get("body", b""))
        if not message.get("more_body", False):
            headers = [(name, value) for name, value in start["headers"] if name.lower() != b"content-length"]
            await send({**start, "headers": [*headers, (b"content-length", b"%d" % len(body))]})
            await send({"type": "http.response.body", "body": bytes(body)})

    return gather


async def while_connected(receive: Receive, work: Coroutine[Any, Any, None]) -> bool:
    """Runs `work`, or ends it when the client goes away first. Whether it was run to its end."""
    running = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({running, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            return False
        await running  # raises what it raised
        return True
    finally:
        for task in (running, leaving):
            if not task.done():
                task.cancel()
        await asyncio.gather(running, leaving, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_response(response: Response, send: Send) -> None:
    await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body})


def now_unix() -> int:
    return int(time.time())
