"""JSON Schema of the request bodies, for the OpenAPI document.

Generated from the models that parse them, so it cannot fall behind. All that it allows is accepted but for
rules that JSON Schema cannot say: `min_tokens` up to `max_tokens`, `best_of` 1 or n, prompts times n, parts of
all messages together, 64-bit integers and the number of values in `chat_template_kwargs`, 1.0 for an integer,
half surrogate pairs, one form of the answer at most, tools with names of their own that `tool_choice` knows.
"""

from collections.abc import Mapping
from typing import Any, Final

from pydantic.json_schema import models_json_schema

from appliance.api.openai.chat_request import ChatCompletionRequest
from appliance.api.openai.completion_request import CompletionRequest
from appliance.api.openai.tokenize_request import DetokenizeRequest, TokenizeRequest
from appliance.api.openai.validation import Body

_TEMPLATE: Final = "#/components/schemas/{model}"
_BODIES: Final[tuple[type[Body], ...]] = (
    ChatCompletionRequest,
    CompletionRequest,
    TokenizeRequest,
    DetokenizeRequest,
)


def component_schemas() -> dict[str, Any]:
    """By name, for the document's `components.schemas`."""
    _, document = models_json_schema([(body, "validation") for body in _BODIES], ref_template=_TEMPLATE)
    schemas: dict[str, Any] = document["$defs"]
    return schemas


def chat_schema() -> dict[str, str]:
    return _reference(ChatCompletionRequest)


def completion_schema() -> dict[str, str]:
    return _reference(CompletionRequest)


def tokenize_schema() -> dict[str, str]:
    return _reference(TokenizeRequest)


def detokenize_schema() -> dict[str, str]:
    return _reference(DetokenizeRequest)


def request_body(schema: Mapping[str, Any]) -> dict[str, Any]:
    """For a route's `openapi_extra`: a required JSON body."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _reference(body: type[Body]) -> dict[str, str]:
    return {"$ref": _TEMPLATE.format(model=body.__name__)}
