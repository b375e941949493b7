"""`response_format` and `structured_outputs`: the form that an answer must have.

The first is OpenAI's, the second vLLM's, for forms that OpenAI has not. Whether a schema, pattern or grammar can be
kept is the engine's to say; here is only what the fields must look like.
"""

import json
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, JsonValue, Tag, WithJsonSchema

from appliance.api.openai.validation import Body, Text, branch, branch_by, is_encodable, kind, refuse
from appliance.errors import InvalidRequest
from appliance.protocol import Constraint

MAX_CHOICES = 1024
ANY_OBJECT = '{"type":"object"}'
MAX_PATTERN_CHARACTERS = 2**14
MAX_GRAMMAR_CHARACTERS = 2**18


def _schema_object(value: Any) -> Any:
    if not isinstance(value, dict):
        raise refuse(f"must be an object, a JSON Schema, not {kind(value)}.")
    return value


# Not looked into: pydantic would copy what may be a megabyte.
Schema = Annotated[Any, BeforeValidator(_schema_object), WithJsonSchema({"type": "object"})]


class TextFormat(Body):
    type: Literal["text"]


class JsonObjectFormat(Body):
    type: Literal["json_object"]


class JsonSchema(Body):
    name: Annotated[Text, Field(min_length=1, max_length=64)]
    description: Text | None = None
    schema_: Schema = Field({}, alias="schema")
    strict: bool | None = Field(None, description="The schema is kept either way.")


class JsonSchemaFormat(Body):
    type: Literal["json_schema"]
    json_schema: JsonSchema


_FORMATS = ("text", "json_object", "json_schema")


def _format(value: Any) -> str | None:
    named = value.get("type") if isinstance(value, dict) else None
    return named if isinstance(named, str) and named in _FORMATS else None


ResponseFormat = Annotated[
    Annotated[TextFormat, Tag(branch("text"))]
    | Annotated[JsonObjectFormat, Tag(branch("json_object"))]
    | Annotated[JsonSchemaFormat, Tag(branch("json_schema"))],
    branch_by(_format, "must be 'text', 'json_object' or 'json_schema'.", at="type"),
]


_FORMS = {"json": "object", "json_object": "boolean", "regex": "string", "choice": "array", "grammar": "string"}
_EXACTLY_ONE: list[JsonValue] = [
    {"required": [name], "properties": {name: {"type": shape}}} for name, shape in _FORMS.items()
]


class StructuredOutputs(Body):
    """Exactly one of them."""

    model_config = ConfigDict(json_schema_extra={"oneOf": _EXACTLY_ONE})

    json_: Schema | None = Field(None, alias="json", description="A JSON Schema.")
    json_object: Literal[True] | None = None
    regex: Annotated[Text, Field(min_length=1, max_length=MAX_PATTERN_CHARACTERS)] | None = Field(
        None, description="Of the whole answer, in the syntax of Rust's regex crate."
    )
    choice: (
        Annotated[list[Annotated[Text, Field(min_length=1)]], Field(min_length=1, max_length=MAX_CHOICES)] | None
    ) = None
    grammar: Annotated[Text, Field(min_length=1, max_length=MAX_GRAMMAR_CHARACTERS)] | None = Field(
        None, description="In llguidance's variant of Lark."
    )


def constraint(response_format: Any, structured_outputs: StructuredOutputs | None) -> Constraint | None:
    """What the two fields ask for together. Raises `InvalidRequest`."""
    wanted = None
    match response_format:
        case JsonObjectFormat():
            wanted = Constraint("json_schema", ANY_OBJECT, "response_format")
        case JsonSchemaFormat(json_schema=described):
            field = "response_format.json_schema.schema"
            wanted = Constraint("json_schema", schema_text(described.schema_, field), field)
    if structured_outputs is None:
        return wanted
    if wanted is not None:
        raise InvalidRequest(
            "'structured_outputs' and 'response_format' both say what the answer must look like; send one of them.",
            param="structured_outputs",
        )
    return _structured(structured_outputs)


def _structured(fields: StructuredOutputs) -> Constraint:
    where = "structured_outputs"
    found = []
    if fields.json_ is not None:
        found.append(Constraint("json_schema", schema_text(fields.json_, f"{where}.json"), f"{where}.json"))
    if fields.json_object is not None:
        found.append(Constraint("json_schema", ANY_OBJECT, f"{where}.json_object"))
    if fields.regex is not None:
        found.append(Constraint("regex", fields.regex, f"{where}.regex"))
    if fields.choice is not None:
        grammar = "start: " + " | ".join(json.dumps(text, ensure_ascii=False) for text in fields.choice)
        found.append(Constraint("lark", grammar, f"{where}.choice"))
    if fields.grammar is not None:
        found.append(Constraint("lark", fields.grammar, f"{where}.grammar"))
    if len(found) != 1:
        raise InvalidRequest(
            f"'{where}' must have exactly one of 'json', 'json_object', 'regex', 'choice' and 'grammar', "
            f"not {len(found)}.",
            param=where,
        )
    return found[0]


def schema_text(value: object, field: str) -> str:
    """As compact JSON. Raises `InvalidRequest` for what cannot be encoded."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if not is_encodable(text):
        raise InvalidRequest(f"'{field}' holds half a surrogate pair, which is not text.", param=field)
    return text
