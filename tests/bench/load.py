"""The client: sends chat completions over OpenAI's API, many at once, and keeps every byte with its time of arrival.

One client for every server, so that none is favoured. It knows no server by name: an address and bodies are all it
gets. During a run it only appends to lists; `sse` reads them afterwards.
"""

import asyncio
import http.client
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.bench import sse
from tests.bench.errors import BadResponseError

# A connection is left alone for a moment before its request: clients keep connections open, so accepting one is no part
# of a request's time.
SETTLE_S = 0.01

_clock = time.perf_counter


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Run:
    """All streams of one load, with the seconds it took and the CPU seconds that the client itself used meanwhile."""

    streams: tuple[sse.Stream, ...]
    wall_s: float  # from the first written request to the last text
    client_cpu_s: float


def chat_body(
    user: str, *, max_tokens: int, system: str | None = None, extra: Mapping[str, Any] | None = None
) -> bytes:
    """A greedy, streamed request. `extra` holds what one server needs so as not to stop early."""
    messages = [{"role": "system", "content": system}] if system is not None else []
    return json.dumps(
        {
            "model": "local",
            "messages": [*messages, {"role": "user", "content": user}],
            "max_tokens": max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **(extra or {}),
        }
    ).encode()


def drive(address: Address, scripts: Sequence[Sequence[bytes]], timeout_s: float) -> Run:
    """Runs one client for each script, all started at the same moment; each sends its bodies one after another.

    BadResponseError when the server answers with anything but whole streams, or not all of them within `timeout_s`.
    """
    cpu_before_s = time.process_time()
    try:
        captures = asyncio.run(asyncio.wait_for(_drive(address, scripts), timeout_s))
    except TimeoutError:
        raise BadResponseError(f"not all requests were answered within {timeout_s:.0f} s") from None
    except ExceptionGroup as failures:  # of the clients; the first says enough
        raise BadResponseError(f"a request failed: {failures.exceptions[0]!r}") from failures
    client_cpu_s = time.process_time() - cpu_before_s
    streams = tuple(sse.parse(capture) for capture in captures)
    wall_s = max(stream.content_s[-1] for stream in streams) - min(stream.sent_s for stream in streams)
    return Run(streams, wall_s, client_cpu_s)


async def _drive(address: Address, scripts: Sequence[Sequence[bytes]]) -> list[sse.Capture]:
    start = asyncio.Barrier(len(scripts))
    async with asyncio.TaskGroup() as clients:
        tasks = [clients.create_task(_client(address, bodies, start)) for bodies in scripts]
    return [capture for task in tasks for capture in task.result()]


async def _client(address: Address, bodies: Sequence[bytes], start: asyncio.Barrier) -> list[sse.Capture]:
    captures = []
    for index, body in enumerate(bodies):
        transport, reader = await _connect(address)
        try:
            await asyncio.sleep(SETTLE_S)
            if index == 0:
                await start.wait()  # every client is connected; the first requests leave together
            sent_s = _clock()
            transport.write(_head(address, body) + body)
            await reader.closed
        finally:
            transport.abort()
        captures.append(sse.Capture(sent_s, tuple(reader.pieces)))
    return captures


class _Reader(asyncio.Protocol):
    def __init__(self) -> None:
        self.pieces: list[tuple[float, bytes]] = []
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.pieces.append((_clock(), data))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)


async def _connect(address: Address) -> tuple[asyncio.Transport, _Reader]:
    return await asyncio.get_running_loop().create_connection(_Reader, address.host, address.port)


def _head(address: Address, body: bytes) -> bytes:
    # "close" makes the end of a response visible without looking into it.
    return (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {address.host}:{address.port}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nAccept: text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()


def get(address: Address, path: str, timeout_s: float = 2.0) -> int | None:
    """The status of a GET, or None when nobody listens yet."""
    connection = http.client.HTTPConnection(address.host, address.port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
