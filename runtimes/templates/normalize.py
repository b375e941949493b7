"""The ways in which one conversation can be put to a chat template, gentlest first.

Templates differ in what they can take: some raise at a late system message, at two users in a row, at a null; some
drop such a thing without a word. Nobody can list what each one wants, so the caller tries forms in this order until
one keeps everything. Only the encoding changes before the turns do, and turns change their role or place before
tool calls become text.

A late system message stays where it was sent, as user text: moved to the front it would read out of order and cost
the KV cache of the whole conversation. Pure; it knows no template.
"""

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from runtimes.dialects import CallForm
from runtimes.templates.provenance import splice
from runtimes.templates.turns import Call, Turn

MISTRAL_ID_LENGTH = 9  # its templates raise at tool call ids of any other length


@dataclass(frozen=True, slots=True)
class Form:
    name: str
    messages: list[dict[str, Any]]  # as templates take them
    origins: list[tuple[int, ...]]  # for each of them, the messages of the request that it was made from
    is_plain: bool  # encoded as most templates expect it: what they say about it is to the point


class Arguments(dict[str, Any]):
    """Arguments of a call, for templates that want an object; printed, they are the JSON that the client sent."""

    def __init__(self, parsed: dict[str, Any], text: str) -> None:
        super().__init__(parsed)
        self._text = text

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__


class Parts(list[Any]):
    """Typed content parts. To print the list itself would show the model Python's notation, so it is an error."""

    def __str__(self) -> str:
        raise TypeError("the content is a list of parts here")

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class Encoding:
    name: str = ""
    string_arguments: bool = False
    null_content: bool = False  # of assistant turns that only call tools
    parts: bool = False
    short_ids: bool = False

    def message(self, turn: Turn) -> dict[str, Any]:
        made: dict[str, Any] = {"role": turn.role, "content": self._content(turn), **turn.attributes}
        if turn.name is not None:
            made["name"] = turn.name
        if turn.calls:
            made["tool_calls"] = [self._call(call) for call in turn.calls]
        if turn.call_id is not None:
            made["tool_call_id"] = self._id(turn.call_id)
        return made

    def _content(self, turn: Turn) -> Any:
        if self.null_content and turn.calls and not turn.texts:
            return None
        if self.parts:
            return Parts({"type": "text", "text": text} for text in turn.texts or ("",))
        return splice(_between("\n", turn.texts))

    def _call(self, call: Call) -> dict[str, Any]:
        as_string = self.string_arguments or call.parsed is None
        arguments = call.arguments if as_string else Arguments(call.parsed or {}, call.arguments)
        return {
            "id": self._id(call.id),
            "type": "function",
            "function": {"name": call.name, "arguments": arguments},
        }

    def _id(self, call_id: str) -> str:
        if not self.short_ids or (len(call_id) == MISTRAL_ID_LENGTH and call_id.isalnum()):
            return call_id
        return hashlib.sha256(call_id.encode()).hexdigest()[:MISTRAL_ID_LENGTH]


ENCODINGS = (
    Encoding(),
    Encoding("string-arguments", string_arguments=True),
    Encoding("null-content", null_content=True),
    Encoding("null-content+string-arguments", null_content=True, string_arguments=True),
    Encoding("short-call-ids", short_ids=True),
    Encoding("text-parts", parts=True),
)

Turns = list[Turn]


def developer_as_system(turns: Turns) -> Turns:
    return [replace(turn, role="system") if turn.role == "developer" else turn for turn in turns]


def merged_users(turns: Turns) -> Turns:
    """Leading system messages as one, later ones as user text in their place, and user turns in a row as one."""
    leading = list(itertools.takewhile(lambda turn: turn.role == "system", turns))
    rest = [replace(turn, role="user") if turn.role == "system" else turn for turn in turns[len(leading) :]]
    return _merged(leading, "system") + _merged(rest, "user")


def alternating(turns: Turns) -> Turns:
    """User and assistant by turns after the system message, the user first."""
    turns = _merged(merged_users(turns), "assistant")
    first = next((at for at, turn in enumerate(turns) if turn.role != "system"), len(turns))
    if first < len(turns) and turns[first].role == "assistant":
        turns.insert(first, Turn("user", (), turns[first].origins))
    return turns


def system_in_user(turns: Turns) -> Turns:
    return alternating([replace(turn, role="user") if turn.role == "system" else turn for turn in turns])


def split_calls(turns: Turns) -> Turns:
    """An assistant turn that speaks and calls, or calls twice, as turns that each do one thing."""
    made: Turns = []
    for turn in turns:
        if turn.calls and turn.texts:
            made.append(replace(turn, calls=()))
        made += [replace(turn, texts=(), calls=(call,)) for call in turn.calls] or [turn]
    return made


def tools_as_text(turns: Turns, form: CallForm) -> Turns:
    """Calls as text of the assistant, in the form that the model is to call in, and results as text of the user."""
    made: Turns = []
    for turn in turns:
        texts = (*turn.texts, _calls_text(turn.calls, form)) if turn.calls else turn.texts
        if turn.role == "tool":
            result = splice(("<tool_response>\n", *_between("\n", texts), "\n</tool_response>"))
            made.append(Turn("user", (result,), turn.origins))
        else:
            made.append(replace(turn, texts=texts, calls=()))
    return made


SHAPES: tuple[tuple[str, Callable[[Turns], Turns]], ...] = (
    ("", lambda turns: turns),
    ("merged-users", merged_users),
    ("alternating", alternating),
    ("system-in-user", system_in_user),
)


def forms(turns: Sequence[Turn], *, knows_developer: bool, call_form: CallForm) -> Iterator[Form]:
    """Every different form of a conversation. `knows_developer`: whether the template tells that role apart."""
    given = list(turns)
    ways: tuple[tuple[str, Callable[[Turns], Turns]], ...] = (
        ("", lambda turns: turns),
        ("split-calls", split_calls),
        ("tools-as-text", lambda turns: tools_as_text(turns, call_form)),
    )
    starts = [("", given)]
    if any(turn.role == "developer" for turn in given):
        renamed = ("developer-as-system", developer_as_system(given))
        starts = [("", given), renamed] if knows_developer else [renamed]
    seen: list[list[dict[str, Any]]] = []
    for tools, shape in itertools.product(ways, SHAPES):
        for start, turned in starts:
            shaped = shape[1](tools[1](turned))
            for encoding in ENCODINGS:
                messages = [encoding.message(turn) for turn in shaped]
                if messages in seen:
                    continue
                seen.append(messages)
                names = filter(None, (start, tools[0], shape[0], encoding.name))
                origins = [turn.origins for turn in shaped]
                yield Form("+".join(names) or "as-given", messages, origins, encoding == ENCODINGS[0])


def _merged(turns: Sequence[Turn], role: str) -> Turns:
    """Neighbouring turns of a role as one; a turn that calls tools is not followed by more of itself."""
    made: Turns = []
    for turn in turns:
        last = made[-1] if made else None
        if last is None or not last.role == turn.role == role or last.calls:
            made.append(turn)
            continue
        apart = ("\n\n",) if last.texts and turn.texts else ()
        text = splice((*_between("\n", last.texts), *apart, *_between("\n", turn.texts)))
        name = last.name if last.name == turn.name else None
        origins, attributes = last.origins + turn.origins, {**last.attributes, **turn.attributes}
        made[-1] = Turn(role, (text,) if text else (), origins, name, turn.calls, attributes=attributes)
    return made


def _calls_text(calls: Sequence[Call], form: CallForm) -> str:
    quote = '"' if form.name_is_json else ""
    written = [splice((quote, call.name, quote, form.before_arguments, call.arguments, form.closing)) for call in calls]
    return splice((form.opening, *_between(form.between or "\n" + form.opening, written), form.end))


def _between(separator: str, texts: Sequence[str]) -> list[str]:
    spaced = [piece for text in texts for piece in (separator, text)]
    return spaced[1:]
