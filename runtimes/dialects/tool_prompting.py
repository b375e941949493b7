"""Tools in a prompt: handed to a chat template that writes them, else described in a system message. Pure."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

from appliance.protocol import ChatPrompt, Message, TextPart, Tool
from runtimes.dialects.call_forms import CallForm

# As the variable `tools` (or SmolLM3's name for it), as the system message's attribute (Phi's), or in our own words.
Way = Literal["variable", "attribute", "described"]
NATIVE_WAYS: tuple[Way, ...] = ("variable", "attribute")

_BEFORE = """You may call tools to find out or to do what you cannot do yourself. These are the tools, each with a JSON
Schema of its arguments:
"""
_AFTER = """
To call a tool, write its name and its arguments as JSON in exactly this form, {often}and nothing after it:
{example}
If no tool is needed, answer without one."""
_PROBE = ChatPrompt((Message("user", (TextPart("hello"),)),), tools=(Tool("probe_q7", "", '{"type":"object"}'),))


def way_of(renders: Callable[[ChatPrompt], str], form: CallForm) -> Way:
    """How a template takes tools, found out by handing it one. `renders` raises what it likes when it cannot."""
    for way in NATIVE_WAYS:
        try:
            if _PROBE.tools[0].name in renders(with_tools(_PROBE, way, form)):
                return way
        except Exception:  # noqa: BLE001, S112 - a template that refuses a way is asked in another
            continue
    return "described"


def with_tools(prompt: ChatPrompt, way: Way, form: CallForm) -> ChatPrompt:
    if not prompt.tools:
        return prompt
    described = [_described(tool) for tool in prompt.tools]
    if way == "variable":
        kwargs = {**prompt.template_kwargs, "tools": described, "xml_tools": described}
        return replace(prompt, template_kwargs=kwargs)
    if way == "attribute":
        functions = json.dumps([tool["function"] for tool in described], ensure_ascii=False)
        first, *rest = _with_system(prompt.messages)
        first = replace(first, attributes={**first.attributes, "tools": functions})
        return replace(prompt, messages=(first, *rest))
    first, *rest = _with_system(prompt.messages)
    first = replace(first, content=(*first.content, TextPart(_text(prompt.tools, form))))
    return replace(prompt, messages=(first, *rest))


def _with_system(messages: Sequence[Message]) -> Sequence[Message]:
    return messages if messages[0].role in ("system", "developer") else (Message("system"), *messages)


def _text(tools: Sequence[Tool], form: CallForm) -> str:
    lines = (json.dumps(_described(tool)["function"], ensure_ascii=False) for tool in tools)
    name = "<the tool's name>"
    call = (json.dumps(name) if form.name_is_json else name) + form.before_arguments + "{<its arguments>}"
    often = "once for each call, " if form.between is not None else ""
    return (
        _BEFORE + "\n".join(lines) + _AFTER.format(often=often, example=form.opening + call + form.closing + form.end)
    )


def _described(tool: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    function["parameters"] = json.loads(tool.parameters)
    return {"type": "function", "function": function}
