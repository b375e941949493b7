"""The gate in front of the application: host, origin, key, limits, in that order, as one plain ASGI middleware.

A request that passes carries its `Principal` in `scope["state"]["principal"]`; one that does not is answered here, as
JSON. It never touches a body: refusing costs nothing but the headers. Knows no path beyond the table in `auth`.
"""

import json
import logging
from collections.abc import Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from appliance.errors import ApplianceError, InternalError, InvalidApiKey
from appliance.security.auth import Principal, access, authorize, presented_secret
from appliance.security.hosts import HostPolicy, is_loopback_address
from appliance.security.keys import KeyStore, KeyStoreError
from appliance.security.limits import Lease, Limiter
from appliance.security.origins import (
    OriginPolicy,
    RawHeaders,
    is_preflight,
    preflight_headers,
    response_headers,
)

logger = logging.getLogger(__name__)


class SecurityMiddleware:
    def __init__(
        self, app: ASGIApp, *, hosts: HostPolicy, origins: OriginPolicy, keys: KeyStore, limiter: Limiter
    ) -> None:
        self._app = app
        self._hosts = hosts
        self._origins = origins
        self._keys = keys
        self._limiter = limiter
        self._key_problem: str | None = None  # the one last logged

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        else:  # nothing speaks WebSocket here, so nothing may come in that way
            await send({"type": "websocket.close", "code": 1008})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: Sequence[tuple[bytes, bytes]] = scope["headers"]
        cors: RawHeaders = []
        try:
            self._hosts.check(headers)
            origin = self._origins.check(headers)
            if origin is not None:
                cors = response_headers(origin)
                if is_preflight(scope["method"], headers):
                    await _answer(scope, send, 204, preflight_headers(origin, headers))
                    return
            principal, lease = self._admit(scope, headers)
        except ApplianceError as error:
            await _refuse(scope, send, error, cors)
            return
        scope.setdefault("state", {})["principal"] = principal
        with lease:
            exchange = _Exchange(receive, send, lease, cors)
            await self._app(scope, exchange.receive, exchange.send)

    def _admit(self, scope: Scope, headers: Sequence[tuple[bytes, bytes]]) -> tuple[Principal, Lease]:
        needs = access(scope["method"], scope["path"])
        secret = presented_secret(headers) if needs.scopes else None
        try:
            has_keys = bool(needs.scopes) and self._keys.has_keys()
            record = self._keys.authenticate(secret) if has_keys and secret is not None else None
        except KeyStoreError as error:
            self._log_once(str(error))
            raise InternalError(
                "The daemon cannot read its API keys, so it refuses every request that needs one: its log says why."
            ) from None
        self._key_problem = None
        principal = authorize(
            presented=secret is not None,
            record=record,
            has_keys=has_keys,
            loopback_client=_is_loopback_client(scope),
            needs=needs,
        )
        if not needs.scopes:
            return principal, Lease(None)
        return principal, self._limiter.admit(principal, generates=needs.generates)

    def _log_once(self, problem: str) -> None:
        if problem != self._key_problem:
            self._key_problem = problem
            logger.error("every request that needs a key is refused: %s", problem)


class _Exchange:
    """One request's receive and send. Releases the lease when the answer is whole or the client is gone."""

    __slots__ = ("_cors", "_lease", "_receive", "_send")

    def __init__(self, receive: Receive, send: Send, lease: Lease, cors: RawHeaders) -> None:
        self._receive = receive
        self._send = send
        self._lease = lease
        self._cors = cors

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._lease.release()
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and self._cors:
            message = {**message, "headers": [*message.get("headers", ()), *self._cors]}
        try:
            await self._send(message)
        finally:
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                self._lease.release()


def _is_loopback_client(scope: Scope) -> bool:
    client = scope.get("client")
    return client is not None and is_loopback_address(client[0])


async def _refuse(scope: Scope, send: Send, error: ApplianceError, cors: RawHeaders) -> None:
    headers = [*cors, (b"content-type", b"application/json")]
    if error.retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % error.retry_after_s))
    if isinstance(error, InvalidApiKey):
        headers.append((b"www-authenticate", b'Bearer realm="appliance"'))
    await _answer(scope, send, error.status, headers, json.dumps(error.body()).encode("ascii"))


async def _answer(scope: Scope, send: Send, status: int, headers: RawHeaders, body: bytes = b"") -> None:
    request_id = scope.get("state", {}).get("request_id")
    if request_id is not None:
        headers = [*headers, (b"x-request-id", str(request_id).encode("latin-1"))]
    if status != 204:
        headers = [*headers, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
