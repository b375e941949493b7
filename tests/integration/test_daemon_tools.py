"""Tools of a running daemon, through the official client: every call parses, fits its schema and has its own id."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import openai
import pytest
from pydantic import BaseModel

from tests.integration.daemon_fixture import Daemon

SCHEMAS: dict[str, dict[str, Any]] = {
    "get_weather": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}, "unit": {"enum": ["C", "°F"]}},
        "required": ["city", "unit"],
        "additionalProperties": False,
    },
    "add": {
        "type": "object",
        "properties": {"numbers": {"type": "array", "items": {"$ref": "#/$defs/n"}, "minItems": 1, "maxItems": 3}},
        "required": ["numbers"],
        "additionalProperties": False,
        "$defs": {"n": {"type": "integer", "minimum": 0, "maximum": 99}},
    },
    "now": {"type": "object", "properties": {}, "additionalProperties": False},
}
TOOLS: Any = [
    {"type": "function", "function": {"name": name, "description": f"Does {name}.", "parameters": schema}}
    for name, schema in SCHEMAS.items()
]
ASKED: Any = [{"role": "user", "content": "What is the weather in Paris?"}]


@pytest.fixture
def client(daemon: Daemon) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{daemon.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def check(calls: list[tuple[str | None, str | None, str]]) -> None:
    """(id, name, arguments) of each call of one choice."""
    assert len({call_id for call_id, _, _ in calls}) == len(calls)
    for call_id, name, arguments in calls:
        assert call_id
        assert name is not None
        jsonschema_rs.validate(SCHEMAS[name], json.loads(arguments))


def whole(client: openai.OpenAI, **fields: Any) -> tuple[Any, list[tuple[str | None, str | None, str]]]:
    completion = client.chat.completions.create(model="auto", messages=ASKED, tools=TOOLS, **fields)
    choice = completion.choices[0]
    return choice, [(c.id, c.function.name, c.function.arguments) for c in choice.message.tool_calls or []]


@pytest.mark.parametrize("seed", range(4))
def test_a_call_that_must_come_comes(client: openai.OpenAI, seed: int) -> None:
    choice, calls = whole(client, tool_choice="required", temperature=1, seed=seed, max_tokens=300)
    assert calls
    assert choice.finish_reason in ("tool_calls", "length")
    assert choice.message.content is None
    check(calls if choice.finish_reason == "tool_calls" else calls[:-1])


@pytest.mark.parametrize("seed", range(4))
def test_calls_come_in_pieces_with_stable_indices(client: openai.OpenAI, seed: int) -> None:
    calls: dict[int, list[Any]] = {}
    text, reason = "", None
    for chunk in client.chat.completions.create(
        model="auto", messages=ASKED, tools=TOOLS, tool_choice="required", temperature=1, seed=seed, max_tokens=300,
        stream=True,
    ):  # fmt: skip
        choice = chunk.choices[0]
        text += choice.delta.content or ""
        reason = choice.finish_reason or reason
        for piece in choice.delta.tool_calls or []:
            assert piece.function is not None
            if piece.index not in calls:
                assert piece.index == len(calls)
                assert piece.type == "function"
                calls[piece.index] = [piece.id, piece.function.name, ""]
            else:
                assert (piece.id, piece.function.name) == (None, None)
            calls[piece.index][2] += piece.function.arguments or ""
    made = [tuple(call) for call in calls.values()]
    assert made
    assert text == ""
    check(made if reason == "tool_calls" else made[:-1])


def test_a_named_tool_is_called_once(client: openai.OpenAI) -> None:
    choice, calls = whole(client, tool_choice={"type": "function", "function": {"name": "add"}}, temperature=1)
    assert [name for _, name, _ in calls] == ["add"]
    assert choice.finish_reason == "tool_calls"
    check(calls)


def test_one_call_at_a_time_if_asked(client: openai.OpenAI) -> None:
    _, calls = whole(client, tool_choice="required", parallel_tool_calls=False, temperature=1, max_tokens=300)
    assert len(calls) == 1
    check(calls)


def test_free_text_stays_free(client: openai.OpenAI) -> None:
    choice, calls = whole(client, temperature=0, max_tokens=20)
    assert choice.message.content or calls
    plain, none = whole(client, tool_choice="none", temperature=0, max_tokens=20)
    assert plain.message.content
    assert not none
    assert plain.finish_reason in ("stop", "length")


def test_choices_call_on_their_own(client: openai.OpenAI) -> None:
    completion = client.chat.completions.create(
        model="auto", messages=ASKED, tools=TOOLS, tool_choice={"type": "function", "function": {"name": "now"}}, n=3
    )
    ids = [call.id for choice in completion.choices for call in choice.message.tool_calls or []]
    assert len(set(ids)) == 3


def test_a_loop_of_calls_and_results(client: openai.OpenAI) -> None:
    messages: list[Any] = [*ASKED]
    for turn in range(3):
        forced: Any = {"type": "function", "function": {"name": "get_weather"}} if turn < 2 else "none"
        completion = client.chat.completions.create(
            model="auto", messages=messages, tools=TOOLS, tool_choice=forced, temperature=0, max_tokens=60
        )
        message = completion.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        messages += [
            {"role": "tool", "tool_call_id": call.id, "content": f"{turn} degrees, clear"}
            for call in message.tool_calls or []
        ]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert messages[-1]["content"]


class GetWeather(BaseModel):
    """Weather of a city."""

    city: str
    days: int


def test_the_client_s_own_tool_models_are_parsed(client: openai.OpenAI) -> None:
    completion = client.chat.completions.parse(
        model="auto",
        messages=ASKED,
        tools=[openai.pydantic_function_tool(GetWeather)],
        tool_choice="required",
        parallel_tool_calls=False,
        temperature=0,
        max_tokens=200,
    )
    (call,) = completion.choices[0].message.tool_calls or []
    assert isinstance(call.function.parsed_arguments, GetWeather)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": {"type": "function", "function": {"name": "unknown"}}}, "tool_choice.function.name"),
        ({"tools": [TOOLS[0], TOOLS[1], TOOLS[0]]}, "tools[2].function.name"),
        ({"tools": [{"type": "function", "function": {"description": "nameless"}}]}, "tools[0].function.name"),
        (
            {"tools": [TOOLS[0], {"type": "function", "function": {
                "name": "odd", "parameters": {"type": "object", "properties": {"x": {"not": {}}}}}}]},
            "tools[1].function.parameters",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_tools_is_named(client: openai.OpenAI, fields: Any, param: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(**{"model": "auto", "messages": ASKED, "tools": TOOLS, **fields})
    assert refused.value.param == param


def test_a_stream_that_is_no_call_is_text_from_its_first_token(client: openai.OpenAI) -> None:
    deltas = [
        chunk.choices[0].delta
        for chunk in client.chat.completions.create(
            model="auto", messages=ASKED, tools=TOOLS, stream=True, max_tokens=12, temperature=0
        )
    ]
    assert deltas[0].role == "assistant"
    assert deltas[0].content is None
    assert "".join(delta.content or "" for delta in deltas) or any(delta.tool_calls for delta in deltas)


@pytest.mark.parametrize("stop", ["}", "Paris", '"', "\n", "name", "tool_call>", "<"])
def test_a_stop_string_does_not_cut_a_call(client: openai.OpenAI, stop: str) -> None:
    fields: dict[str, Any] = {"tool_choice": "required", "parallel_tool_calls": False, "temperature": 0}
    choice, calls = whole(client, stop=stop, max_tokens=80, **fields)
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    check(calls)
