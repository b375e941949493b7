"""Slow, greedy and malformed clients on real sockets, against uvicorn with our protocol and a tiny application."""

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from appliance.service.http_protocol import ConnectionLimits, limited_protocol
from appliance.service.listen import open_listener

HEADER_S, BODY_S, IDLE_S = 0.3, 0.4, 0.9
GRACE_S = 5.0  # a busy machine may be late; whoever waits this long waits for ever
LIMITS = ConnectionLimits(
    header_timeout_s=HEADER_S,
    body_timeout_s=BODY_S,
    idle_timeout_s=IDLE_S,
    max_connections=50,
    min_bytes_per_s=1000,
    stalled_reader_timeout_s=0.8,
    linger_s=0.3,
)
GET = b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n"


@dataclass
class App:
    """Tells the test what it saw. Behaves by path."""

    disconnected: threading.Event = field(default_factory=threading.Event)
    entered: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)
    sent_bytes: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        self.entered.set()
        behaviour: Callable[[Scope, Receive, Send], Any] = getattr(self, scope["path"].strip("/"))
        await behaviour(scope, receive, send)

    async def hello(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reads the body and says what came."""
        body = b""
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.disconnected.set()
                return
            body += message["body"]
            more = message["more_body"]
        names = [name.decode() for name, _ in scope["headers"]]
        await _answer(send, json.dumps({"path": scope["path"], "body": len(body), "headers": names}).encode())

    async def slow_to_read(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets the body wait longer than a client might."""
        await asyncio.sleep(2 * BODY_S)
        await self.hello(scope, receive, send)

    async def refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers without reading the body."""
        await _answer(send, b"no")

    async def wait(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the first half of an answer, and the second when the test says so or the client is gone."""
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"6")]})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        leaving = asyncio.ensure_future(receive())
        while not self.go_on.is_set() and not leaving.done():  # noqa: ASYNC110 - the test sets the event from its own thread
            await asyncio.sleep(0.01)
        if leaving.done():
            self.disconnected.set()
        leaving.cancel()
        await send({"type": "http.response.body", "body": b"two"})

    async def flood(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Streams for as long as somebody listens."""
        await send({"type": "http.response.start", "status": 200, "headers": []})
        leaving = asyncio.ensure_future(receive())
        while not leaving.done():
            await send({"type": "http.response.body", "body": b"x" * 16384, "more_body": True})
            self.sent_bytes += 16384
            await asyncio.sleep(0)
        self.disconnected.set()

    async def long(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A whole answer that no buffer between the two ends holds."""
        await _answer(send, b"x" * 20_000_000)


async def _answer(send: Send, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Daemon:
    """A server whose application each test replaces."""

    def __init__(self, loop: str) -> None:
        self.app = App()
        self._listener = open_listener("127.0.0.1", 0)
        self.port: int = self._listener.getsockname()[1]
        self.server = uvicorn.Server(
            uvicorn.Config(
                self._call,
                interface="asgi3",
                loop=loop,
                http=limited_protocol(LIMITS),
                timeout_keep_alive=0,  # not uvicorn's timer but ours decides
                lifespan="off",
                log_config=None,
                access_log=False,
            )
        )
        self._thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self._listener]}, daemon=True)
        self._thread.start()

    async def _call(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)

    def open_connections(self) -> int:
        return len(self.server.server_state.connections)

    def stop(self) -> None:
        self.app.go_on.set()
        self.server.should_exit = True
        self._thread.join(timeout=GRACE_S)
        assert not self._thread.is_alive()


class Client:
    def __init__(self, port: int, data: bytes = b"") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=GRACE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = b""
        self.started_s = time.monotonic()
        self.send(data)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def dribble(self, data: bytes, every_s: float) -> None:
        """Sends byte by byte until the other end is done with it or the data is out."""
        with contextlib.suppress(OSError):
            for position in range(len(data)):
                self.send(data[position : position + 1])
                self.socket.settimeout(every_s)
                with contextlib.suppress(TimeoutError):
                    piece = self.socket.recv(65536)
                    self.received += piece
                    if not piece:
                        break
        self.socket.settimeout(GRACE_S)

    def answer(self) -> tuple[int, dict[str, str], Any]:
        """One whole answer: status, headers, JSON."""
        while b"\r\n\r\n" not in self.received:
            self._more()
        head, self.received = self.received.split(b"\r\n\r\n", 1)
        status_line, *lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        while len(self.received) < int(headers["content-length"]):
            self._more()
        body = self.received[: int(headers["content-length"])]
        self.received = self.received[len(body) :]
        return int(status_line.split()[1]), headers, json.loads(body)

    def error(self) -> tuple[int, str]:
        """Status and code of an error, after which the connection ends."""
        status, headers, body = self.answer()
        assert headers["content-type"] == "application/json"
        assert headers["connection"] == "close"
        assert self.received + self.socket.recv(1) == b""  # the end, and no reset that could have lost the answer
        return status, body["error"]["code"]

    def rest(self) -> bytes:
        """Everything until the other end closes."""
        with contextlib.suppress(ConnectionError):
            while piece := self.socket.recv(65536):
                self.received += piece
        return self.received

    def lasted_s(self) -> float:
        return time.monotonic() - self.started_s

    def close(self) -> None:
        self.socket.close()

    def _more(self) -> None:
        piece = self.socket.recv(65536)
        assert piece, f"closed after {self.received!r}"
        self.received += piece


@pytest.fixture(scope="module", params=["asyncio", "uvloop"])
def server(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    daemon = Daemon(request.param)
    yield daemon
    daemon.stop()


@pytest.fixture
def daemon(server: Daemon) -> Daemon:
    _until(lambda: server.open_connections() == 0)
    server.app = App()
    return server


@pytest.fixture
def clients(daemon: Daemon) -> Iterator[Callable[..., Client]]:
    """Makes clients of the daemon; closes them at the end."""
    made: list[Client] = []

    def connect(data: bytes = b"") -> Client:
        made.append(Client(daemon.port, data))
        return made[-1]

    yield connect
    daemon.app.go_on.set()
    for client in made:
        client.close()


Connect = Callable[..., Client]


def _post(path: str, length: int, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {length}", *headers, "", ""]
    return "\r\n".join(lines).encode()


def test_a_usual_client_keeps_its_connection(clients: Connect) -> None:
    client = clients()
    for body in (b"", b"abc", b"x" * 300_000):
        client.send(_post("/hello", len(body)) + body)
        assert client.answer()[2]["body"] == len(body)
    client.send(GET + GET + GET)
    assert [client.answer()[0] for _ in range(3)] == [200, 200, 200]


def test_a_connection_that_says_nothing_is_closed_when_idle_for_long_and_not_before(clients: Connect) -> None:
    client = clients()
    assert client.rest() == b""
    assert HEADER_S * 2 < IDLE_S * 0.9 < client.lasted_s()


def test_a_kept_alive_connection_is_closed_when_idle(clients: Connect) -> None:
    client = clients(GET)
    client.answer()
    client.started_s = time.monotonic()
    assert client.rest() == b""
    assert client.lasted_s() > IDLE_S * 0.9


def test_empty_lines_keep_no_connection_alive(clients: Connect) -> None:
    client = clients(GET)
    client.answer()
    client.dribble(b"\r\n" * 60, 0.05)
    assert client.received == b""
    assert client.lasted_s() < IDLE_S + GRACE_S / 2


@pytest.mark.parametrize("head", [b"G", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "])
def test_a_head_that_stops_is_answered_408(clients: Connect, head: bytes) -> None:
    client = clients(head)
    assert client.error() == (408, "request_timeout")
    assert client.lasted_s() > HEADER_S * 0.9


def test_a_head_that_comes_byte_by_byte_gets_no_more_time(clients: Connect) -> None:
    client = clients()
    client.dribble(b"GET / HTTP/1.1\r\nX: " + b"y" * 100, 0.03)
    assert client.error() == (408, "request_timeout")
    assert client.lasted_s() < HEADER_S + GRACE_S / 2


def test_the_second_head_on_a_connection_is_timed_too(clients: Connect) -> None:
    client = clients(GET)
    client.answer()
    client.send(b"GET /hel")
    assert client.error() == (408, "request_timeout")


def test_a_head_begun_while_an_answer_runs_is_timed_from_the_answers_end(daemon: Daemon, clients: Connect) -> None:
    client = clients(b"GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\nGET /hello HTT")
    time.sleep(1.5 * HEADER_S)  # the time that must not count
    daemon.app.go_on.set()
    while b"onetwo" not in client.received:
        client._more()
    client.received = b""
    client.send(b"P/1.1\r\nHost: localhost\r\n\r\n")
    assert client.answer()[0] == 200


def test_a_body_that_stops_is_answered_408_and_the_application_told(daemon: Daemon, clients: Connect) -> None:
    client = clients(_post("/hello", 10_000) + b"x" * 5000)  # at the least rate these would last for 5 s
    assert client.error() == (408, "request_timeout")
    assert BODY_S * 0.9 < client.lasted_s() < GRACE_S / 2
    assert daemon.app.disconnected.wait(GRACE_S)


def test_a_body_that_comes_byte_by_byte_is_answered_408(clients: Connect) -> None:
    client = clients(_post("/hello", 100))
    client.dribble(b"x" * 100, 0.03)
    assert client.error() == (408, "request_timeout")


def test_chunks_without_content_are_no_progress(clients: Connect) -> None:
    client = clients(b"POST /hello HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5;ext=")
    client.dribble(b"y" * 100, 0.03)
    assert client.error() == (408, "request_timeout")


@pytest.mark.parametrize("data", [b"GET / HT", _post("/hello", 100) + b"x", b"NONSENSE\r\n\r\n"])
def test_a_refused_client_that_stays_is_hung_up_on(daemon: Daemon, clients: Connect, data: bytes) -> None:
    client = clients(data)
    client.error()
    _until(lambda: daemon.open_connections() == 0)


def test_a_slow_body_above_the_least_rate_may_take_its_time(clients: Connect) -> None:
    client = clients(_post("/hello", 3000))
    for _ in range(10):  # 3000 bytes a second, for twice as long as a pause may be
        client.send(b"x" * 300)
        time.sleep(BODY_S / 5)
    assert client.answer()[2]["body"] == 3000
    assert client.lasted_s() > 1.5 * BODY_S


def test_a_client_is_not_blamed_for_an_application_that_does_not_read(clients: Connect) -> None:
    body = b"x" * 5_000_000
    client = clients(_post("/slow_to_read", len(body)))
    client.send(body)
    assert client.answer()[2]["body"] == len(body)


def test_a_body_that_stops_once_the_application_reads_is_answered_408(clients: Connect) -> None:
    client = clients(_post("/slow_to_read", 400_000) + b"x" * 70_000)  # more than is read ahead
    assert client.error() == (408, "request_timeout")
    assert client.lasted_s() > 2.9 * BODY_S


def test_an_answer_to_an_unread_body_arrives_and_an_endless_body_is_cut(clients: Connect) -> None:
    client = clients(_post("/refuse", 10**12) + b"x" * 1000)
    with contextlib.suppress(OSError):
        while client.lasted_s() < GRACE_S:
            client.send(b"x" * 65536)
    assert client.lasted_s() < GRACE_S
    assert b"HTTP/1.1 200" in client.rest()


def test_a_request_after_an_unread_body_is_answered(clients: Connect) -> None:
    client = clients(_post("/refuse", 200_000))
    client.send(b"x" * 200_000 + GET)
    while b"no" not in client.received.partition(b"\r\n\r\n")[2]:
        client._more()
    client.received = client.received.partition(b"\r\n\r\nno")[2]
    assert client.answer()[2]["path"] == "/hello"


@pytest.mark.parametrize(
    "head",
    [
        b"GET /hello HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 70_000 + b"\r\n\r\n",
        b"GET /hello HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 200_000,
        b"GET /hello HTTP/1.1\r\nHost: localhost\r\n" + b"y" * 200_000,
        b"GET /hello?" + b"y" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /hello HTTP/1.1\r\n" + b"".join(b"X%d: %s\r\n" % (i, b"y" * 1000) for i in range(99)) + b"\r\n",
        b"GET /hello HTTP/1.1\r\n" + b"X: y\r\n" * 101 + b"\r\n",
        b"\r\n" * 100_000,
        b"POST /hello HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nTrailer: " + b"y" * 200_000,
    ],
    ids=[
        "one header",
        "endless value",
        "endless name",
        "long target",
        "much",
        "many",
        "empty lines",
        "endless trailer",
    ],
)
def test_a_head_that_is_too_large_is_answered_431(clients: Connect, head: bytes) -> None:
    client = clients()
    with contextlib.suppress(ConnectionError):
        client.send(head)
    assert client.error() == (431, "headers_too_large")


def test_a_head_just_within_the_limits_is_read(clients: Connect) -> None:
    client = clients(
        b"GET /hello HTTP/1.1\r\n" + b"".join(b"X%d: %s\r\n" % (i, b"y" * 600) for i in range(100)) + b"\r\n"
    )
    assert len(client.answer()[2]["headers"]) == 100


@pytest.mark.parametrize(
    "request_",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"NONSENSE\r\n\r\n",
        b"GET /hello HTTP/9.9\r\n\r\n",
        b"GET /hello HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /hello HTTP/1.1\r\nA: b\r\n folded\r\n\r\n",
        b"GET /hello HTTP/1.1\r\nA : b\r\n\r\n",
        b"GET /hello HTTP/1.1\r\nA: b\x00\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
        b"POST /hello HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /hello HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /hello HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /hello HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /hello HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_a_malformed_request_is_a_bad_request_in_json(daemon: Daemon, clients: Connect, request_: bytes) -> None:
    assert clients(request_).error() == (400, "invalid_request")
    assert clients(GET).answer()[0] == 200


def test_nonsense_behind_a_good_request_waits_for_its_answer_and_ends_the_connection(
    daemon: Daemon, clients: Connect
) -> None:
    client = clients(b"GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\nNONSENSE\r\n\r\n")
    assert daemon.app.entered.wait(GRACE_S)
    daemon.app.go_on.set()
    head, _, body = client.rest().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert body == b"onetwo"


def test_too_many_pipelined_requests_end_the_connection_after_the_running_one(daemon: Daemon, clients: Connect) -> None:
    client = clients(b"GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n" + GET * 2000)
    assert daemon.app.entered.wait(GRACE_S)
    daemon.app.go_on.set()
    assert client.rest().count(b"HTTP/1.1 200") == 1


def test_a_client_that_leaves_with_a_request_in_the_pipeline_is_noticed(daemon: Daemon, clients: Connect) -> None:
    client = clients(b"GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n" + GET)
    assert daemon.app.entered.wait(GRACE_S)
    client.close()
    assert daemon.app.disconnected.wait(GRACE_S)


def test_trailers_do_not_join_the_headers(clients: Connect) -> None:
    client = clients(
        b"POST /hello HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3\r\nabc\r\n0\r\nAuthorization: Bearer x\r\n\r\n"
    )
    status, _, seen = client.answer()
    assert (status, seen["body"], seen["headers"]) == (200, 3, ["host", "transfer-encoding"])


@pytest.mark.parametrize("upgrade", ["h2c", "websocket"])
def test_an_offer_to_upgrade_is_declined_and_the_body_read(clients: Connect, upgrade: str) -> None:
    offer = (f"Upgrade: {upgrade}", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABk")
    client = clients(_post("/hello", 3, *offer) + b"abc" + _post("/hello", 4, *offer) + b"ab")
    assert client.answer()[2]["body"] == 3
    client.send(b"cd" + GET)
    assert client.answer()[2]["body"] == 4
    assert client.answer()[2]["body"] == 0


def test_a_connection_above_the_limit_is_told_to_come_back(daemon: Daemon, clients: Connect) -> None:
    full = [clients(GET) for _ in range(LIMITS.max_connections)]
    for client in full:
        client.answer()
    refused = clients(GET)
    status, headers, body = refused.answer()
    assert (status, headers["retry-after"], body["error"]["code"]) == (503, "1", "overloaded")
    assert refused.rest() == b""
    full[0].close()
    _until(lambda: daemon.open_connections() < LIMITS.max_connections)
    assert clients(GET).answer()[0] == 200


def test_a_client_that_does_not_read_neither_fills_memory_nor_holds_its_stream(
    daemon: Daemon, clients: Connect
) -> None:
    clients(b"GET /flood HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert daemon.app.disconnected.wait(GRACE_S)
    assert daemon.app.sent_bytes < 16_000_000  # what the kernel's buffers on both ends took, and 64 KiB of ours
    _until(lambda: daemon.open_connections() == 0)


def test_a_client_that_does_not_read_a_finished_answer_is_dropped_too(daemon: Daemon, clients: Connect) -> None:
    clients(b"GET /long HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert daemon.app.entered.wait(GRACE_S)
    _until(lambda: daemon.open_connections() == 0)


def test_a_client_that_reads_slowly_but_steadily_gets_everything(clients: Connect) -> None:
    client = clients(b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n")
    taken_bytes = 0
    while taken_bytes < 20_000_000:
        piece = client.socket.recv(200_000)
        assert piece, f"closed after {taken_bytes}"
        taken_bytes += len(piece)
        time.sleep(max(0.0, taken_bytes / 15_000_000 - client.lasted_s()))  # 15 MB a second
    assert client.lasted_s() > LIMITS.stalled_reader_timeout_s


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_clients_that_do_nothing_do_not_keep_the_daemon_from_stopping(loop: str) -> None:
    daemon = Daemon(loop)
    with contextlib.ExitStack() as stack:
        requests = (b"", b"GET / HT", _post("/hello", 10), GET)
        for data in requests:
            stack.callback(Client(daemon.port, data).close)
        _until(lambda: daemon.open_connections() == len(requests))
        daemon.stop()


def _until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + GRACE_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
