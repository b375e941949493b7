"""HTTP/1.1 on one connection, over asyncio's streams: requests in, and answers out that may break off anywhere.

Knows nothing of APIs. Takes bodies with a Content-Length only.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import responses
from typing import Any

HEAD_LIMIT_BYTES = 1 << 16  # the usual limit of servers
READ_BYTES = 1 << 16


class NotHttp(Exception):
    """What came is no request that this server takes."""


class Hangup(Exception):
    """The connection is to be closed as it is, or the client has closed it."""


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    query: str
    headers: Mapping[str, str]  # lower-case names
    body: bytes

    @property
    def keep_alive(self) -> bool:
        return self.headers.get("connection", "").lower() != "close"

    def json(self) -> Any:
        """None where the body is no JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


class Reader(asyncio.StreamReader):
    """A stream reader that also tells when the client has gone, while nobody reads."""

    def __init__(self) -> None:
        super().__init__(limit=HEAD_LIMIT_BYTES)
        self.gone = asyncio.Event()

    def feed_eof(self) -> None:
        super().feed_eof()
        self.gone.set()

    def set_exception(self, exc: BaseException | type[BaseException]) -> None:
        super().set_exception(exc)  # type: ignore[arg-type] # typeshed has changed its mind about this signature
        self.gone.set()


class Connection:
    def __init__(self, reader: Reader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def request(self) -> Request | None:
        """The next one; None when the client has closed the connection instead. Raises `NotHttp`."""
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise NotHttp("the head of the request breaks off") from None
            return None
        except asyncio.LimitOverrunError:
            raise NotHttp(f"the head of the request exceeds {HEAD_LIMIT_BYTES} bytes") from None
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, version = [*first.split(" "), "", ""][:3]
        if version != "HTTP/1.1":
            raise NotHttp(f"{first!r} is no request line of HTTP/1.1")
        headers: dict[str, str] = {}
        for line in filter(None, lines):
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        length = headers.get("content-length", "0")
        if "transfer-encoding" in headers or not length.isdigit():
            raise NotHttp("a body needs a Content-Length")
        try:
            body = await self._reader.readexactly(int(length))
        except asyncio.IncompleteReadError:
            raise NotHttp("the body of the request breaks off") from None
        path, _, query = target.partition("?")
        return Request(method, path, query, headers, body)

    async def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """A whole response."""
        await self.begin(status, {**headers, "content-length": str(len(body))}, body)

    async def begin(self, status: int, headers: Mapping[str, str], body: bytes = b"") -> None:
        """The head of a response, and the beginning of its body."""
        reason = responses.get(status, "Overloaded")  # as Anthropic's own 529 says
        lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        await self.write("\r\n".join(lines).encode("latin-1") + body)

    async def begin_chunks(self, headers: Mapping[str, str]) -> None:
        await self.begin(200, {**headers, "transfer-encoding": "chunked"})

    async def chunk(self, data: bytes) -> None:
        if data:  # an empty chunk would end the body
            await self.write(b"%x\r\n%b\r\n" % (len(data), data))

    async def end_chunks(self) -> None:
        await self.write(b"0\r\n\r\n")

    async def write(self, data: bytes) -> None:
        try:
            self._writer.write(data)
            await self._writer.drain()
        except ConnectionError:
            raise Hangup from None

    async def pause(self, seconds: float) -> None:
        """Waits, at least for other tasks. Raises `Hangup` as soon as the client has gone."""
        await asyncio.sleep(0)
        if seconds and not self._reader.gone.is_set():
            try:
                async with asyncio.timeout(seconds):
                    await self._reader.gone.wait()
            except TimeoutError:
                return
        if self._reader.gone.is_set():
            raise Hangup

    async def half_close(self) -> None:
        """Says that nothing more comes, and reads on until the client closes too."""
        try:
            self._writer.write_eof()
            while await self._reader.read(READ_BYTES):
                pass
        except ConnectionError:
            raise Hangup from None

    def close(self) -> None:
        self._writer.close()
