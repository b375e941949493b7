"""A model's text read as what a client wants to know: text, and calls of tools with their ids and arguments.

Pure. The form is that of `runtimes.tools`; text that only looks like a call stays text. Arguments go out as they
come, since the engine has kept them to their schema.
"""

import json
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from appliance.protocol import Delta, Event, Finished, ToolCallDelta
from runtimes.tools import CLOSING, OPENING

_HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*(?=\{)')
_LONGEST_HEAD = 1024


@dataclass(slots=True)
class _JsonObject:
    """Finds the end of an object that comes in pieces."""

    depth: int = 0
    in_string: bool = False
    escaped: bool = False

    def end_in(self, text: str) -> int | None:
        """Where it ends in this piece, or None when it goes on."""
        for position, character in enumerate(text):
            if self.in_string:
                self._within_string(character)
            elif character == '"':
                self.in_string = True
            elif character in "{[":
                self.depth += 1
            elif character in "}]":
                self.depth -= 1
                if self.depth == 0:
                    return position + 1
        return None

    def _within_string(self, character: str) -> None:
        if self.escaped:
            self.escaped = False
        elif character == "\\":
            self.escaped = True
        elif character == '"':
            self.in_string = False


@dataclass(slots=True)
class _Choice:
    text: str = ""  # not read yet
    calls: int = 0
    state: str = "text"  # then head, arguments, tail
    arguments: _JsonObject = field(default_factory=_JsonObject)


class ToolCallReader:
    def __init__(self) -> None:
        self._choices: dict[int, _Choice] = {}

    def read(self, event: Event) -> list[Event]:
        """What to tell the client of an event; what may become a call is held back until it is one, or is none."""
        match event:
            case Delta():
                choice = self._choices.setdefault(event.choice, _Choice())
                choice.text += event.text
                return list(self._read(event.choice, choice, event))
            case Finished():
                choice = self._choices.get(event.choice, _Choice())
                left = "" if event.reason == "length" and self._cut_short(choice) else self._left(choice)
                rest = [Delta(event.choice, left, 0)] if left.strip() or (left and not choice.calls) else []
                if choice.calls and event.reason == "stop":
                    event = replace(event, reason="tool_calls")
                return [*rest, event]
            case _:
                return [event]

    def _cut_short(self, choice: _Choice) -> bool:
        """Whether what is held back is the beginning of a call whose name never came."""
        return choice.state == "head" or (choice.calls > 0 and OPENING.startswith(choice.text.strip()))

    def _left(self, choice: _Choice) -> str:
        """Text that was held back and is no call."""
        if choice.state == "text":
            return choice.text
        return OPENING + choice.text if choice.state == "head" else ""

    def _read(self, index: int, choice: _Choice, event: Delta) -> Iterator[Event]:
        progress = True
        while progress:
            state, length = choice.state, len(choice.text)
            if state == "text":
                yield from self._text(index, choice, event)
            elif state == "head":
                yield from self._head(index, choice)
            elif state == "arguments":
                yield from self._arguments(index, choice)
            else:
                self._tail(choice)
            progress = bool(choice.text) and (choice.state, len(choice.text)) != (state, length)

    def _text(self, index: int, choice: _Choice, event: Delta) -> Iterator[Event]:
        before, opening, after = choice.text.partition(OPENING)
        if not opening:
            keep = _beginning_of(OPENING, before)
            before, after = before[: len(before) - keep], before[len(before) - keep :]
        shown = before.rstrip("\n") if opening else before
        if choice.calls:
            shown = shown.lstrip("\n") if not shown.strip() else shown
        if shown or (event.logprobs and not opening):
            yield Delta(index, shown, event.tokens, event.logprobs)
        choice.text = after
        if opening:
            choice.state = "head"

    def _head(self, index: int, choice: _Choice) -> Iterator[Event]:
        head = _HEAD.match(choice.text)
        if head is not None:
            yield ToolCallDelta(index, choice.calls, f"call_{secrets.token_hex(12)}", json.loads(head[1]), "")
            choice.calls += 1
            choice.text = choice.text[head.end() :]
            choice.state, choice.arguments = "arguments", _JsonObject()
        elif len(choice.text) > _LONGEST_HEAD or CLOSING in choice.text:  # no call after all
            yield Delta(index, OPENING, 0)
            choice.state = "text"

    def _arguments(self, index: int, choice: _Choice) -> Iterator[Event]:
        end = choice.arguments.end_in(choice.text)
        piece = choice.text[:end]
        if piece:
            yield ToolCallDelta(index, choice.calls - 1, None, None, piece)
        choice.text = choice.text[len(piece) :]
        if end is not None:
            choice.state = "tail"

    def _tail(self, choice: _Choice) -> None:
        _, closing, after = choice.text.partition(CLOSING)
        if closing:
            choice.text, choice.state = after, "text"


def _beginning_of(mark: str, text: str) -> int:
    """How many characters at the end of a text may be the beginning of a mark, with blank lines before it."""
    for length in range(min(len(mark) - 1, len(text)), 0, -1):
        if mark.startswith(text[-length:]):
            return length + len(text[:-length]) - len(text[:-length].rstrip("\n"))
    return len(text) - len(text.rstrip("\n"))
