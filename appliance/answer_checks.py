"""Whether a local answer will do. Pure.

A check that fails says so in one word, which is the reason of the escalation. Good answers must pass: an escalation
costs money, so what is only likely to be bad is left alone.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import jsonschema_rs

from appliance.protocol import (
    ChatPrompt,
    Constraint,
    Delta,
    Event,
    Finished,
    Request,
    Started,
    StepKind,
    Tool,
    ToolCall,
    ToolCallDelta,
)
from fallback.contents import said

# Of a model that does not do what it was asked. Only at the beginning: in the middle they are part of an answer.
_CANNOT: Final = (
    r"(?:i|we) (?:can(?:no|')?t|am (?:not able|unable) to|do not have|don't have|do not know|don't know|won't|will not)"
)
_HELPLESS: Final = (
    r"(?:\w+ ){0,4}(?:help|assist|access|provide|answer|fulfil|comply|do that|do this|information|know)\b"
)
_REFUSAL: Final = re.compile(
    rf"\W*(?:(?:i'm|i am|we're)? ?(?:very |so |really )?(?:sorry|afraid)[,.;]? (?:but )?(?:that )?{_CANNOT}"
    rf"|(?:i'm|i am|we're|we are) (?:unable|not able) to\b|{_CANNOT} {_HELPLESS}|unfortunately,? {_CANNOT}"
    r"|as an ai\b|as a (?:large )?language model)",
    re.IGNORECASE,
)
_LOOP_TIMES: Final = 6  # a piece of text that often in a row, at the end, is no style
_LOOP_CHARACTERS: Final = 60  # and so long in all
_LONGEST_PERIOD: Final = 200
_SHORTEST_EXTRACT: Final = 3  # characters; less stands in any text


@dataclass(slots=True)
class _Choice:
    text: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    end: Finished | None = None


def failed_check(request: Request, step: StepKind | None, events: Iterable[Event], min_margin: float) -> str | None:
    """What is wrong with the answer that the events make, in kebab-case; None: nothing that shows."""
    choices = _choices(events)
    if not choices:
        return "incomplete"
    for choice in choices:
        if choice.end is None:
            return "incomplete"
        if choice.end.reason == "length":
            return "length"
        if why := _wrong_calls(request, choice.calls) if choice.calls else _wrong_text(request, step, choice.text):
            return why
        margin = choice.end.mean_margin
        if min_margin > 0 and margin is not None and margin < min_margin:
            return "low-confidence"
    return None


def _choices(events: Iterable[Event]) -> Sequence[_Choice]:
    choices: dict[int, _Choice] = {}
    for event in events:
        match event:
            case Started():
                choices.setdefault(event.choice, _Choice())
            case Delta():
                choices.setdefault(event.choice, _Choice()).text += event.text
            case ToolCallDelta():
                calls = choices.setdefault(event.choice, _Choice()).calls
                if event.id is not None:
                    calls.append(ToolCall(event.id, event.name or "", event.arguments))
                elif calls:
                    last = calls[-1]
                    calls[-1] = ToolCall(last.id, last.name, last.arguments + event.arguments)
            case Finished():
                choices.setdefault(event.choice, _Choice()).end = event
    return tuple(choices.values())


def _wrong_calls(request: Request, calls: Sequence[ToolCall]) -> str | None:
    prompt = request.prompts[0]
    offered: dict[str, Tool] = {tool.name: tool for tool in prompt.tools} if isinstance(prompt, ChatPrompt) else {}
    for call in calls:
        tool = offered.get(call.name)
        if tool is None:
            return "unknown-tool"
        if not _matches(call.arguments, tool.parameters):
            return "wrong-arguments"
    return None


def _wrong_text(request: Request, step: StepKind | None, text: str) -> str | None:
    form = request.constraint
    wrong = {
        "no-tool-call": request.tool_use is not None and request.tool_use.choice == "required",
        "empty": not text.strip(),
        "wrong-form": form is not None and form.kind == "json_schema" and not _matches(text, form.text),
        "refusal": form is None and bool(_REFUSAL.match(text.replace("\u2019", "'"))),
        "loop": _loops(text),
        "not-in-source": step == "extract" and not _from_source(text, form, request),
    }
    return next((why for why, is_so in wrong.items() if is_so), None)


def _matches(text: str, schema: str) -> bool:
    try:
        # What a schema refers to elsewhere is not fetched: this is no way out of the machine, nor to its files.
        validator = jsonschema_rs.validator_for(json.loads(schema), retriever=_nothing_elsewhere)
        return bool(validator.is_valid(json.loads(text)))
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError):
        return True  # the schema itself is none: nothing can be held against the answer
    except (ValueError, RecursionError):
        return False


def _nothing_elsewhere(uri: str) -> dict[str, Any]:
    raise LookupError(uri)


def _loops(text: str) -> bool:
    """Whether it ends in one piece of text over and over."""
    end = text.rstrip()[-_LOOP_TIMES * _LONGEST_PERIOD :]
    for period in range(1, min(_LONGEST_PERIOD, len(end) // _LOOP_TIMES) + 1):
        times = max(_LOOP_TIMES, -(-_LOOP_CHARACTERS // period))
        unit = end[-period:]
        if not unit.isspace() and end.endswith(unit * times):
            return True
    return False


def _from_source(text: str, form: Constraint | None, request: Request) -> bool:
    """Whether every string of an extracted object stands in the request; what the form itself names need not."""
    try:
        extracted = json.loads(text)
    except (ValueError, RecursionError):
        return True  # not an object: prose cannot be held to its words
    source = _plain(" ".join(said(request)) + " " + (form.text if form is not None else ""))
    return all(_plain(value) in source for value in _strings(extracted) if len(value) >= _SHORTEST_EXTRACT)


def _strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list():
            for item in value:
                yield from _strings(item)
        case dict():
            for item in value.values():
                yield from _strings(item)


def _plain(text: str) -> str:
    """Letters and digits alone, so that neither case nor punctuation nor line breaks make a difference."""
    return "".join(c for c in unicodedata.normalize("NFKC", text).casefold() if c.isalnum())
