"""The body of `POST /v1/chat/completions`, and the canonical request that it is.

Every field of OpenAI's is here: used, or in `field_support` as ignored or refused. Pure: no clock, no model,
no id of its own.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, ConfigDict, Field, JsonValue, field_validator
from pydantic_core.core_schema import ValidationInfo

from appliance.api.hints import parse_hints
from appliance.api.openai.field_support import ignored, refuse_unless_null, refused, unsupported
from appliance.api.openai.generation import (
    STREAM_OPTIONS_NEED_STREAM,
    GenerationFields,
)
from appliance.api.openai.messages import Messages, to_protocol
from appliance.api.openai.structure import constraint
from appliance.api.openai.template_kwargs import TemplateKwargs
from appliance.api.openai.tools import MAX_TOOLS, ToolChoice, Tools, tools_of
from appliance.api.openai.validation import refuse, validated
from appliance.errors import InvalidRequest
from appliance.protocol import ChatPrompt, Constraint, Reasoning, Request, ToolUse

MAX_TOP_LOGPROBS = 20
THINKING_SWITCHES = ("enable_thinking", "thinking")  # as chat templates call the variable

_RULES: Final[list[JsonValue]] = [
    STREAM_OPTIONS_NEED_STREAM,
    {
        "if": {
            "required": ["top_logprobs"],
            "properties": {"top_logprobs": {"type": "integer", "minimum": 1}},
        },
        "then": {"required": ["logprobs"], "properties": {"logprobs": {"const": True}}},
    },
    {
        "not": {
            "required": ["max_tokens", "max_completion_tokens"],
            "properties": {"max_tokens": {"type": "integer"}, "max_completion_tokens": {"type": "integer"}},
        }
    },
    {
        "if": {"required": ["functions"], "properties": {"functions": {"type": "array", "minItems": 1}}},
        "then": {"required": ["function_call"], "properties": {"function_call": {"const": "none"}}},
    },
]


def _no_audio(value: Any) -> Any:
    if isinstance(value, list) and "audio" in value:
        raise refuse(unsupported("modalities"))
    return value


_Functions = Annotated[list[dict[str, Any]], Field(max_length=MAX_TOOLS, fail_fast=True)]
# "auto" without functions calls none, so it asks for nothing.
_NoCall = Literal["none", "auto"]


class ChatCompletionRequest(GenerationFields):
    model_config = ConfigDict(json_schema_extra={"allOf": _RULES})

    messages: Messages
    max_completion_tokens: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = Field(
        None,
        description="A variable of the chat template, for templates that read it; 'none' switches thinking off.",
    )
    thinking_token_budget: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = Field(
        None, description="The most tokens that a model which thinks first may spend on that."
    )
    chat_template_kwargs: TemplateKwargs | None = None

    tools: Tools | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    functions: _Functions | None = refused("functions")
    function_call: _NoCall | None = refused("function_call")
    modalities: (
        Annotated[list[Literal["text"]], Field(min_length=1, fail_fast=True), BeforeValidator(_no_audio)] | None
    ) = refused("modalities")
    audio: None = refused("audio")
    moderation: None = refused("moderation")
    web_search_options: None = refused("web_search_options")

    prediction: Any = ignored("prediction")
    prompt_cache_key: Any = ignored("prompt_cache_key")
    prompt_cache_options: Any = ignored("prompt_cache_options")
    prompt_cache_retention: Any = ignored("prompt_cache_retention")
    safety_identifier: Any = ignored("safety_identifier")
    store: Any = ignored("store")
    verbosity: Any = ignored("verbosity")

    @field_validator("audio", "moderation", "web_search_options", mode="before")
    @classmethod
    def _refuse(cls, value: Any, info: ValidationInfo) -> Any:
        return refuse_unless_null(value, info.field_name or "")

    @field_validator("function_call", mode="before")
    @classmethod
    def _no_forced_call(cls, value: Any, info: ValidationInfo) -> Any:
        if value == "required" or isinstance(value, dict):
            raise refuse(unsupported(info.field_name or ""))
        return value


def parse_chat(body: object, headers: Mapping[str, str], request_id: str) -> Request:
    """`body` is decoded JSON; `headers` has lower-case names, or ignores case.

    Raises `InvalidRequest` that names the field or the header.
    """
    fields = validated(ChatCompletionRequest, body)
    fields.check_stream_options()
    _refuse_functions(fields)
    tools, tool_use = tools_of(fields.tools, fields.tool_choice, fields.parallel_tool_calls)
    return Request(
        id=request_id,
        model=fields.model,
        prompts=(ChatPrompt(to_protocol(fields.messages), _template_kwargs(fields), tools),),
        n=fields.n or 1,
        sampling=fields.sampling(),
        stopping=fields.stopping(
            max_tokens=_max_tokens(fields),
            max_tokens_field="max_tokens" if fields.max_tokens else "max_completion_tokens",
        ),
        logprobs=_logprobs(fields),
        constraint=_answer_form(fields, tool_use),
        tool_use=tool_use,
        reasoning=Reasoning(_may_think(fields), fields.thinking_token_budget),
        stream=bool(fields.stream),
        include_usage=fields.include_usage(),
        hints=parse_hints(headers, fields.metadata, fields.service_tier),
    )


def _refuse_functions(fields: ChatCompletionRequest) -> None:
    if fields.functions and fields.function_call != "none":
        raise InvalidRequest(f"'functions' {unsupported('functions')}", param="functions")


def _answer_form(fields: ChatCompletionRequest, tool_use: ToolUse | None) -> Constraint | None:
    form = constraint(fields.response_format, fields.structured_outputs)
    if form is not None and form.kind != "json_schema" and tool_use is not None:
        raise InvalidRequest(f"'{form.field}' is not supported with 'tools'; send a JSON Schema.", param=form.field)
    return form


def _max_tokens(fields: ChatCompletionRequest) -> int | None:
    old, new = fields.max_tokens, fields.max_completion_tokens
    if old is not None and new is not None and old != new:
        raise InvalidRequest(
            f"'max_tokens' ({old}) and 'max_completion_tokens' ({new}) differ; send the second only.",
            param="max_tokens",
        )
    return new if new is not None else old


def _logprobs(fields: ChatCompletionRequest) -> int | None:
    if fields.logprobs:
        return fields.top_logprobs or 0
    if fields.top_logprobs:
        raise InvalidRequest("'top_logprobs' is only allowed with \"logprobs\": true.", param="top_logprobs")
    return None


def _may_think(fields: ChatCompletionRequest) -> bool:
    switches = fields.chat_template_kwargs or {}
    return fields.reasoning_effort != "none" and all(switches.get(name) is not False for name in THINKING_SWITCHES)


def _template_kwargs(fields: ChatCompletionRequest) -> dict[str, Any]:
    effort = {} if fields.reasoning_effort is None else {"reasoning_effort": fields.reasoning_effort}
    off = {} if _may_think(fields) else dict.fromkeys(THINKING_SWITCHES, False)
    return {**effort, **off, **(fields.chat_template_kwargs or {})}
