"""`tools` and `tool_choice` become the tools of a prompt and how they are used, or an error that names the field."""

import json
from typing import Any

import pytest

from appliance.api.openai.chat_request import parse_chat
from appliance.errors import InvalidRequest
from appliance.protocol import ChatPrompt, Request, Tool, ToolUse

SCHEMA = {"type": "object", "properties": {"città": {"type": "string"}}}


def tool(name: str = "look", **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **more}}


def parse(**fields: Any) -> Request:
    return parse_chat({"model": "m", "messages": [{"role": "user", "content": "x"}], **fields}, {}, "id")


def tools_of(request: Request) -> tuple[Tool, ...]:
    (prompt,) = request.prompts
    assert isinstance(prompt, ChatPrompt)
    return prompt.tools


def test_a_tool_is_what_the_client_said() -> None:
    (made,) = tools_of(parse(tools=[tool(description="Looks.", parameters=SCHEMA, strict=True)]))
    assert (made.name, made.description, json.loads(made.parameters)) == ("look", "Looks.", SCHEMA)


@pytest.mark.parametrize("parameters", [{}, {"properties": {}}])
def test_arguments_are_an_object_even_if_nobody_says_so(parameters: dict[str, Any]) -> None:
    (made,) = tools_of(parse(tools=[tool(parameters=parameters)]))
    assert json.loads(made.parameters) == {"type": "object", **parameters}


def test_without_parameters_there_are_no_arguments() -> None:
    (made,) = tools_of(parse(tools=[tool()]))
    assert json.loads(made.parameters) == {"type": "object", "properties": {}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("fields", "use"),
    [
        ({}, ToolUse("auto")),
        ({"tool_choice": None}, ToolUse("auto")),
        ({"tool_choice": "auto"}, ToolUse("auto")),
        ({"tool_choice": "required"}, ToolUse("required")),
        ({"parallel_tool_calls": True}, ToolUse("auto")),
        ({"parallel_tool_calls": False}, ToolUse("auto", parallel=False)),
        ({"tool_choice": tool("b")}, ToolUse("required", "b", parallel=False)),
    ],
)
def test_how_tools_are_used(fields: dict[str, Any], use: ToolUse) -> None:
    assert parse(tools=[tool("a"), tool("b")], **fields).tool_use == use


@pytest.mark.parametrize(
    "fields",
    [{"tools": []}, {"tools": None}, {"tools": [tool()], "tool_choice": "none"}, {"tool_choice": "auto"},
     {"parallel_tool_calls": True}],
)  # fmt: skip
def test_no_tools_are_no_tools(fields: dict[str, Any]) -> None:
    assert parse(**fields) == parse()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": {}}, "tools"),
        ({"tools": [1]}, "tools[0]"),
        ({"tools": [tool(), {"type": "custom", "custom": {"name": "f"}}]}, "tools[1]"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"tools": [tool("")]}, "tools[0].function.name"),
        ({"tools": [tool("a"), tool("b"), tool("a")]}, "tools[2].function.name"),
        ({"tools": [tool(parameters="{}")]}, "tools[0].function.parameters"),
        ({"tools": [tool(parameters={"type": "array"})]}, "tools[0].function.parameters"),
        ({"tools": [tool(parameters={"title": "\ud800"})]}, "tools[0].function.parameters"),
        ({"tools": [tool(arguments={})]}, "tools[0].function.arguments"),
        ({"tools": [tool(f"f{i}") for i in range(129)]}, "tools"),
        ({"tools": [tool()], "tool_choice": "any"}, "tool_choice"),
        ({"tools": [tool()], "tool_choice": 1}, "tool_choice"),
        ({"tools": [tool()], "tool_choice": {"type": "function"}}, "tool_choice.function"),
        ({"tools": [tool()], "tool_choice": tool("other")}, "tool_choice.function.name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [], "tool_choice": tool()}, "tool_choice"),
        ({"tools": [tool()], "parallel_tool_calls": "yes"}, "parallel_tool_calls"),
        ({"tools": [tool()], "structured_outputs": {"regex": "a"}}, "structured_outputs.regex"),
        ({"functions": [{"name": "f"}]}, "functions"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse(**fields)
    assert refused.value.param == param


def test_a_schema_for_answers_goes_together_with_tools() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
    request = parse(tools=[tool()], response_format=form)
    assert request.constraint is not None
    assert request.tool_use == ToolUse("auto")
