"""The grammar of an answer that may, or must, call tools. Pure; the text is llguidance's variant of Lark.

Free text stays free: only behind what opens a call does the grammar say what must come.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from appliance.protocol import Constraint, Tool, ToolUse
from runtimes.constraints.narrowing import narrow
from runtimes.constraints.schema import JSON_ANSWER
from runtimes.dialects.call_forms import CallForm, first_mark

FREE_TEXT = "/(.|\\n)*/"
# llguidance reads these from the schema itself, so what a client wrote there must go. Arguments are written as models
# have learnt them, on one line: a sampled one would else spend tokens on blanks.
_ARGUMENTS = {"lenient": False, "whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def tool_grammar(
    use: ToolUse, tools: tuple[Tool, ...], answer: Constraint | None, form: CallForm, control: Mapping[str, int]
) -> str:
    """`answer` is the JSON Schema of an answer that calls none; `control` are the model's control tokens among the
    form's marks, which no text can be matched with."""
    called = [(i, tool) for i, tool in enumerate(tools) if use.only in (None, tool.name)]

    def literal(text: str) -> str:
        return _sequence(text, form.marks, control)

    rest = f"call {literal(form.closing)}"
    if use.parallel and form.between is not None:
        rest += f" ({literal(form.between)} {rest})*"
    rules = [
        f"rest: {rest} {literal(form.end)}",
        "call: " + " | ".join(f"call{i}" for i, _ in called),
        *(f"call{i}: {literal(_head(tool.name, form))} arguments{i}" for i, tool in called),
        *(f"arguments{i}: {_json(tool.parameters, _ARGUMENTS)}" for i, tool in called),
    ]
    if form.speaks:
        return "\n".join([*rules, *_announced(use, answer, form, literal)])
    opening = literal(form.prefix + form.opening if answer is not None else form.opening)
    if use.choice == "required":
        rules.append(f"start: {opening} rest")
    elif answer is not None:
        rules += [f"start: answer | {opening} rest", *_answer_rule(answer)]
    elif first_mark(form) in control:
        rules += [f"start: TEXT ({opening} rest)?", f"TEXT: {FREE_TEXT}"]
    else:
        trigger = first_mark(form)
        before = "" if form.only_first else "TEXT "
        rules += [
            f"start: TEXT | opening {literal(form.opening.removeprefix(trigger))} rest",
            f"opening[lazy]: {before}{_quoted(trigger)}",
            f"TEXT: {FREE_TEXT}",
        ]
    return "\n".join(rules)


def _announced(use: ToolUse, answer: Constraint | None, form: CallForm, literal: Callable[[str], str]) -> Iterator[str]:
    said = f"{literal(form.opening)} rest"
    if use.choice == "auto":
        said = f"({said} | {literal(form.speaks)} {'TEXT' if answer is None else 'answer'})"
    if form.thought is not None:
        before, after = map(literal, form.thought)
        yield f"thought: {before} TEXT {after}"
        said = f"thought? {said}"
    yield from (f"start: {said}", f"TEXT: {FREE_TEXT}", *_answer_rule(answer))


def _answer_rule(answer: Constraint | None) -> list[str]:
    return [] if answer is None else [f"answer: {_json(answer.text, JSON_ANSWER)}"]


def _json(schema: str, options: Mapping[str, Any]) -> str:
    parsed = json.loads(schema)
    narrow(parsed)
    held = {**parsed, "x-guidance": options}
    return "%json " + json.dumps(held, ensure_ascii=False, separators=(",", ":"))


def _head(name: str, form: CallForm) -> str:
    return (json.dumps(name, ensure_ascii=False) if form.name_is_json else name) + form.before_arguments


def _sequence(text: str, marks: tuple[str, ...], control: Mapping[str, int]) -> str:
    """A text with control tokens in it, as a sequence of the grammar."""
    cuts = [mark for mark in marks if mark in control]
    pieces = re.split("(" + "|".join(map(re.escape, cuts)) + ")", text) if cuts else [text]
    return " ".join(f"<[{control[p]}]>" if p in control else _quoted(p) for p in pieces if p) or '""'


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
