"""The fields that `/v1/chat/completions` and `/v1/completions` share, and what they mean in the protocol.

Ranges are OpenAI's where it documents one. `top_k`, `min_p`, `repetition_penalty`, `min_tokens` and
`ignore_eos` are extensions that clients of vLLM and llama.cpp send.
"""

import re
from typing import Annotated, Any, Final, TypeVar

from pydantic import BeforeValidator, Field, JsonValue, Tag, WithJsonSchema, field_validator

from appliance.api.hints import METADATA_SCHEMA, ServiceTier
from appliance.api.openai.field_support import ignored, refused, unsupported
from appliance.api.openai.structure import ResponseFormat, StructuredOutputs
from appliance.api.openai.validation import Body, Text, branch, branch_by, is_encodable, kind, refuse, shown
from appliance.errors import InvalidRequest
from appliance.protocol import Sampling, Stopping

MAX_N = 16  # choices of one prompt; each takes a slot of the engine, which has sixteen by default
MAX_STOP = 16  # OpenAI allows 4, vLLM any number
MAX_STOP_CHARACTERS = 512  # text is held back while it may still become a stop string
MAX_LOGIT_BIAS = 1024  # OpenAI allows 300
MAX_TOKEN_ID = 2**31 - 1  # llama.cpp's ids are 32-bit; the vocabulary's own bound is the engine's to check

_T = TypeVar("_T")
_TOKEN_ID = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)


def _bias_keys(value: Any) -> Any:
    if isinstance(value, dict):
        if len(value) > MAX_LOGIT_BIAS:
            raise refuse(f"must have at most {MAX_LOGIT_BIAS} entries, not {len(value)}.")
        for key in value:
            if not _TOKEN_ID.fullmatch(key) or int(key) > MAX_TOKEN_ID:
                raise refuse(f"must have token ids as keys, such as \"1234\", not '{shown(key)}'.")
    return value


def _metadata_keys(value: Any) -> Any:
    if isinstance(value, dict):
        if len(value) > 16:
            raise refuse(f"must have at most 16 entries, not {len(value)}.")
        for key in value:
            if len(key) > 64 or not is_encodable(key):
                raise refuse(f"must have keys of at most 64 characters of text, not '{shown(key)}'.")
    return value


LogitBias = Annotated[
    dict[str, Annotated[float, Field(ge=-100, le=100)]],
    BeforeValidator(_bias_keys),
    WithJsonSchema(
        {
            "type": "object",
            "maxProperties": MAX_LOGIT_BIAS,
            "propertyNames": {"pattern": "^(0|[1-9][0-9]{0,8})$"},
            "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
        }
    ),
]
Metadata = Annotated[
    dict[str, Annotated[Text, Field(max_length=512)]],
    BeforeValidator(_metadata_keys),
    WithJsonSchema(
        {
            "type": "object",
            "maxProperties": 16,
            "propertyNames": {"maxLength": 64},
            "properties": METADATA_SCHEMA,
            "additionalProperties": {"type": "string", "maxLength": 512},
        }
    ),
]


def _stop_shape(value: Any) -> str | None:
    return "text" if isinstance(value, str) else "list" if isinstance(value, list) else None


_StopText = Annotated[Text, Field(min_length=1, max_length=MAX_STOP_CHARACTERS)]
Stop = Annotated[
    Annotated[_StopText, Tag(branch("text"))]
    | Annotated[list[_StopText], Field(max_length=MAX_STOP, fail_fast=True), Tag(branch("list"))],
    branch_by(_stop_shape, "must be a string or an array of strings."),
]


class StreamOptions(Body):
    include_usage: bool | None = None
    include_obfuscation: Annotated[bool | None, WithJsonSchema({"enum": [False, None]})] = refused(
        "stream_options.include_obfuscation"
    )

    @field_validator("include_obfuscation")
    @classmethod
    def _no_padding(cls, value: Any) -> Any:
        if value:
            raise refuse(unsupported("stream_options.include_obfuscation"))
        return value


class GenerationFields(Body):
    model: Annotated[Text, Field(min_length=1, max_length=256)]
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1, description="0 is greedy, as with OpenAI.")] | None = None
    top_k: Annotated[int, Field(ge=-1, le=MAX_TOKEN_ID, description="0 and -1 are off.")] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    # The bounds keep a logit divided or multiplied by it finite; useful values lie between 1 and 1.5.
    repetition_penalty: Annotated[float, Field(ge=0.1, le=10)] | None = None
    logit_bias: LogitBias | None = None
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    min_tokens: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    stop: Stop | None = None
    ignore_eos: bool | None = None
    n: Annotated[int, Field(ge=1, le=MAX_N)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    metadata: Metadata | None = None
    service_tier: ServiceTier | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    user: Any = ignored("user")

    def sampling(self) -> Sampling:
        temperature = _or(self.temperature, 1.0)
        top_p = _or(self.top_p, 1.0)
        if top_p == 0:
            # The smallest nucleus is the one most likely token. OpenAI accepts 0; a sampler may divide by it.
            temperature, top_p = 0.0, 1.0
        return Sampling(
            temperature=temperature,
            top_p=top_p,
            top_k=max(0, _or(self.top_k, 0)),
            min_p=_or(self.min_p, 0.0),
            presence_penalty=_or(self.presence_penalty, 0.0),
            frequency_penalty=_or(self.frequency_penalty, 0.0),
            repetition_penalty=_or(self.repetition_penalty, 1.0),
            logit_bias=tuple(sorted((int(token), bias) for token, bias in (self.logit_bias or {}).items())),
            seed=None if self.seed is None else self.seed % 2**64,  # two's complement: distinct seeds stay so
        )

    def stopping(self, *, max_tokens: int | None, max_tokens_field: str = "max_tokens") -> Stopping:
        min_tokens = self.min_tokens or 0
        if max_tokens is not None and min_tokens > max_tokens:
            raise InvalidRequest(
                f"'min_tokens' must be at most {max_tokens_field} ({max_tokens}), not {kind(min_tokens)}.",
                param="min_tokens",
            )
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        return Stopping(max_tokens, min_tokens, stop, bool(self.ignore_eos))

    def check_stream_options(self) -> None:
        if self.stream_options is not None and not self.stream:
            raise InvalidRequest("'stream_options' is only allowed with \"stream\": true.", param="stream_options")

    def include_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)


STREAM_OPTIONS_NEED_STREAM: Final[JsonValue] = {
    "if": {"required": ["stream_options"], "properties": {"stream_options": {"type": "object"}}},
    "then": {"required": ["stream"], "properties": {"stream": {"const": True}}},
}
"""JSON Schema of `check_stream_options`, for a model's `allOf`."""


def _or(value: _T | None, default: _T) -> _T:
    return default if value is None else value
