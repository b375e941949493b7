"""The client of an open loop: sends each request at its time, and keeps what came back with its times.

One client for every server. It knows no policy: an address, and bodies with their headers and times.
"""

import asyncio
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import httptools

from tests.bench.load import Address

LIMIT_S: Final = 120.0  # for the last answers


@dataclass(frozen=True, slots=True)
class Sending:
    at_s: float  # from the start of the run
    body: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one request. Times count from when it was sent."""

    sent_s: float  # from the start of the run
    status: int  # 0: nothing came
    retry_after: str | None
    first_s: float | None  # the first byte of the answer
    token_s: tuple[float, ...]  # each chunk with text
    done_s: float
    tokens: int  # as the server counts them; 0: it does not say, since it was cut short
    error: str | None  # its code, in the body or in the stream

    @property
    def whole(self) -> bool:
        return self.status == 200 and self.error is None and bool(self.tokens)

    @property
    def ttft_s(self) -> float | None:
        return self.token_s[0] if self.token_s else None

    @property
    def gaps_s(self) -> list[float]:
        return [after - before for before, after in zip(self.token_s, self.token_s[1:], strict=False)]


def send_all(address: Address, sendings: Sequence[Sending]) -> list[Outcome]:
    """Each at its time, in their order."""
    return asyncio.run(_send_all(address, sendings))


async def _send_all(address: Address, sendings: Iterable[Sending]) -> list[Outcome]:
    began_s = time.perf_counter()
    tasks = []
    async with asyncio.TaskGroup() as group:
        for sending in sendings:
            await asyncio.sleep(max(0.0, began_s + sending.at_s - time.perf_counter()))
            tasks.append(group.create_task(_send(address, sending, began_s)))
    return [task.result() for task in tasks]


async def _send(address: Address, sending: Sending, began_s: float) -> Outcome:
    sent_s = time.perf_counter()
    reading = _Reading()
    try:
        async with asyncio.timeout(LIMIT_S):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            try:
                lines = "".join(f"{name}: {value}\r\n" for name, value in sending.headers.items())
                head = (
                    f"POST /v1/chat/completions HTTP/1.1\r\nHost: {address.host}:{address.port}\r\n"
                    f"Connection: close\r\nContent-Type: application/json\r\n{lines}"
                    f"Content-Length: {len(sending.body)}\r\n\r\n"
                )
                sent_s = time.perf_counter()
                writer.write(head.encode() + sending.body)
                while data := await reader.read(65536):
                    reading.feed(data, time.perf_counter() - sent_s)
            finally:
                writer.close()
    except (OSError, TimeoutError) as error:
        reading.error = type(error).__name__
    return Outcome(
        sent_s=sent_s - began_s,
        status=reading.status,
        retry_after=reading.headers.get("retry-after"),
        first_s=reading.first_s,
        token_s=tuple(reading.token_s),
        done_s=time.perf_counter() - sent_s,
        tokens=reading.tokens,
        error=reading.error,
    )


class _Reading:
    """Of one response, as it comes."""

    def __init__(self) -> None:
        self.status = self.tokens = 0
        self.headers: dict[str, str] = {}
        self.first_s: float | None = None
        self.token_s: list[float] = []
        self.error: str | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._at_s = 0.0
        self._rest = b""

    def feed(self, data: bytes, at_s: float) -> None:
        self._at_s = at_s
        if self.first_s is None:
            self.first_s = at_s
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self._rest += body
        if self.status != 200:
            return
        *events, self._rest = self._rest.split(b"\n\n")
        for event in events:
            if event.startswith(b"data: {"):
                self._event(json.loads(event[6:]))

    def on_message_complete(self) -> None:
        if self.status != 200:
            try:
                self.error = str(json.loads(self._rest)["error"]["code"])
            except (ValueError, KeyError, TypeError):
                self.error = "unreadable"

    def _event(self, event: dict[str, Any]) -> None:
        if "error" in event:
            self.error = str(event["error"].get("code"))
        if usage := event.get("usage"):
            self.tokens = usage["completion_tokens"]
        if any(choice.get("delta", {}).get("content") for choice in event.get("choices", ())):
            self.token_s.append(self._at_s)
