"""Takes what is private out of a request before it leaves, and puts it back into the answer. Pure.

Each find becomes a placeholder that a model can repeat, `[EMAIL_1]`, the same one for the same text. What is found, and
how, is in `private_forms`. Images go out as they are.
"""

import json
import re
from dataclasses import replace
from typing import Any, Final, get_args

from appliance.protocol import (
    ChatPrompt,
    Delta,
    Event,
    Finished,
    Message,
    Private,
    ReasoningDelta,
    RefusalDelta,
    Request,
    TextPart,
    Tool,
    ToolCallDelta,
)
from fallback.contents import everything_said
from fallback.private_forms import finds, is_secret_name

_LONGEST_PLACEHOLDER: Final = len("[SECRET_999999]")
_KINDS: Final = tuple(kind.upper() for kind in get_args(Private))
_MARK: Final = re.compile(rf"\[(?:{'|'.join(_KINDS)})_\d{{1,6}}\]")
_HALF_MARK: Final = re.compile(
    "|".join(
        [rf"\[(?:{'|'.join(_KINDS)})_\d{{0,6}}", *{rf"\[{kind[:n]}" for kind in _KINDS for n in range(len(kind) + 1)}]
    )
)
_CALL: Final = "call "
_SHORTEST_NAMED_SECRET: Final = 6  # characters


class Redaction:
    """Of one request."""

    def __init__(self, patterns: frozenset[Private]) -> None:
        self._patterns = patterns
        self._placeholders: dict[str, str] = {}  # what was found: what stands for it
        self._found: dict[str, str] = {}  # the other way round
        self._number = 0
        self._taken: frozenset[str] = frozenset()  # placeholders that stand in the request already
        self._answers_in_json = False
        self._held: dict[tuple[int, str], str] = {}  # ends of pieces that may be half a placeholder

    def outward(self, request: Request) -> Request:
        if not self._patterns:
            return request
        form = request.constraint
        texts = [*everything_said(request), form.text if form is not None else ""]
        self._taken = frozenset(mark for text in texts for mark in _MARK.findall(text))
        self._answers_in_json = request.constraint is not None and request.constraint.kind == "json_schema"
        prompts = [
            replace(
                prompt, messages=tuple(map(self._message, prompt.messages)), tools=tuple(map(self._tool, prompt.tools))
            )
            if isinstance(prompt, ChatPrompt)
            else prompt
            for prompt in request.prompts
        ]
        if form is not None and self._answers_in_json:
            form = replace(form, text=self._json(form.text))
        stopping = replace(request.stopping, stop=tuple(map(self._without, request.stopping.stop)))
        return replace(request, prompts=tuple(prompts), constraint=form, stopping=stopping)

    def inward(self, event: Event) -> list[Event]:
        """The event with what was taken out; what may be half a placeholder waits for the next piece."""
        if not self._placeholders:
            return [event]
        match event:
            case Delta() | ReasoningDelta() | RefusalDelta():
                place, in_json = type(event).__name__, self._answers_in_json and isinstance(event, Delta)
                text, rest = self._piece((event.choice, place), event.text, in_json=in_json)
                said: list[Event] = [replace(event, text=text)]
                silent = not text and not (isinstance(event, Delta) and event.logprobs)
            case ToolCallDelta():
                place = f"{_CALL}{event.index}"
                text, rest = self._piece((event.choice, place), event.arguments, in_json=True)
                said = [replace(event, arguments=text)]
                silent = not text and event.id is None
            case Finished():
                return [*self._flushed(event.choice), event]
            case _:
                return [event]
        before = self._flushed(event.choice, place)
        return [*before, *(() if silent and rest else said)]

    def _message(self, message: Message) -> Message:
        content = tuple(
            replace(part, text=self._without(part.text)) if isinstance(part, TextPart) else part
            for part in message.content
        )
        calls = tuple(replace(call, arguments=self._json(call.arguments)) for call in message.tool_calls)
        name = None if message.name is None else self._without(message.name)
        return replace(message, content=content, tool_calls=calls, name=name)

    def _tool(self, tool: Tool) -> Tool:
        return replace(tool, description=self._without(tool.description), parameters=self._json(tool.parameters))

    def _without(self, text: str) -> str:
        for kind, find in finds(self._patterns):
            pieces, end = [], 0
            for start, stop in find(text):
                pieces += [text[end:start], self._stand_in(kind, text[start:stop])]
                end = stop
            text = "".join([*pieces, text[end:]]) if pieces else text
        return text

    def _json(self, text: str) -> str:
        """Of arguments, as a rule, and of schemas: in JSON's strings things look other than they are."""
        try:
            before = json.loads(text)
        except (ValueError, RecursionError):
            return self._without(text)
        after = self._value(before)
        return text if after == before else json.dumps(after, ensure_ascii=False)

    def _value(self, value: Any, name: str = "") -> Any:
        match value:
            case str():
                secret = "secret" in self._patterns and is_secret_name(name) and len(value) >= _SHORTEST_NAMED_SECRET
                return self._stand_in("secret", value) if secret else self._without(value)
            case list():
                return [self._value(item, name) for item in value]
            case dict():
                return {key: self._value(item, key) for key, item in value.items()}
        return value

    def _stand_in(self, kind: Private, value: str) -> str:
        if value not in self._placeholders:
            self._number += 1
            while (mark := f"[{kind.upper()}_{self._number}]") in self._taken:
                self._number += 1
            self._placeholders[value], self._found[mark] = mark, value
        return self._placeholders[value]

    def _piece(self, place: tuple[int, str], piece: str, *, in_json: bool) -> tuple[str, str]:
        """What can be told at this place now, and what waits."""
        text = self._held.pop(place, "") + piece
        start = text.rfind("[", max(0, len(text) - _LONGEST_PLACEHOLDER))
        if start < 0 or _HALF_MARK.fullmatch(text, start) is None:
            return self._with(text, in_json=in_json), ""
        self._held[place] = text[start:]
        return self._with(text[:start], in_json=in_json), text[start:]

    def _flushed(self, choice: int, now: str | None = None) -> list[Event]:
        """What waits in other places of the choice: it comes before what is said `now`. Calls may come side by side."""
        events: list[Event] = []
        for held in [held for held in self._held if held[0] == choice and held[1] != now]:
            place = held[1]
            if now is not None and now.startswith(_CALL) and place.startswith(_CALL):
                continue
            text = self._held.pop(held)
            match place:
                case "Delta":
                    events.append(Delta(choice, text, 0))
                case "ReasoningDelta":
                    events.append(ReasoningDelta(choice, text, 0))
                case "RefusalDelta":
                    events.append(RefusalDelta(choice, text))
                case _:
                    events.append(ToolCallDelta(choice, int(place.removeprefix(_CALL)), None, None, text))
        return events

    def _with(self, text: str, *, in_json: bool) -> str:
        if "[" not in text:
            return text

        def put_back(mark: re.Match[str]) -> str:
            value = self._found.get(mark[0])
            if value is None:
                return mark[0]
            return json.dumps(value, ensure_ascii=False)[1:-1] if in_json else value

        return _MARK.sub(put_back, text)
