"""What the stand-in's model says: a question, whatever API it came by, becomes an answer in pieces.

Pure and deterministic. A piece is one word: what counts as one token and streams as one chunk.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tests.frontier_stand_in.control import Control, FaultKind
from tests.frontier_stand_in.journal import Usage
from tests.frontier_stand_in.schema_instance import Schema, minimal

TOKENS_PER_MESSAGE = 3  # beside its words, as chat formats have it
Ending = Literal["stop", "stop_sequence", "length", "calls", "error"]


class BadQuestion(ValueError):
    """The request is not one that the API takes; the message says why."""


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    schema: Schema


@dataclass(frozen=True, slots=True)
class Question:
    """A request as the model sees it."""

    model: str
    texts: tuple[str, ...]  # of each message
    user_text: str  # the last that the user said
    max_tokens: int | None
    tools: tuple[Tool, ...] = ()  # that may be called now: the forced one alone, none after a tool's result
    parallel_calls: bool = True
    schema: Schema | None = None  # that the text must have the form of
    json_object: bool = False
    stop: tuple[str, ...] = ()
    stream: bool = False
    stream_usage: bool = True
    logprobs: bool = False
    top_logprobs: int = 0

    def usage(self, pieces: Sequence["Piece"], cached: int) -> Usage:
        """Of an answer of which these pieces were made."""
        prompt = sum(len(text.split()) + TOKENS_PER_MESSAGE for text in self.texts)
        reasoning = sum(piece.kind == "reasoning" for piece in pieces)
        return Usage(prompt, min(cached, prompt), len(pieces), reasoning)


@dataclass(frozen=True, slots=True)
class Piece:
    """A word of the reasoning, of the text or of a call's arguments; or a call's beginning, with its tool's name."""

    kind: Literal["reasoning", "text", "call", "arguments"]
    text: str
    call: int = 0  # which call it belongs to
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Answer:
    pieces: tuple[Piece, ...]
    ending: Ending | None  # None: the answer never says how it ended
    stop_sequence: str | None = None

    def joined(self, kind: Literal["reasoning", "text"]) -> str:
        return "".join(piece.text for piece in self.pieces if piece.kind == kind)

    def calls(self) -> list[Call]:
        def arguments(of: Piece) -> str:
            return "".join(piece.text for piece in self.pieces if piece.kind == "arguments" and piece.call == of.call)

        return [Call(piece.call_id, piece.text, arguments(piece)) for piece in self.pieces if piece.kind == "call"]


def answer(question: Question, control: Control, fault: FaultKind, number: int) -> Answer:
    """`number` is the request's, and makes the ids of its calls. Raises `NoInstance` for a schema that has none."""
    thoughts = [Piece("reasoning", word) for word in words(control.reasoning or "")]
    calls = _calls(question, control, fault)
    stop_sequence = None
    ending: Ending
    if calls:
        ending = "calls"
        said = list(_call_pieces(calls, number, same_id=fault == "duplicate_ids"))
    else:
        text, stop_sequence = _until_stop(_text(question, control), question.stop)
        ending = "stop_sequence" if stop_sequence else "stop"
        said = [Piece("text", word) for word in words(text)]
    pieces = (*thoughts, *said)
    if question.max_tokens is not None and len(pieces) > question.max_tokens:
        pieces, ending, stop_sequence = pieces[: question.max_tokens], "length", None
    if fault == "finish_error":
        ending = "error"
    return Answer(pieces, None if fault == "no_done" else ending, stop_sequence)


def words(text: str) -> list[str]:
    """With the space before each (and after the last), so that together they are the text."""
    return re.findall(r"\s*\S+(?:\s+$)?", text)


def _text(question: Question, control: Control) -> str:
    if question.schema is not None:
        return json.dumps(minimal(question.schema))
    said = f"You said: {question.user_text}" if control.text is None else control.text
    return json.dumps({"answer": said}) if question.json_object else said


def _until_stop(text: str, stop: Iterable[str]) -> tuple[str, str | None]:
    found = [(at, sequence) for sequence in stop if sequence and (at := text.find(sequence)) >= 0]
    if not found:
        return text, None
    at, sequence = min(found)
    return text[:at], sequence


def _calls(question: Question, control: Control, fault: FaultKind) -> list[tuple[str, str]]:
    """The name and arguments of each tool to call."""
    if fault == "unknown_tool":
        return [("no_such_tool", "{}")]
    count = control.calls if question.parallel_calls else 1
    called = question.tools[:count]
    if fault == "bad_arguments":
        return [(tool.name, '{"these": are no JSON') for tool in called]
    return [(tool.name, json.dumps(_arguments(tool))) for tool in called]


def _arguments(tool: Tool) -> Any:
    made = minimal(tool.schema)
    return made if isinstance(made, dict) else {}  # a tool that says nothing of its arguments takes none


def _call_pieces(calls: list[tuple[str, str]], number: int, *, same_id: bool) -> Iterable[Piece]:
    for index, (name, arguments) in enumerate(calls):
        call_id = f"call_{number}_{0 if same_id else index}"
        yield Piece("call", name, index, call_id)
        yield from (Piece("arguments", word, index, call_id) for word in words(arguments))
