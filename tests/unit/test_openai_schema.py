"""The JSON Schema of the bodies tells the truth: what it allows is accepted, what it forbids is refused."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.generation import GenerationMode

from appliance.api.openai.chat_request import parse_chat
from appliance.api.openai.completion_request import parse_completion
from appliance.api.openai.schema import (
    chat_schema,
    completion_schema,
    component_schemas,
    detokenize_schema,
    request_body,
    tokenize_schema,
)
from appliance.api.openai.tokenize_request import parse_detokenize, parse_tokenize
from appliance.errors import InvalidRequest

BODIES: dict[str, tuple[dict[str, str], Callable[[object], object]]] = {
    "/chat": (chat_schema(), lambda body: parse_chat(body, {}, "r1")),
    "/completions": (completion_schema(), lambda body: parse_completion(body, {}, "r1")),
    "/tokenize": (tokenize_schema(), parse_tokenize),
    "/detokenize": (detokenize_schema(), parse_detokenize),
}
DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "appliance", "version": "0"},
    "components": {"schemas": component_schemas()},
    "paths": {
        path: {"post": {**request_body(schema), "responses": {"200": {"description": "done"}}}}
        for path, (schema, _) in BODIES.items()
    },
}
SCHEMA: Any = schemathesis.openapi.from_dict(DOCUMENT)
PATHS = pytest.mark.parametrize("path", BODIES)
# Making an example that a schema forbids is slow, and the schema, not the data, is what varies.
GENERATED = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
# What JSON Schema cannot say, by the field that the refusal names; the module's docstring has the list.
UNSAID = re.compile(
    r"min_tokens|best_of|prompt|tool_choice.*|structured_outputs.*|tools\[\d+\]\.function\.(name|parameters)"
)


def with_whole_numbers_as_integers(value: Any) -> Any:
    """1.0 is an integer to JSON Schema, and not to us."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [with_whole_numbers_as_integers(item) for item in value]
    if isinstance(value, dict):
        return {key: with_whole_numbers_as_integers(item) for key, item in value.items()}
    return value


@PATHS
def test_what_the_schema_allows_is_accepted(path: str) -> None:
    parse = BODIES[path][1]
    accepted = []

    @GENERATED
    @given(SCHEMA[path]["POST"].as_strategy(generation_mode=GenerationMode.POSITIVE))
    def every(case: Any) -> None:
        body = with_whole_numbers_as_integers(case.body)
        try:
            accepted.append(parse(body))
        except InvalidRequest as refusal:
            beyond_64_bits = "more than 64 bits" in refusal.message
            if not UNSAID.fullmatch(refusal.param or "") and not beyond_64_bits:
                raise

    every()
    assert len(accepted) > 20


@PATHS
def test_what_the_schema_forbids_is_refused(path: str) -> None:
    parse = BODIES[path][1]

    @GENERATED
    @given(SCHEMA[path]["POST"].as_strategy(generation_mode=GenerationMode.NEGATIVE))
    def every(case: Any) -> None:
        with pytest.raises(InvalidRequest):
            parse(case.body)

    every()


def test_every_reference_leads_somewhere() -> None:
    schemas = component_schemas()
    text = json.dumps([schemas, *(schema for schema, _ in BODIES.values())])
    names = {piece.split('"')[0] for piece in text.split("#/components/schemas/")[1:]}
    assert names <= set(schemas)
    assert {"ChatCompletionRequest", "CompletionRequest", "TokenizeRequest", "DetokenizeRequest"} <= names
    assert "$defs" not in text


def test_the_schema_says_which_fields_are_ignored_or_not_supported() -> None:
    fields = component_schemas()["ChatCompletionRequest"]["properties"]
    assert fields["store"]["description"].startswith("Ignored: ")
    assert fields["functions"]["description"].startswith("Not supported: ")
