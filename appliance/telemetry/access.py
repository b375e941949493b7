"""The outermost middleware: gives each request its id, and leaves one log line and its metrics when it ends."""

import time
import uuid

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from appliance.exchange import Exchange
from appliance.telemetry.logs import request_line
from appliance.telemetry.metrics import Metrics

CLIENT_CLOSED = 499  # nginx's status for a client that left before its answer; in the log only
_PROBES = frozenset({"/healthz", "/readyz", "/metrics"})  # asked every few seconds, of interest only when they fail


class AccessMiddleware:
    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = Exchange(uuid.uuid4().hex, time.monotonic())
        state = scope.setdefault("state", {})
        state["exchange"], state["request_id"] = exchange, exchange.request_id

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                elapsed_ms = round((time.monotonic() - exchange.arrived_s) * 1000)
                headers = [(name, value) for name, value in message.get("headers", ()) if name != b"x-request-id"]
                headers.append((b"x-request-id", exchange.request_id.encode()))
                headers.append((b"openai-processing-ms", b"%d" % elapsed_ms))
                message = {**message, "headers": headers}
            await send(message)

        with self._metrics.connections.track_inprogress():
            try:
                await self._app(scope, receive, noting)
            finally:
                self._note(scope, exchange)

    def _note(self, scope: Scope, exchange: Exchange) -> None:
        if exchange.status == 0:
            exchange.status = CLIENT_CLOSED
        seconds = time.monotonic() - exchange.arrived_s
        self._metrics.finished(exchange, seconds)
        if scope["path"] in _PROBES and exchange.status < 400:
            return
        principal = scope["state"].get("principal")
        request_line(
            {
                "id": exchange.request_id,
                "method": scope["method"],
                "path": scope["path"][:200],
                "status": exchange.status,
                "ms": round(seconds * 1000, 1),
                "key": principal.id if principal is not None else None,
                "error": exchange.error,
                "model": exchange.model,
                "route": exchange.route,
                "reason": exchange.reason,
                "task": exchange.task,
                "step": exchange.step,
                "criticality": exchange.criticality,
                "queue_ms": None if exchange.queue_s is None else round(exchange.queue_s * 1000, 1),
                "ttft_ms": None if exchange.ttft_s is None else round(exchange.ttft_s * 1000, 1),
                "prompt_tokens": exchange.prompt_tokens or None,
                "cached_tokens": exchange.cached_tokens or None,
                "completion_tokens": exchange.completion_tokens or None,
                "cost_usd": exchange.cost_usd,
                "degraded": exchange.degraded or None,
                "finish": ",".join(sorted(set(exchange.finish_reasons))) or None,
            }
        )
