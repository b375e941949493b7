"""Answers of a running daemon have the form that the official client asked for, and what cannot be kept is a 400."""

import json
import re
from collections.abc import Iterator
from enum import Enum
from typing import Any

import jsonschema_rs
import openai
import pytest
from pydantic import BaseModel, Field

from tests.integration.daemon_fixture import BackgroundStream, Daemon, chat_body

ASKED: Any = [{"role": "user", "content": "Describe a dog as JSON."}]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 30},
        "traits": {"type": "array", "items": {"enum": ["loyal", "größer", "🐕"]}, "minItems": 1, "maxItems": 3},
    },
    "required": ["name", "age", "traits"],
    "additionalProperties": False,
}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "dog", "schema": SCHEMA, "strict": True}}


@pytest.fixture
def client(daemon: Daemon) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{daemon.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.mark.parametrize("temperature", [0, 1, 2])
def test_a_schema_is_kept_by_every_choice(client: openai.OpenAI, temperature: float) -> None:
    completion = client.chat.completions.create(
        model="auto", messages=ASKED, response_format=FORMAT, temperature=temperature, n=4, max_tokens=200
    )
    for choice in completion.choices:
        assert choice.finish_reason == "stop"
        jsonschema_rs.validate(SCHEMA, json.loads(choice.message.content or ""))


def test_an_object_that_is_silent_about_others_gets_the_listed_properties_only(client: openai.OpenAI) -> None:
    open_to_others = {key: value for key, value in SCHEMA.items() if key != "additionalProperties"}
    form: Any = {"type": "json_schema", "json_schema": {"name": "dog", "schema": open_to_others}}
    tools: Any = [{"type": "function", "function": {"name": "note_dog", "parameters": open_to_others}}]
    fields: dict[str, Any] = {"model": "auto", "messages": ASKED, "temperature": 1.5, "n": 4, "max_tokens": 200}
    answer = client.chat.completions.create(**fields, response_format=form)
    called = client.chat.completions.create(**fields, tools=tools, tool_choice="required", parallel_tool_calls=False)
    said = [choice.message.content or "" for choice in answer.choices]
    arguments = [call.function.arguments for choice in called.choices for call in choice.message.tool_calls or ()]
    assert len(said) == len(arguments) == 4
    for text in said + arguments:
        assert json.loads(text).keys() == {"name", "age", "traits"}


def test_a_stream_keeps_it_too(client: openai.OpenAI) -> None:
    text = ""
    for chunk in client.chat.completions.create(
        model="auto", messages=ASKED, response_format=FORMAT, temperature=1, max_tokens=200, stream=True
    ):
        text += chunk.choices[0].delta.content or ""
    jsonschema_rs.validate(SCHEMA, json.loads(text))


def test_an_answer_cut_by_its_length_says_so(client: openai.OpenAI) -> None:
    completion = client.chat.completions.create(model="auto", messages=ASKED, response_format=FORMAT, max_tokens=5)
    assert completion.choices[0].finish_reason == "length"


def test_json_mode_is_an_object(client: openai.OpenAI) -> None:
    completion = client.chat.completions.create(
        model="auto", messages=ASKED, response_format={"type": "json_object"}, temperature=1, max_tokens=400, n=3
    )
    whole = [choice for choice in completion.choices if choice.finish_reason == "stop"]
    assert all(isinstance(json.loads(choice.message.content or ""), dict) for choice in whole)


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


class Owner(BaseModel):
    name: str = Field(max_length=10)
    phone: str | None = Field(None, max_length=12)


class Dog(BaseModel):
    name: str = Field(max_length=10)
    size: Size
    weight_kg: float = Field(gt=0, lt=100)
    owners: list[Owner] = Field(max_length=2)


def test_the_client_s_own_models_are_parsed(client: openai.OpenAI) -> None:
    completion = client.chat.completions.parse(
        model="auto", messages=ASKED, response_format=Dog, temperature=1, seed=5, max_tokens=600
    )
    message = completion.choices[0].message
    assert isinstance(message.parsed, Dog)
    assert message.refusal is None
    assert json.loads(message.content or "")["name"] == message.parsed.name


@pytest.mark.parametrize(
    ("asked", "pattern"),
    [
        ({"regex": "[0-9]{4}-[a-z]{2}"}, "[0-9]{4}-[a-z]{2}"),
        ({"choice": ["yes", "no", "I do not know"]}, "yes|no|I do not know"),
        ({"grammar": 'start: "<" WORD ">"\nWORD: /[a-z]{3}/'}, "<[a-z]{3}>"),
        ({"json": {"type": "integer", "minimum": 10, "maximum": 99}}, "[0-9]{2}"),
    ],
    ids=str,
)
def test_other_forms_are_kept_in_chats_and_completions(
    client: openai.OpenAI, asked: dict[str, Any], pattern: str
) -> None:
    more: Any = {"model": "auto", "max_tokens": 40, "temperature": 1, "extra_body": {"structured_outputs": asked}}
    chat = client.chat.completions.create(messages=ASKED, **more)
    assert re.fullmatch(pattern, chat.choices[0].message.content or "")
    text = client.completions.create(prompt="Say", **more)
    assert re.fullmatch(pattern, text.choices[0].text)


def wide(properties: int) -> dict[str, Any]:
    return {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(properties)}}


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


HOSTILE: dict[str, dict[str, Any]] = {
    "10,000 properties": wide(10_000),
    "a megabyte of properties": {**wide(10), "required": [f"p{i}" for i in range(100_000)]},
    "a megabyte of choices": {"enum": [f"{i:0100d}" for i in range(10_000)]},
    "catastrophic pattern": {"type": "string", "pattern": "^(a+)+(b|b?){5000}$"},
    "nested repetition": {"type": "string", "pattern": "^(([a-z]{1,1000}){1,1000}){1,1000}$"},
    "itself": {"$ref": "#"},
    "each other": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    "endless": {"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"a": {"$ref": "#/$defs/a"}}, "required": ["a"]}}},
    "elsewhere": {"$ref": "http://127.0.0.1:1/schema.json"},
    "a file": {"$ref": "file:///etc/passwd"},
    "no type": {"type": "strin"},
    "types of all kinds": {"type": [1, None, {}]},
    "properties as a list": {"type": "object", "properties": ["a"]},
    "negative length": {"type": "string", "maxLength": -1},
    "impossible": {"allOf": [{"type": "integer"}, {"type": "string"}]},
    "very deep": deep(25),
    "doubling": {"$ref": "#/$defs/d30", "$defs": {"d0": {"type": "null"}} | {
        f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i - 1}"}, {"allOf": [{"$ref": f"#/$defs/d{i - 1}"}]}]}
        for i in range(1, 31)
    }},
    "hundreds of patterns at once": {"allOf": [{"type": "string", "pattern": f"a{i}"} for i in range(200)]},
    "thousands of objects": {"anyOf": [{"properties": {"a": {"const": i}}, "type": "object"} for i in range(3000)]},
    "its own options": {"x-guidance": {"lenient": True}, "type": "array", "items": {}, "uniqueItems": True},
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_schemas_are_answered_and_disturb_nobody(daemon: Daemon, client: openai.OpenAI, name: str) -> None:
    other = BackgroundStream(daemon, chat_body(stream=True, max_tokens=60, ignore_eos=True))
    other.wait_first_token()
    form: Any = {"type": "json_schema", "json_schema": {"name": "n", "schema": HOSTILE[name]}}
    with daemon.client() as http:
        response = http.post("/v1/chat/completions", json=chat_body(response_format=form))
    assert response.status_code in (200, 400)
    assert response.status_code == 200 or "schema" in response.json()["error"]["param"]
    assert len(response.content) < 2000
    assert other.wait_end().data[-1] == "[DONE]"
    assert client.chat.completions.create(model="auto", messages=ASKED, max_tokens=1).choices


def test_a_keyword_that_cannot_be_kept_is_named_with_its_place(client: openai.OpenAI) -> None:
    schema = {"type": "object", "properties": {"tags": {"type": "array", "items": {}, "uniqueItems": True}}}
    form: Any = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="auto", messages=ASKED, response_format=form)
    assert refused.value.param == "response_format.json_schema.schema"
    assert '"uniqueItems" (at #/properties/tags)' in refused.value.message


GUIDANCE = [{"key_separator": " = "}, {"item_separator": "; "}, {"lenient": True}, {"bogus": 1}, "x"]


@pytest.mark.parametrize("guidance", GUIDANCE, ids=repr)
def test_a_schema_cannot_switch_its_keeper(client: openai.OpenAI, guidance: Any) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "dog", "schema": {**SCHEMA, "x-guidance": guidance}}}
    answer = client.chat.completions.create(model="auto", messages=ASKED, response_format=form, max_tokens=200)
    jsonschema_rs.validate(SCHEMA, json.loads(answer.choices[0].message.content or ""))


@pytest.mark.parametrize("stop", ["}", '"', "a"])
def test_a_stop_string_does_not_cut_a_form(client: openai.OpenAI, stop: str) -> None:
    answer = client.chat.completions.create(
        model="auto", messages=ASKED, response_format=FORMAT, max_tokens=200, stop=stop
    )
    jsonschema_rs.validate(SCHEMA, json.loads(answer.choices[0].message.content or ""))
