"""Tools in a prompt: handed to a chat template that knows them, else described in a system message. Pure."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from appliance.protocol import ChatPrompt, Message, TextPart, Tool

_BEFORE = """You may call tools to find out or to do what you cannot do yourself. These are the tools, each with a JSON
Schema of its arguments:
"""
_AFTER = """
To call a tool, write its name and its arguments as JSON between these tags, once for each call, and nothing after them:
<tool_call>
{"name": "<the tool's name>", "arguments": {<its arguments>}}
</tool_call>
If no tool is needed, answer without one."""


def knows_tools(template: str | None) -> bool:
    """Whether a chat template puts tools into the prompt itself, and asks for calls in the form that is read here."""
    return template is not None and "tools" in template and "<tool_call>" in template


def with_tools(prompt: ChatPrompt, *, template_knows: bool) -> ChatPrompt:
    if not prompt.tools:
        return prompt
    if template_knows:
        described = [_described(tool) for tool in prompt.tools]
        return replace(prompt, template_kwargs={**prompt.template_kwargs, "tools": described})
    return replace(prompt, messages=_told(prompt.messages, _text(prompt.tools)))


def _told(messages: Sequence[Message], text: str) -> tuple[Message, ...]:
    first, rest = messages[0], tuple(messages[1:])
    if first.role in ("system", "developer"):
        return (replace(first, content=(*first.content, TextPart(text))), *rest)
    return (Message("system", (TextPart(text),)), *messages)


def _text(tools: Sequence[Tool]) -> str:
    lines = (json.dumps(_described(tool)["function"], ensure_ascii=False) for tool in tools)
    return _BEFORE + "\n".join(lines) + _AFTER


def _described(tool: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    function["parameters"] = json.loads(tool.parameters)
    return {"type": "function", "function": function}
