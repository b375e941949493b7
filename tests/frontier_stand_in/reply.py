"""How one answer goes out: whole or as a stream, as it should or with its fault."""

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.frontier_stand_in.answers import Answer, Piece, Question
from tests.frontier_stand_in.api import GARBAGE, HUGE_LINE, Api, Stream
from tests.frontier_stand_in.control import Control, Fault
from tests.frontier_stand_in.http_wire import Connection, Hangup
from tests.frontier_stand_in.journal import Entry, Usage

JSON = {"content-type": "application/json"}
EVENTS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-store"}
MORE = Piece("text", " more")  # what an endless answer goes on with
FILLING_BYTES = 1 << 16  # of a huge line, at a time


async def send_in_place(connection: Connection, api: Api, fault: Fault, entry: Entry) -> bool:
    """What comes in place of any answer. False where an answer is to follow."""
    match fault.kind:
        case "drop":
            raise Hangup
        case "slow_headers":
            await connection.pause(fault.seconds)
            return False
        case "status":
            entry.status = fault.status
            body = api.error(fault.status, "The stand-in was told to fail.") if fault.body is None else fault.body
            content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            headers = {name.lower(): value for name, value in fault.headers.items()}
            await connection.answer(fault.status, JSON | headers, content)
        case "empty":
            entry.status = 200
            await connection.answer(200, JSON, b"")
        case "html":
            entry.status = 200
            page = b"<!DOCTYPE html>\n<html><body><h1>Welcome to this network</h1></body></html>\n"
            await connection.answer(200, {"content-type": "text/html; charset=utf-8"}, page)
        case _:
            return False
    return True


async def send_document(connection: Connection, document: Any, fault: Fault, headers: Mapping[str, str]) -> None:
    """A 200 with JSON; faults of the body meet it halfway."""
    body = json.dumps(document, ensure_ascii=False).encode()
    half = len(body) // 2
    whole = {**JSON, **headers, "content-length": str(len(body))}
    match fault.kind:
        case "slow_body":
            await connection.begin(200, whole, body[:half])
            await connection.pause(fault.seconds)
            await connection.write(body[half:])
        case "cut":
            await connection.begin(200, whole, body[:half])
            raise Hangup
        case "half_close":
            await connection.begin(200, whole, body[:half])
            await connection.half_close()
            raise Hangup
        case "garbage":
            await connection.answer(200, {**JSON, **headers}, b"".join(GARBAGE))
        case "huge_line":
            await connection.begin_chunks({**JSON, **headers})
            await _send_huge_line(connection, fault)
            await connection.end_chunks()
        case _:
            await connection.answer(200, {**JSON, **headers}, body)


async def _send_huge_line(connection: Connection, fault: Fault) -> None:
    await connection.chunk(HUGE_LINE)
    for start in range(0, fault.size_bytes, FILLING_BYTES):
        await connection.chunk(b"x" * min(FILLING_BYTES, fault.size_bytes - start))
        await connection.pause(0)


@dataclass(slots=True)
class Reply:
    """An answer on its way. What it says of usage and what it bills stand in the entry before the client can know."""

    connection: Connection
    api: Api
    number: int
    question: Question
    answer: Answer
    control: Control
    fault: Fault
    entry: Entry
    _sent: list[Piece] = field(default_factory=list)

    async def send(self) -> None:
        self.entry.status = 200
        if self.question.stream:
            await self._send_stream(self.api.stream(self.number, self.question))
        elif self.fault.kind == "endless":
            await self._send_endless_document()
        else:
            await self._send_document()

    async def _send_document(self) -> None:
        if self.fault.kind == "error_event":
            document = self.api.error(500, "The stand-in was told to fail.")
        else:
            self._sent = list(self.answer.pieces)
            document = self.api.plain(self.number, self.question, self.answer, self._told())
        if self.fault.kind not in {"error_event", "garbage", "huge_line"}:  # in which there is no answer
            self.entry.usage = document.get("usage")
            self._bill()
        await send_document(self.connection, document, self.fault, self._id_header())

    async def _send_endless_document(self) -> None:
        await self.connection.begin_chunks({**JSON, **self._id_header()})
        await self.connection.chunk(b'{"text": "')
        while True:
            self._sent.append(MORE)
            self._bill()
            await self.connection.chunk(MORE.text.encode())
            await self.connection.pause(self.control.word_delay_s)

    async def _send_stream(self, stream: Stream) -> None:
        await self.connection.begin_chunks({**EVENTS, **self._id_header()})
        opening = stream.opening(self._told())
        self.entry.usage = stream.told
        await self.connection.chunk(opening)
        pieces = self.answer.pieces
        await self._send_pieces(stream, pieces[: self.fault.after])
        if await self._goes_on(stream):
            await self._send_pieces(stream, pieces[self.fault.after :])
            if self.fault.kind == "endless":
                await self._send_pieces(stream, itertools.repeat(MORE))
            self._bill()
            closing = stream.closing(self.answer, self._told())
            self.entry.usage = stream.told
            await self.connection.chunk(closing)
        await self.connection.end_chunks()

    async def _send_pieces(self, stream: Stream, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            self._sent.append(piece)
            self._bill()
            await self.connection.chunk(stream.piece(piece))
            await self.connection.pause(self.control.word_delay_s)

    async def _goes_on(self, stream: Stream) -> bool:
        """What a fault does in the middle of a stream. False where the answer ends with it."""
        match self.fault.kind:
            case "slow_body":
                await self.connection.pause(self.fault.seconds)
                return True
            case "cut":
                raise Hangup
            case "half_close":
                await self.connection.half_close()
                raise Hangup
            case "garbage":
                await self.connection.chunk(stream.garbage())
            case "error_event":
                await self.connection.chunk(stream.error())
            case "huge_line":
                await _send_huge_line(self.connection, self.fault)
            case _:
                return True
        return False

    def _usage(self) -> Usage:
        """The true one, so far."""
        return self.question.usage(self._sent, self.control.cached)

    def _bill(self) -> None:
        self.entry.billed_usd = self._usage().usd(self.control.prices)

    def _told(self) -> Usage | None:
        match self.fault.kind:
            case "no_usage":
                return None
            case "wrong_usage":
                return self._usage().times(self.fault.factor)
        return self._usage()

    def _id_header(self) -> dict[str, str]:
        return {"x-request-id": f"req_{self.number}", "request-id": f"req_{self.number}"}  # OpenAI's, Anthropic's
