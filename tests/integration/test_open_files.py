"""When no file can be opened any more, the daemon goes on with what it has, and takes clients again later."""

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing

import httpx
import psutil
import pytest

from tests.integration.conftest import Launch
from tests.integration.daemon_fixture import Daemon, chat_body, wait_until

FEW = 10  # files left
MANY = 200  # clients
GET = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as one:
        yield one


def connect(daemon: Daemon, stack: ExitStack) -> socket.socket:
    url = httpx.URL(daemon.url)
    assert url.port is not None
    return stack.enter_context(closing(socket.create_connection((url.host, url.port), timeout=20)))


def answer(connection: socket.socket) -> bytes:
    """Its first part; nothing where the other end has hung up."""
    try:
        connection.sendall(GET)
        return connection.recv(1000)
    except ConnectionError:
        return b""


def test_more_connections_than_files_are_refused_with_a_word(launch: Launch, stack: ExitStack) -> None:
    daemon = launch()
    resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (256, 256))  # before it has looked: it still imports
    daemon.wait_listening()
    daemon.log.wait_for("connections_limited", max_connections=128, wanted=4096, open_files=256)
    held = [connect(daemon, stack) for _ in range(128)]
    assert all(b" 200 " in answer(connection) for connection in held)
    refused = connect(daemon, stack).recv(1000)
    assert refused.startswith(b"HTTP/1.1 503")
    assert b"retry-after: 1" in refused


def test_without_a_file_left_it_neither_spins_nor_dies_nor_fills_its_log(launch: Launch, stack: ExitStack) -> None:
    daemon = launch().wait_ready()
    files, process = daemon.open_files(), psutil.Process(daemon.pid)
    with daemon.client() as client:
        client.get("/healthz")  # this one has its connection
        resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (files + FEW, files + FEW))
        said = len(list(daemon.log.records()))
        with ExitStack() as crowd:
            for _ in range(MANY):
                connect(daemon, crowd)
            wait_until(lambda: daemon.open_files() >= files + FEW, "no file is left")
            assert process.cpu_percent() == 0.0  # counted from here on
            for _ in range(3):
                answered = client.post("/v1/chat/completions", json=chat_body(max_tokens=60, ignore_eos=True))
                assert answered.status_code == 200
            assert process.cpu_percent() < 50  # of one core; the engine is another process
            assert daemon.open_files() >= files + FEW
            problems = [
                one["event"] for one in list(daemon.log.records())[said:] if one["level"] in ("error", "warning")
            ]
            assert "admission_failed" not in problems
            assert len(problems) < 10  # each part says it once, or once for each file that it wants
    wait_until(lambda: b" 200 " in answer(connect(daemon, stack)), "clients are taken again")
    with daemon.client() as client:
        assert client.post("/v1/chat/completions", json=chat_body()).status_code == 200
