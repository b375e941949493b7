"""A model's text read as what a client wants to know: what it thought, what it says, and what tools it calls. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from appliance.protocol import Delta, Event, Finished, ReasoningDelta, Started, TokenLogprob, ToolUse
from appliance.tool_calls import ToolCallReader, is_cut_mark
from runtimes.dialects import Dialect, ReasoningMarks


class AnswerReader:
    def __init__(self, dialect: Dialect, tool_use: ToolUse | None) -> None:
        self._readers: list[ReasoningReader | ToolCallReader | UnsaidReader] = []
        if dialect.reasoning is not None:
            self._readers.append(ReasoningReader(dialect.reasoning))
        if tool_use is not None:
            self._readers.append(ToolCallReader(dialect.calls, must_call=tool_use.choice == "required"))
        if dialect.unsaid:
            self._readers.append(UnsaidReader(dialect.unsaid))

    def read(self, event: Event) -> list[Event]:
        """What to tell the client of an engine's event."""
        events = [event]
        for reader in self._readers:
            events = [news for part in events for news in reader.read(part)]
        return events


@dataclass(slots=True)
class _Choice:
    state: str = "undecided"  # then thinking, pause and answering; or answering at once
    text: str = ""  # held back
    has_thought: bool = False
    tokens: int = 0  # that were not told yet; marks and blanks count with the text after them
    logprobs: tuple[TokenLogprob, ...] = ()  # of text that is held back; thoughts have none


class ReasoningReader:
    """Tells thoughts from the answer. Thoughts come first or not at all; blanks around them are nobody's."""

    def __init__(self, marks: ReasoningMarks) -> None:
        self._marks = marks
        self._choices: dict[int, _Choice] = {}

    def read(self, event: Event) -> list[Event]:
        match event:
            case Started(thinking=True):
                self._choices[event.choice] = _Choice("thinking")
            case Delta():
                choice = self._choices.setdefault(event.choice, _Choice())
                if choice.state != "answering":
                    choice.text += event.text
                    choice.tokens += event.tokens
                    choice.logprobs += event.logprobs
                    return list(self._read(choice, event))
            case Finished():
                choice = self._choices.pop(event.choice, _Choice())
                if choice.state == "thinking":
                    return [ReasoningDelta(event.choice, choice.text, choice.tokens), event]
                is_cut = event.reason == "length" and is_cut_mark(choice.text.lstrip(), self._marks.opening)
                if choice.text and not is_cut:
                    return [Delta(event.choice, choice.text, choice.tokens, choice.logprobs), event]
        return [event]

    def _read(self, choice: _Choice, event: Delta) -> Iterator[Event]:
        if choice.state == "undecided":
            self._decide(choice)
        if choice.state == "thinking":
            thought = self._thought(choice)
            if thought or choice.state == "pause":
                yield ReasoningDelta(event.choice, thought, choice.tokens)
                choice.tokens = 0
            choice.logprobs = ()
        if choice.state == "pause":
            choice.text = choice.text.lstrip()
            choice.state = "answering" if choice.text else "pause"
            choice.logprobs = choice.logprobs if choice.text else ()
        if choice.state == "answering" and choice.text:
            yield Delta(event.choice, choice.text, choice.tokens, choice.logprobs)
            choice.text = ""

    def _decide(self, choice: _Choice) -> None:
        begun, opening = choice.text.lstrip(), self._marks.opening
        if begun.startswith(opening):
            choice.state, choice.text = "thinking", begun.removeprefix(opening)
        elif not opening.startswith(begun):
            choice.state = "answering"

    def _thought(self, choice: _Choice) -> str:
        """What is certain to be one, taken out of the text."""
        text = choice.text if choice.has_thought else choice.text.lstrip()
        thought, mark, after = text.partition(self._marks.closing)
        if mark:
            choice.state, choice.text = "pause", after
            return thought.rstrip()
        certain = _sure(thought, self._marks.closing)
        choice.text = thought[certain:]
        choice.has_thought = choice.has_thought or certain > 0
        return thought[:certain]


class UnsaidReader:
    """Leaves out what a model writes around its answer."""

    def __init__(self, unsaid: tuple[str, ...]) -> None:
        self._pattern = re.compile("|".join(map(re.escape, unsaid)))
        self._unsaid = unsaid
        self._held: dict[int, str] = {}

    def read(self, event: Event) -> list[Event]:
        match event:
            case Delta():
                text = self._held.pop(event.choice, "") + event.text
                certain = min(len(text) - _overlap(text, mark) for mark in self._unsaid)
                if certain < len(text):
                    self._held[event.choice] = text[certain:]
                said = self._pattern.sub("", text[:certain])
                return [replace(event, text=said)] if said or event.logprobs else []
            case Finished():
                held = self._held.pop(event.choice, "")
                is_cut = any(is_cut_mark(held, mark) for mark in self._unsaid)
                left = "" if is_cut else self._pattern.sub("", held)
                return [Delta(event.choice, left, 0), event] if left else [event]
        return [event]


def _overlap(text: str, mark: str) -> int:
    """How many characters at the end of a text may be the beginning of a mark."""
    return next((n for n in range(min(len(mark) - 1, len(text)), 0, -1) if mark.startswith(text[-n:])), 0)


def _sure(text: str, mark: str) -> int:
    """How many characters come before what may be the beginning of a mark, and before blanks in front of it."""
    return len(text[: len(text) - _overlap(text, mark)].rstrip())
