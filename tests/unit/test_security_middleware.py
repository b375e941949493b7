"""The gate as a whole: order, principal, answers, and what a lease lives through."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from appliance.security.hosts import HostPolicy
from appliance.security.keys import KeyScope, KeyStore
from appliance.security.limits import Limiter
from appliance.security.middleware import SecurityMiddleware
from appliance.security.origins import OriginPolicy

Headers = dict[str, str]


async def _hello(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the id of who asked."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": scope["state"]["principal"].id.encode()})


class Answer:
    def __init__(self, messages: list[Message]) -> None:
        start, *rest = messages
        self.status: int = start["status"]
        self.headers = {name.decode(): value.decode() for name, value in start["headers"]}
        self.body = b"".join(message.get("body", b"") for message in rest)

    @property
    def error(self) -> dict[str, Any]:
        assert self.headers["content-type"] == "application/json"
        assert self.headers["content-length"] == str(len(self.body))
        error: dict[str, Any] = json.loads(self.body)["error"]
        return error


class Gate:
    """A security middleware over a real key store."""

    def __init__(self, directory: Path, app: ASGIApp = _hello, rpm: int | None = None, concurrent: int | None = None):
        self.keys = KeyStore(directory / "keys.db", lambda: 0.0)
        self.limiter = Limiter(lambda: 0.0, rpm, concurrent)
        self.app = SecurityMiddleware(
            app, hosts=HostPolicy("127.0.0.1"), origins=OriginPolicy(), keys=self.keys, limiter=self.limiter
        )

    def key(self, *scopes: KeyScope, name: str = "k", rpm: int | None = None, concurrent: int | None = None) -> str:
        _, secret = self.keys.create(name, frozenset(scopes), requests_per_minute=rpm, max_concurrent=concurrent)
        return secret.get_secret_value()

    async def ask(
        self,
        path: str,
        method: str = "GET",
        headers: Headers | None = None,
        *,
        client: tuple[str, int] | None = ("127.0.0.1", 5000),
        receive: Callable[[], Awaitable[Message]] | None = None,
        state: dict[str, Any] | None = None,
    ) -> Answer:
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        async def nothing() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        pairs = [(name.encode(), value.encode()) for name, value in ({"host": "localhost"} | (headers or {})).items()]
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "headers": pairs,
            "client": client,
            "state": state or {},
        }
        await self.app(scope, receive or nothing, send)
        return Answer(sent)


@pytest.fixture
async def gate(tmp_path: Path) -> AsyncIterator[Gate]:
    gate = Gate(tmp_path)
    yield gate
    gate.keys.close()


def _bearer(secret: str) -> Headers:
    return {"authorization": f"Bearer {secret}"}


async def test_without_keys_this_machine_is_the_local_principal(gate: Gate) -> None:
    answer = await gate.ask("/v1/models", headers=_bearer("whatever"))
    assert (answer.status, answer.body) == (200, b"local")
    assert not gate.keys.path.exists()


@pytest.mark.parametrize("client", [("192.168.1.9", 5000), None])
async def test_without_keys_no_other_machine_is_served(gate: Gate, client: tuple[str, int] | None) -> None:
    answer = await gate.ask("/v1/models", client=client)
    assert (answer.status, answer.error["code"]) == (403, "forbidden")


async def test_an_ipv4_client_of_a_dual_stack_socket_is_this_machine(gate: Gate) -> None:
    assert (await gate.ask("/v1/models", client=("::ffff:127.0.0.1", 5000))).status == 200


async def test_with_keys_a_request_needs_one_with_the_scope(gate: Gate) -> None:
    infer, admin = gate.key("infer", name="i"), gate.key("admin", name="a")
    missing = await gate.ask("/v1/models")
    assert (missing.status, missing.error["code"]) == (401, "invalid_api_key")
    assert missing.headers["www-authenticate"].startswith("Bearer")
    assert (await gate.ask("/v1/models", headers=_bearer("sk-appl-wrong"))).status == 401
    assert (await gate.ask("/v1/models", headers=_bearer(infer))).status == 200
    assert (await gate.ask("/v1/models", headers={"x-api-key": infer})).status == 200
    assert (await gate.ask("/admin/v1/status", headers=_bearer(infer))).status == 403
    assert (await gate.ask("/admin/v1/status", headers=_bearer(admin))).status == 200
    assert (await gate.ask("/metrics", headers=_bearer(admin))).status == 200
    assert (await gate.ask("/openapi.json")).status == 401


async def test_a_principal_is_the_key_by_its_id(gate: Gate) -> None:
    secret = gate.key("infer")
    answer = await gate.ask("/v1/models", headers=_bearer(secret))
    assert answer.body.decode() == gate.keys.list()[0].id


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_health_needs_no_key_and_is_never_counted(tmp_path: Path, path: str) -> None:
    gate = Gate(tmp_path, rpm=1)
    gate.key("infer")
    answers = [await gate.ask(path) for _ in range(5)]
    assert [answer.status for answer in answers] == [200] * 5
    assert answers[0].body == b"anonymous"
    assert len(gate.limiter) == 0


async def test_a_broken_key_store_refuses_everything_but_health_and_is_logged_once(
    gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    gate.keys.path.write_bytes(b"this is no database, and it is long enough to be read as one" * 100)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            answer = await gate.ask("/v1/models", headers=_bearer("sk-appl-x"))
            assert (answer.status, answer.error["code"]) == (500, "internal_error")
            assert str(gate.keys.path) not in answer.error["message"]
    assert [record.message.count("keys.db") for record in caplog.records] == [1]
    assert (await gate.ask("/healthz")).status == 200


async def test_the_host_is_looked_at_before_the_origin_and_the_origin_before_the_key(gate: Gate) -> None:
    gate.key("infer")
    evil = {"host": "evil.example", "origin": "https://evil.example"}
    assert (await gate.ask("/v1/models", headers=evil)).error["param"] == "host"
    assert (await gate.ask("/v1/models", headers={"origin": "https://evil.example"})).error["param"] == "origin"
    assert (await gate.ask("/v1/models", headers={"origin": "http://localhost"})).status == 401
    assert (await gate.ask("/healthz", headers=evil)).status == 403


async def test_a_refused_key_costs_nothing_of_the_limits(tmp_path: Path) -> None:
    gate = Gate(tmp_path, rpm=1)
    secret = gate.key("infer")
    for _ in range(5):
        assert (await gate.ask("/v1/models", headers=_bearer("sk-appl-wrong"))).status == 401
    assert (await gate.ask("/v1/models", headers=_bearer(secret))).status == 200


async def test_the_rate_is_a_429_that_says_when_to_come_back(gate: Gate) -> None:
    secret = gate.key("infer", rpm=2)
    answers = [await gate.ask("/v1/models", headers=_bearer(secret)) for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 429]
    assert answers[2].headers["retry-after"] == "30"
    assert answers[2].error["code"] == "rate_limit_exceeded"


async def test_an_error_carries_the_request_id(gate: Gate) -> None:
    answer = await gate.ask("/v1/models", headers={"host": "evil.example"}, state={"request_id": "req_7"})
    assert answer.headers["x-request-id"] == "req_7"


async def test_a_page_of_this_machine_gets_cors_headers_even_with_an_error(gate: Gate) -> None:
    page = {"origin": "http://localhost:3000"}
    good = await gate.ask("/v1/models", headers=page)
    assert good.headers["access-control-allow-origin"] == "http://localhost:3000"
    assert good.headers["content-type"] == "text/plain"
    gate.key("infer")
    assert (await gate.ask("/v1/models", headers=page)).headers["access-control-allow-origin"] == page["origin"]


async def test_nobody_else_gets_cors_headers(gate: Gate) -> None:
    program = await gate.ask("/v1/models")
    page = await gate.ask("/v1/models", headers={"origin": "https://evil.example"})
    preflight = await gate.ask(
        "/v1/models", "OPTIONS", {"origin": "https://evil.example", "access-control-request-method": "POST"}
    )
    assert (page.status, preflight.status) == (403, 403)
    for answer in (program, page, preflight):
        assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_a_preflight_is_answered_without_a_key(gate: Gate) -> None:
    gate.key("infer")
    asked = {
        "origin": "http://localhost:3000",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization",
    }
    answer = await gate.ask("/v1/chat/completions", "OPTIONS", asked)
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["access-control-allow-headers"] == "authorization"
    assert "content-length" not in answer.headers


class Streaming:
    """An application that sends one piece and waits for `go_on`, then for `return_`."""

    def __init__(self) -> None:
        self.started, self.go_on, self.sent, self.return_ = (asyncio.Event() for _ in range(4))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        self.started.set()
        await self.go_on.wait()
        await send({"type": "http.response.body", "body": b"b"})
        self.sent.set()
        await self.return_.wait()


async def test_a_place_is_held_until_the_stream_has_ended_and_no_longer(tmp_path: Path) -> None:
    app = Streaming()
    gate = Gate(tmp_path, app, concurrent=1)
    stream = asyncio.create_task(gate.ask("/v1/chat/completions", "POST"))
    await app.started.wait()
    refused = await gate.ask("/v1/chat/completions", "POST")
    assert (refused.status, refused.headers["retry-after"]) == (429, "1")
    app.go_on.set()
    await app.sent.wait()
    assert gate.limiter.running("local") == 0  # though the application still works on something of its own
    app.return_.set()
    assert (await stream).body == b"ab"


async def test_a_place_is_free_once_the_client_is_gone(tmp_path: Path) -> None:
    gone, seen, return_ = (asyncio.Event() for _ in range(3))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        assert (await receive())["type"] == "http.disconnect"
        seen.set()
        await return_.wait()

    async def receive() -> Message:
        await gone.wait()
        return {"type": "http.disconnect"}

    gate = Gate(tmp_path, app, concurrent=1)
    stream = asyncio.create_task(gate.ask("/v1/chat/completions", "POST", receive=receive))
    while not gate.limiter.running("local"):  # noqa: ASYNC110 - nothing else says that it got there
        await asyncio.sleep(0)
    gone.set()
    await seen.wait()
    assert gate.limiter.running("local") == 0
    return_.set()
    await stream


@pytest.mark.parametrize("cancelled", [True, False])
async def test_a_place_is_free_when_the_application_fails_or_is_cancelled(tmp_path: Path, cancelled: bool) -> None:  # noqa: FBT001 - a column
    entered = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        entered.set()
        if cancelled:
            await asyncio.Event().wait()
        raise ZeroDivisionError

    gate = Gate(tmp_path, app, concurrent=1)
    request = asyncio.create_task(gate.ask("/v1/chat/completions", "POST"))
    await entered.wait()
    if cancelled:
        assert gate.limiter.running("local") == 1
        request.cancel()
    with pytest.raises((ZeroDivisionError, asyncio.CancelledError)):
        await request
    assert gate.limiter.running("local") == 0


async def test_a_monitor_that_watches_all_day_takes_no_place(tmp_path: Path) -> None:
    app = Streaming()
    gate = Gate(tmp_path, app, concurrent=1)
    watching = asyncio.create_task(gate.ask("/admin/v1/events"))
    await app.started.wait()
    assert gate.limiter.running("local") == 0
    app.go_on.set()
    app.return_.set()
    await watching


async def test_nothing_comes_in_as_a_websocket_and_the_lifespan_passes(tmp_path: Path) -> None:
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    gate = Gate(tmp_path, app)
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "lifespan.startup"}

    await gate.app({"type": "websocket", "headers": [], "path": "/"}, receive, send)
    await gate.app({"type": "lifespan"}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]
    assert seen == ["lifespan"]
