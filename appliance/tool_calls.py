"""Calls of tools in a model's text, with their ids and arguments. Pure.

A call stands in the form of the model's family, to the letter, because the engine keeps it to that; arguments go out as
they come, since it has kept them to their schema too. Text that only looks like a call stays text.
"""

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from appliance.protocol import Delta, Event, Finished, TokenLogprob, ToolCallDelta
from runtimes.dialects.call_forms import CallForm, first_mark

_LONGEST_NAME = 1024  # characters, written as JSON
_LEAST_OF_A_MARK = 3  # characters; two may be anything

_State = Literal["text", "name", "arguments", "after"]


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
    state: _State = "text"
    begun: str = ""  # what opened the call whose name is awaited
    calls: int = 0
    has_spoken: bool = False
    logprobs: tuple[TokenLogprob, ...] = ()  # of tokens whose text is held back
    arguments: _JsonObject = field(default_factory=_JsonObject)


class ToolCallReader:
    def __init__(self, form: CallForm, *, must_call: bool = False) -> None:
        """`must_call`: all that comes is calls."""
        self._form = form
        self._must_call = must_call
        self._openings = (form.prefix + form.opening, form.opening) if form.prefix else (form.opening,)
        self._first_mark = first_mark(form)
        self._choices: dict[int, _Choice] = {}

    def read(self, event: Event) -> list[Event]:
        """What to tell the client of an event; what may become a call is held back until it is one, or is none."""
        match event:
            case Delta():
                choice = self._choices.setdefault(event.choice, _Choice())
                choice.text += event.text
                if choice.state == "text":
                    choice.logprobs += event.logprobs
                return list(self._read(event.choice, choice, event))
            case Finished():
                choice = self._choices.get(event.choice, _Choice())
                left = "" if event.reason == "length" and self._cut_short(choice) else self._left(choice)
                is_text = bool(left.strip() or (left and not choice.calls))
                rest = [Delta(event.choice, left, 0, choice.logprobs)] if is_text else []
                if choice.calls and event.reason == "stop":
                    event = replace(event, reason="tool_calls")
                return [*rest, event]
            case _:
                return [event]

    def _cut_short(self, choice: _Choice) -> bool:
        """Whether what is held back is the beginning of a call whose name never came."""
        held = choice.text.lstrip()
        if choice.state == "name" or held.startswith(self._first_mark) or is_cut_mark(held, self._first_mark):
            return True
        return (choice.calls > 0 or self._must_call) and self._first_mark.startswith(held)

    def _left(self, choice: _Choice) -> str:
        """Text that was held back and is no call."""
        if choice.state == "text":
            return choice.text
        return choice.begun + choice.text if choice.state == "name" else ""

    def _read(self, index: int, choice: _Choice, event: Delta) -> Iterator[Event]:
        progress = True
        while progress:
            before = choice.state, len(choice.text)
            match choice.state:
                case "text":
                    yield from self._text(index, choice, event)
                case "name":
                    yield from self._name(index, choice)
                case "arguments":
                    yield from self._arguments(index, choice)
                case "after":
                    self._after(choice)
            progress = bool(choice.text) and (choice.state, len(choice.text)) != before

    def _text(self, index: int, choice: _Choice, event: Delta) -> Iterator[Event]:
        if self._form.only_first:
            at, opening = self._at_the_start(choice)
        else:
            at = choice.text.find(self._form.opening)
            opening = self._form.opening if at >= 0 else ""
            at = at if at >= 0 else len(choice.text) - _beginning_of(self._form.opening, choice.text)
        shown, rest = choice.text[:at], choice.text[at:]
        if opening:
            shown = shown.rstrip("\n")
        if choice.calls:
            shown = shown.lstrip("\n") if not shown.strip() else shown
        logprobs, choice.logprobs = (choice.logprobs, ()) if not rest else ((), choice.logprobs)
        if opening:  # a call's tokens have none, as in OpenAI's answers
            choice.logprobs = ()
        if shown or logprobs:
            choice.has_spoken = choice.has_spoken or bool(shown)
            yield Delta(index, shown, event.tokens, logprobs)
        choice.text = rest
        if opening:
            choice.state, choice.begun, choice.text = "name", opening, rest.removeprefix(opening)

    def _at_the_start(self, choice: _Choice) -> tuple[int, str]:
        """(length of what is text for certain, what opens a call there)"""
        if choice.has_spoken or choice.calls:
            return len(choice.text), ""
        opening = next((opening for opening in self._openings if choice.text.startswith(opening)), "")
        waits = opening or any(opening.startswith(choice.text) for opening in self._openings)
        return (0 if waits else len(choice.text)), opening

    def _name(self, index: int, choice: _Choice) -> Iterator[Event]:
        written, before_arguments, rest = choice.text.partition(self._form.before_arguments)
        name = self._read_name(written) if before_arguments else None
        if name is not None:
            yield ToolCallDelta(index, choice.calls, f"call_{secrets.token_hex(12)}", name, "")
            choice.calls += 1
            choice.text, choice.state, choice.arguments = rest, "arguments", _JsonObject()
        elif before_arguments or len(choice.text) > _LONGEST_NAME:  # no call after all
            choice.has_spoken = True
            yield Delta(index, choice.begun, 0)
            choice.state = "text"

    def _read_name(self, written: str) -> str | None:
        if not self._form.name_is_json:
            return written or None
        try:
            name = json.loads(written)
        except ValueError:
            return None
        return name if isinstance(name, str) else None

    def _arguments(self, index: int, choice: _Choice) -> Iterator[Event]:
        end = choice.arguments.end_in(choice.text)
        piece = choice.text[:end]
        if piece:
            yield ToolCallDelta(index, choice.calls - 1, None, None, piece)
        choice.text = choice.text[len(piece) :]
        if end is not None:
            choice.state = "after"

    def _after(self, choice: _Choice) -> None:
        form = self._form
        following = None if form.between is None else form.closing + form.between
        last = form.closing + form.end
        if following is not None and choice.text.startswith(following):
            choice.text, choice.state, choice.begun = choice.text.removeprefix(following), "name", form.between or ""
        elif choice.text.startswith(last) and not (following or "").startswith(choice.text):
            choice.text, choice.state = choice.text.removeprefix(last), "text"


def is_cut_mark(text: str, mark: str) -> bool:
    """Whether an answer's end is more likely a mark that was cut short than text."""
    return len(text) >= _LEAST_OF_A_MARK and mark.startswith(text)


def _beginning_of(mark: str, text: str) -> int:
    """How many characters at the end of a text may be the beginning of a mark, with blank lines before it."""
    for length in range(min(len(mark) - 1, len(text)), 0, -1):
        if mark.startswith(text[-length:]):
            return length + len(text[:-length]) - len(text[:-length].rstrip("\n"))
    return len(text) - len(text.rstrip("\n"))
