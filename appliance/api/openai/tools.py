"""`tools`, `tool_choice` and `parallel_tool_calls`, and what they mean together."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, Tag

from appliance.api.openai.structure import Schema, schema_text
from appliance.api.openai.validation import Body, Text, branch, branch_by
from appliance.errors import InvalidRequest
from appliance.protocol import Tool, ToolUse

MAX_TOOLS = 128
NO_ARGUMENTS = '{"type":"object","properties":{},"additionalProperties":false}'

_Name = Annotated[Text, Field(min_length=1, max_length=64)]


class FunctionDefinition(Body):
    name: _Name
    description: Text | None = None
    parameters: Schema | None = Field(None, description="JSON Schema of an object; left out: there are no arguments.")
    strict: bool | None = Field(None, description="The schema is kept either way.")


class FunctionTool(Body):
    type: Literal["function"]
    function: FunctionDefinition


def _tool(value: Any) -> str | None:
    return "function" if isinstance(value, dict) and value.get("type") == "function" else None


_Tool = Annotated[
    Annotated[FunctionTool, Tag(branch("function"))],
    branch_by(_tool, "must be a tool of type 'function'; other kinds are not supported."),
]
Tools = Annotated[list[_Tool], Field(max_length=MAX_TOOLS, fail_fast=True)]


class NamedFunction(Body):
    name: _Name


class NamedChoice(Body):
    type: Literal["function"]
    function: NamedFunction


def _choice(value: Any) -> str | None:
    if isinstance(value, str):
        return "word" if value in ("none", "auto", "required") else None
    return "named" if isinstance(value, dict) and value.get("type") == "function" else None


ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag(branch("word"))] | Annotated[NamedChoice, Tag(branch("named"))],
    branch_by(_choice, "must be 'none', 'auto', 'required' or an object of type 'function' that names a tool."),
]


def tools_of(
    listed: Sequence[FunctionTool] | None,
    choice: Any,
    parallel: bool | None,  # noqa: FBT001 - as it came
) -> tuple[tuple[Tool, ...], ToolUse | None]:
    """The tools that may be called, and how; none when the client wants none called. Raises `InvalidRequest`."""
    tools = tuple(_checked(listed or ()))
    names = {tool.name for tool in tools}
    only = choice.function.name if isinstance(choice, NamedChoice) else None
    if not tools and (choice == "required" or only is not None):
        raise InvalidRequest("'tool_choice' asks for a call, but 'tools' has no tool.", param="tool_choice")
    if only is not None and only not in names:
        raise InvalidRequest(
            f"'tool_choice.function.name' must be the name of one of 'tools', not '{only}'.",
            param="tool_choice.function.name",
        )
    if not tools or choice == "none":
        return (), None
    forced = choice == "required" or only is not None
    return tools, ToolUse("required" if forced else "auto", only, parallel=parallel is not False and only is None)


def _checked(listed: Sequence[FunctionTool]) -> Sequence[Tool]:
    seen: set[str] = set()
    tools = []
    for position, tool in enumerate(listed):
        function, where = tool.function, f"tools[{position}].function"
        if function.name in seen:
            raise InvalidRequest(f"'{where}.name' is the name of another tool too.", param=f"{where}.name")
        seen.add(function.name)
        parameters = (
            NO_ARGUMENTS if function.parameters is None else _parameters(function.parameters, f"{where}.parameters")
        )
        tools.append(Tool(function.name, function.description or "", parameters))
    return tools


def _parameters(schema: dict[str, Any], field: str) -> str:
    if schema.get("type", "object") != "object":
        raise InvalidRequest(f"'{field}' must be the schema of an object.", param=field)
    return schema_text({"type": "object", **schema}, field)
