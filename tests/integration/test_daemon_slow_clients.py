"""Clients that are slow, silent or many do not stand in the way of others, and do not stay for ever."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from tests.integration.conftest import Launch
from tests.integration.daemon_fixture import LONG_STREAM, Daemon, chat_body, data_lines_async, post_raw, wait_until

CHAT = "/v1/chat/completions"
IDLE_CONNECTIONS = 1000
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"


def place(daemon: Daemon) -> tuple[str, int]:
    url = httpx.URL(daemon.url)
    assert url.port is not None
    return url.host, url.port


@asynccontextmanager
async def dripping(daemon: Daemon, head: bytes, drip: bytes, pause_s: float) -> AsyncIterator[asyncio.StreamReader]:
    """A client that sends a head, and then a few bytes now and then for as long as it is let."""
    reader, writer = await asyncio.open_connection(*place(daemon))

    async def send() -> None:
        writer.write(head)
        while not writer.is_closing():
            writer.write(drip)
            await asyncio.sleep(pause_s)

    task = asyncio.create_task(send())
    try:
        yield reader
    finally:
        task.cancel()
        writer.transport.abort()


async def closed_after_s(reader: asyncio.StreamReader, timeout_s: float) -> tuple[float, bytes]:
    """Until the daemon closes the connection, and what it said before."""
    began_s = time.monotonic()
    async with asyncio.timeout(timeout_s):
        try:
            said = await reader.read()
        except ConnectionError:
            said = b""
    return time.monotonic() - began_s, said


async def test_a_thousand_idle_connections_and_a_dripping_one_leave_room_for_a_request(daemon: Daemon) -> None:
    files = daemon.open_files()
    idle: list[socket.socket] = []
    try:
        for _ in range(IDLE_CONNECTIONS):
            idle.append(socket.create_connection(place(daemon), timeout=10))  # noqa: PERF401 - closed one by one below
        await asyncio.to_thread(wait_until, lambda: daemon.open_files() >= files + IDLE_CONNECTIONS, "all are accepted")
        async with (
            dripping(daemon, HEAD + b"content-length: 500\r\n\r\n", b" ", 1.0),
            daemon.async_client() as client,
        ):
            answer = await client.post(CHAT, json=chat_body())
            assert answer.status_code == 200, answer.text
            streamed = await client.post(CHAT, json=chat_body(stream=True))
            assert "[DONE]" in streamed.text
        assert daemon.open_files() >= files + IDLE_CONNECTIONS, "idle connections were closed"
    finally:
        for connection in idle:
            connection.close()
    await asyncio.to_thread(wait_until, lambda: daemon.open_files() <= files, f"only {files} open files are left")


async def test_a_head_that_never_ends_is_closed(launch: Launch) -> None:
    daemon = launch({"server.header_timeout_s": 1}).wait_listening()
    async with dripping(daemon, b"GET /healthz HTTP/1.1\r\nx-slow: ", b"a", 0.1) as reader:
        seconds, said = await closed_after_s(reader, 10)
    assert 0.5 < seconds < 5
    assert said == b"" or b" 408 " in said.split(b"\r\n")[0]


async def test_a_body_that_stalls_is_closed(launch: Launch) -> None:
    daemon = launch({"server.body_timeout_s": 1}).wait_listening()
    reader, writer = await asyncio.open_connection(*place(daemon))
    writer.write(HEAD + b'content-length: 500\r\n\r\n{"model":')
    seconds, said = await closed_after_s(reader, 10)
    writer.transport.abort()
    assert 0.5 < seconds < 6
    assert b" 408 " in said.split(b"\r\n")[0]
    assert b"request_timeout" in said


async def test_a_connection_that_says_nothing_is_closed(launch: Launch) -> None:
    daemon = launch({"server.idle_timeout_s": 1}).wait_listening()
    reader, writer = await asyncio.open_connection(*place(daemon))
    seconds, said = await closed_after_s(reader, 10)
    writer.transport.abort()
    assert 0.5 < seconds < 5
    assert said == b""


async def test_connections_past_the_limit_are_refused_until_one_is_free(launch: Launch) -> None:
    daemon = launch({"server.max_connections": 4}).wait_listening()
    held = [socket.create_connection(place(daemon), timeout=10) for _ in range(4)]
    reader, writer = await asyncio.open_connection(*place(daemon))
    writer.write(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
    _, said = await closed_after_s(reader, 10)
    writer.transport.abort()
    assert said == b"" or b" 503 " in said.split(b"\r\n")[0]
    for connection in held:
        connection.close()

    def answered() -> bool:
        with daemon.client() as client:
            try:
                return client.get("/healthz").status_code == 200
            except httpx.HTTPError:
                return False

    await asyncio.to_thread(wait_until, answered, "a connection is free again")


async def test_a_reader_that_reads_nothing_does_not_hold_up_others(daemon: Daemon) -> None:
    body = chat_body(**LONG_STREAM, logprobs=True, top_logprobs=20)  # several kB a token: its buffers fill
    stuck = post_raw(daemon, body)
    try:
        await asyncio.to_thread(wait_until, lambda: daemon.engine()["slots"]["used"] == 1, "it runs", 20)
        async with daemon.async_client() as client:

            async def one(number: int) -> list[str]:
                body = chat_body(f"Count from {number}.", stream=True, max_tokens=10)
                async with client.stream("POST", CHAT, json=body) as response:
                    return await data_lines_async(response)

            for data in await asyncio.gather(*(one(number) for number in range(3))):
                assert data[-1] == "[DONE]"
    finally:
        stuck.close()
