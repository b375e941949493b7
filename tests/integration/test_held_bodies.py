"""Bodies on many connections together take no more memory than they may, and what was taken is given back."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress

import httpx
import pytest

from tests.integration.conftest import Launch
from tests.integration.daemon_fixture import Daemon, wait_until

MAX_BODY = 100_000
HELD = 250_000  # two bodies, and not a third
ROUNDS = 3  # what two bodies of each leave behind would be too much
SETTINGS = {"server.max_body_bytes": MAX_BODY, "server.max_held_body_bytes": HELD}
# Read to its end, and then refused for its field: no model is needed.
WHOLE = json.dumps({"nonsense": "x" * (MAX_BODY - 20)}).encode()


@pytest.fixture
def daemon(launch: Launch) -> Daemon:
    return launch(SETTINGS).wait_listening()


def post(daemon: Daemon, body: bytes = WHOLE) -> httpx.Response:
    with daemon.client() as client:
        return client.post("/v1/chat/completions", content=body, headers={"content-type": "application/json"})


def unfinished(daemon: Daemon) -> socket.socket:
    """A connection on which all but the end of a body was sent."""
    url = httpx.URL(daemon.url)
    assert url.port is not None
    connection = socket.create_connection((url.host, url.port), timeout=20)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {url.host}\r\ncontent-length: {len(WHOLE)}\r\n\r\n"
    connection.sendall(head.encode() + WHOLE[:-1])
    return connection


def two_unfinished(daemon: Daemon, stack: ExitStack) -> list[socket.socket]:
    return [stack.enter_context(closing(unfinished(daemon))) for _ in range(2)]


def wait_full(daemon: Daemon) -> None:
    wait_until(lambda: post(daemon).status_code == 503, "there is no room for a third body")


def wait_room(daemon: Daemon) -> None:
    wait_until(lambda: post(daemon).status_code == 400, "there is room again")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as one:
        yield one


def test_a_body_too_many_is_told_to_come_back_and_small_ones_are_read(daemon: Daemon, stack: ExitStack) -> None:
    first, _ = two_unfinished(daemon, stack)
    wait_full(daemon)
    refused = post(daemon)
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert refused.json()["error"]["code"] == "overloaded"
    assert "server.max_held_body_bytes" in refused.json()["error"]["message"]
    assert post(daemon, b'{"nonsense": 1}').status_code == 400
    first.sendall(WHOLE[-1:])
    assert first.recv(100).startswith(b"HTTP/1.1 400")  # one that was being read is read to its end
    wait_room(daemon)


def test_clients_that_vanish_within_their_body_leave_nothing_behind(daemon: Daemon) -> None:
    for _ in range(ROUNDS):
        with ExitStack() as stack:
            two_unfinished(daemon, stack)
            wait_full(daemon)
        wait_room(daemon)


def test_bodies_that_stall_leave_nothing_behind(launch: Launch) -> None:
    daemon = launch({**SETTINGS, "server.body_timeout_s": 0.5}).wait_listening()
    for _ in range(ROUNDS):
        with ExitStack() as stack:
            for connection in two_unfinished(daemon, stack):
                with suppress(ConnectionError):
                    assert connection.recv(100).startswith(b"HTTP/1.1 408")
    wait_room(daemon)


def test_bodies_that_are_refused_leave_nothing_behind(daemon: Daemon) -> None:
    def too_large() -> Iterator[bytes]:
        yield WHOLE
        yield WHOLE[: MAX_BODY // 2]

    for _ in range(2 * ROUNDS):
        with daemon.client() as client, suppress(httpx.TransportError):
            assert client.post("/v1/chat/completions", content=too_large()).status_code == 413
        assert post(daemon, b"x" * MAX_BODY).status_code == 400
    wait_room(daemon)


def test_a_bound_that_no_single_body_fits_ends_the_start(launch: Launch) -> None:
    daemon = launch({"server.max_body_bytes": 4096, "server.max_held_body_bytes": 4095})
    assert daemon.wait_exit() == 78
    (line,) = daemon.log.lines
    assert "max_held_body_bytes (4095) is less than max_body_bytes (4096)" in line
