"""The body of `POST /v1/completions`, and the canonical request that it is. Pure, like `chat_request`."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field, JsonValue, Tag, field_validator
from pydantic_core.core_schema import ValidationInfo

from appliance.api.hints import parse_hints
from appliance.api.openai.field_support import refuse_unless_null, refused
from appliance.api.openai.generation import (
    MAX_N,
    MAX_TOKEN_ID,
    STREAM_OPTIONS_NEED_STREAM,
    GenerationFields,
)
from appliance.api.openai.structure import constraint
from appliance.api.openai.validation import Text, branch, branch_by, validated
from appliance.errors import InvalidRequest
from appliance.protocol import Prompt, Request, TextPrompt, TokenPrompt

DEFAULT_MAX_TOKENS = 16  # OpenAI's
MAX_LOGPROBS = 20  # OpenAI allows 5 here and 20 in chat
MAX_CHOICES = 128  # prompts times n, so that one request cannot fill the engine's queue
MAX_PROMPT_TOKENS = 2**20  # a bound on work before the engine sees the model's own, smaller one

_RULES: Final[list[JsonValue]] = [
    STREAM_OPTIONS_NEED_STREAM,
    {
        "not": {
            "required": ["echo", "logprobs"],
            "properties": {"echo": {"const": True}, "logprobs": {"type": "integer"}},
        }
    },
]


def _prompt_shape(value: Any) -> str | None:
    """The first item decides what an array holds, so that a wrong item is one error at its place."""
    if isinstance(value, str):
        return "text"
    if not isinstance(value, list):
        return None
    match value:
        case [int(), *_]:
            return "tokens"
        case [list(), *_]:
            return "token-lists"
        case _:
            return "texts"


# A prompt has at least one token: without one there is nothing to predict from, and whether "" makes one (a
# beginning-of-text token) differs between models.
_PromptText = Annotated[Text, Field(min_length=1)]
_TokenId = Annotated[int, Field(ge=0, le=MAX_TOKEN_ID)]
_Tokens = Annotated[list[_TokenId], Field(min_length=1, max_length=MAX_PROMPT_TOKENS, fail_fast=True)]
_Batch = Field(min_length=1, max_length=MAX_CHOICES, fail_fast=True)
AnyPrompt = Annotated[
    Annotated[_PromptText, Tag(branch("text"))]
    | Annotated[list[_PromptText], _Batch, Tag(branch("texts"))]
    | Annotated[_Tokens, Tag(branch("tokens"))]
    | Annotated[list[_Tokens], _Batch, Tag(branch("token-lists"))],
    branch_by(
        _prompt_shape,
        "must be a string, an array of strings, an array of token ids or an array of such arrays.",
    ),
]


class CompletionRequest(GenerationFields):
    model_config = ConfigDict(json_schema_extra={"allOf": _RULES})

    prompt: AnyPrompt
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    best_of: Annotated[int, Field(ge=1, le=MAX_N, description="1, or the same as n.")] | None = None
    suffix: None = refused("suffix")

    @field_validator("suffix", mode="before")
    @classmethod
    def _refuse(cls, value: Any, info: ValidationInfo) -> Any:
        return refuse_unless_null(value, info.field_name or "")


def parse_completion(body: object, headers: Mapping[str, str], request_id: str) -> Request:
    """`body` is decoded JSON; `headers` has lower-case names, or ignores case.

    Raises `InvalidRequest` that names the field or the header.
    """
    fields = validated(CompletionRequest, body)
    fields.check_stream_options()
    n = fields.n or 1
    if fields.best_of not in (None, 1, n):
        raise InvalidRequest(
            f"'best_of' must be 1 or the same as n ({n}), not {fields.best_of}: answers are not ranked.",
            param="best_of",
        )
    if fields.echo and fields.logprobs is not None:
        raise InvalidRequest(
            "'echo' is not supported with 'logprobs': the prompt's own tokens have no log probabilities, "
            "because prefill computes them for the last token only. Leave out one of the two.",
            param="echo",
        )
    prompts = _prompts(fields.prompt)
    if len(prompts) * n > MAX_CHOICES:
        raise InvalidRequest(
            f"'prompt' has {len(prompts)} prompts of {n} choices each; one request takes {MAX_CHOICES} at most.",
            param="prompt",
        )
    return Request(
        id=request_id,
        model=fields.model,
        prompts=prompts,
        n=n,
        sampling=fields.sampling(),
        stopping=fields.stopping(max_tokens=fields.max_tokens or DEFAULT_MAX_TOKENS),
        logprobs=fields.logprobs,
        constraint=constraint(fields.response_format, fields.structured_outputs),
        stream=bool(fields.stream),
        include_usage=fields.include_usage(),
        echo=bool(fields.echo),
        hints=parse_hints(headers, fields.metadata, fields.service_tier),
    )


def _prompts(prompt: str | list[str] | list[int] | list[list[int]]) -> tuple[Prompt, ...]:
    if isinstance(prompt, str):
        return (TextPrompt(prompt),)
    tokens = tuple(item for item in prompt if isinstance(item, int))
    if tokens:  # the model has checked that they are all of one kind
        return (TokenPrompt(tokens),)
    return tuple(
        TextPrompt(item) if isinstance(item, str) else TokenPrompt(tuple(item))
        for item in prompt
        if not isinstance(item, int)
    )
