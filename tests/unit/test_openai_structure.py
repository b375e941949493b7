"""`response_format` and `structured_outputs` become one constraint, or an error that names the field."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from appliance.api.openai.chat_request import parse_chat
from appliance.api.openai.completion_request import parse_completion
from appliance.errors import InvalidRequest
from appliance.protocol import Constraint

SCHEMA = {"type": "object", "properties": {"ä": {"type": "integer"}}}
NAMED = {"name": "n", "schema": SCHEMA}


def chat(fields: dict[str, Any]) -> Constraint | None:
    return parse_chat({"model": "m", "messages": [{"role": "user", "content": "x"}], **fields}, {}, "id").constraint


def completion(fields: dict[str, Any]) -> Constraint | None:
    return parse_completion({"model": "m", "prompt": "x", **fields}, {}, "id").constraint


Parse = Callable[[dict[str, Any]], Constraint | None]
both = pytest.mark.parametrize("parse", [chat, completion])


@both
@pytest.mark.parametrize("fields", [{}, {"response_format": None}, {"response_format": {"type": "text"}}])
def test_text_is_free(parse: Parse, fields: dict[str, Any]) -> None:
    assert parse(fields) is None


@both
def test_json_mode_is_any_object(parse: Parse) -> None:
    constraint = parse({"response_format": {"type": "json_object"}})
    assert constraint == Constraint("json_schema", '{"type":"object"}', "response_format")


@both
@pytest.mark.parametrize("strict", [True, False, None])
def test_a_schema_is_kept_strict_or_not(parse: Parse, strict: bool | None) -> None:  # noqa: FBT001 - pytest's parameter
    constraint = parse({"response_format": {"type": "json_schema", "json_schema": {**NAMED, "strict": strict}}})
    assert constraint is not None
    assert constraint.kind == "json_schema"
    assert json.loads(constraint.text) == SCHEMA
    assert constraint.field == "response_format.json_schema.schema"


def test_a_schema_may_be_left_out() -> None:
    constraint = chat({"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}})
    assert constraint is not None
    assert constraint.text == "{}"


@pytest.mark.parametrize(
    ("asked", "kind", "text"),
    [
        ({"json": SCHEMA}, "json_schema", '{"type":"object","properties":{"ä":{"type":"integer"}}}'),
        ({"json_object": True}, "json_schema", '{"type":"object"}'),
        ({"regex": "[a-z]+"}, "regex", "[a-z]+"),
        ({"choice": ["yes", 'no "!"\n']}, "lark", 'start: "yes" | "no \\"!\\"\\n"'),
        ({"grammar": 'start: "a"'}, "lark", 'start: "a"'),
    ],
)
def test_other_forms(asked: dict[str, Any], kind: str, text: str) -> None:
    (name,) = asked
    assert chat({"structured_outputs": asked}) == Constraint(kind, text, f"structured_outputs.{name}")  # type: ignore[arg-type] # a literal


@both
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": "json_object"}, "response_format.type"),
        ({"response_format": {}}, "response_format.type"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": "{}"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}},
            "response_format.json_schema.name",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "", "schema": {}}}},
            "response_format.json_schema.name",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": "{}"}}},
            "response_format.json_schema.schema",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"a": "\ud800"}}}},
            "response_format.json_schema.schema",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {**NAMED, "schemas": {}}}},
            "response_format.json_schema.schemas",
        ),
        ({"response_format": {"type": "json_object", "schema": {}}}, "response_format.schema"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs"),
        ({"structured_outputs": {"regex": ""}}, "structured_outputs.regex"),
        ({"structured_outputs": {"regex": 3}}, "structured_outputs.regex"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
        ({"structured_outputs": {"choice": ["a", 1]}}, "structured_outputs.choice[1]"),
        ({"structured_outputs": {"json": "{}"}}, "structured_outputs.json"),
        ({"structured_outputs": {"whitespace": " "}}, "structured_outputs.whitespace"),
        ({"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}}, "structured_outputs"),
    ],
)
def test_what_is_wrong_is_named(parse: Parse, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse(fields)
    assert refused.value.param == param
