"""What an API is to the rest of the stand-in: how it reads a question, and the shapes of what it answers."""

import json
from collections.abc import Mapping
from typing import Any, Protocol

from tests.frontier_stand_in.answers import Answer, Piece, Question
from tests.frontier_stand_in.journal import Usage

Document = dict[str, Any]  # a JSON object on the wire
MODELS = ("frontier-large", "frontier-small")  # that a listing names; requests may name any
GARBAGE = (b"data: {not json\n\n", b'data: {"text": "\xff\xfe\x80"}\n\n')  # no JSON; no UTF-8
HUGE_LINE = b'data: {"text": "'  # its beginning


class Stream(Protocol):
    """One streamed answer, as bytes of server-sent events."""

    told: Document | None
    """The usage that the client was told so far, as it was told."""

    def opening(self, usage: Usage | None) -> bytes: ...

    def piece(self, piece: Piece) -> bytes: ...

    def closing(self, answer: Answer, usage: Usage | None) -> bytes:
        """How it ended, and the stream's own end; nothing where the answer has no ending."""
        ...

    def error(self) -> bytes: ...

    def garbage(self) -> bytes: ...


class Api(Protocol):
    @property
    def key_headers(self) -> tuple[str, ...]:
        """The headers that the key may come in."""
        ...

    def question(self, body: Document, headers: Mapping[str, str]) -> Question:
        """Raises `BadQuestion`, or what Python raises where a body is not shaped as expected."""
        ...

    def plain(self, number: int, question: Question, answer: Answer, usage: Usage | None) -> Document:
        """The answer as one document; `number` makes its id."""
        ...

    def stream(self, number: int, question: Question) -> Stream: ...

    def models(self) -> Document: ...

    def error(self, status: int, message: str) -> Document: ...


def event(data: Document, name: str | None = None) -> bytes:
    """One server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def text_of(content: Any) -> str:
    """The text of a message's content: a string, or a list of parts of which some are text."""
    if isinstance(content, str):
        return content
    parts = (part.get("text") or text_of(part.get("content")) for part in content or ())
    return " ".join(filter(None, parts))
