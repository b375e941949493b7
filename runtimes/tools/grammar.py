"""The grammar of an answer that may, or must, call tools. Pure; the text is llguidance's variant of Lark.

Free text stays free: only behind an opening tag does the grammar say what must come.
"""

import json
from typing import Any

from appliance.protocol import Constraint, Tool, ToolUse

FREE_TEXT = "/(.|\\n)*/"


def tool_grammar(use: ToolUse, tools: tuple[Tool, ...], answer: Constraint | None) -> str:
    """`answer` is the JSON Schema of an answer that calls none."""
    callable_ = [tool for tool in tools if use.only in (None, tool.name)]
    more = '("\\n<tool_call>" call)*' if use.parallel else ""
    rules = ['call: "\\n" body "\\n</tool_call>"', f"body: %json {_dumped(_calls(callable_))}"]
    if use.choice == "required":
        rules.append(f'start: "<tool_call>" call {more}')
    elif answer is not None:
        rules += [f'start: answer | "<tool_call>" call {more}', f"answer: %json {answer.text}"]
    else:
        rules += [f"start: TEXT | opening call {more}", 'opening[lazy]: TEXT "<tool_call>"', f"TEXT: {FREE_TEXT}"]
    return "\n".join(rules)


def _calls(tools: list[Tool]) -> dict[str, Any]:
    """The JSON Schema of one call. The tools' own schemas are its definitions, so that what they refer to is found."""
    definitions = {f"tool{i}": _moved(json.loads(tool.parameters), f"tool{i}") for i, tool in enumerate(tools)}
    return {"anyOf": [_call(tool.name, f"tool{i}") for i, tool in enumerate(tools)], "$defs": definitions}


def _call(name: str, definition: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"name": {"const": name}, "arguments": {"$ref": f"#/$defs/{definition}"}},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _moved(schema: Any, definition: str) -> Any:
    """With its references into itself as they are from outside."""
    if isinstance(schema, list):
        return [_moved(part, definition) for part in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {key: _moved(value, definition) for key, value in schema.items()}
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        moved["$ref"] = f"#/$defs/{definition}{reference[1:]}"
    return moved


def _dumped(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
