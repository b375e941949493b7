"""The bodies of `POST /v1/tokenize` and `/v1/detokenize`, and their answers: close to vLLM's.

Knows no tokenizer. Messages are tokenized as a chat request's, with the template's opening of the answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field, JsonValue

from appliance.api.openai.completion_request import MAX_PROMPT_TOKENS
from appliance.api.openai.generation import MAX_TOKEN_ID
from appliance.api.openai.messages import Messages, to_protocol
from appliance.api.openai.template_kwargs import TemplateKwargs
from appliance.api.openai.validation import Body, Text, validated
from appliance.errors import InvalidRequest
from appliance.protocol import ChatPrompt, TextPrompt

_RULES: Final[list[JsonValue]] = [
    {
        "oneOf": [
            {
                "required": ["prompt"],
                "properties": {
                    "prompt": {"type": "string"},
                    "messages": {"type": "null"},
                    "chat_template_kwargs": {"type": "null"},
                },
            },
            {
                "required": ["messages"],
                "properties": {
                    "messages": {"type": "array"},
                    "prompt": {"type": "null"},
                    "add_special_tokens": {"enum": [False, None]},
                },
            },
        ]
    }
]


class TokenizeRequest(Body):
    model_config = ConfigDict(json_schema_extra={"allOf": _RULES})

    model: Annotated[Text, Field(min_length=1, max_length=256)]
    prompt: Text | None = None
    messages: Messages | None = None
    add_special_tokens: bool | None = Field(None, description="With prompt only; true when left out.")
    return_token_strs: bool | None = None
    chat_template_kwargs: TemplateKwargs | None = None


class DetokenizeRequest(Body):
    model: Annotated[Text, Field(min_length=1, max_length=256)]
    tokens: Annotated[
        list[Annotated[int, Field(ge=0, le=MAX_TOKEN_ID)]],
        Field(max_length=MAX_PROMPT_TOKENS, fail_fast=True),
    ]


@dataclass(frozen=True, slots=True)
class Tokenize:
    model: str
    prompt: TextPrompt | ChatPrompt
    return_token_strs: bool


@dataclass(frozen=True, slots=True)
class Detokenize:
    model: str
    tokens: tuple[int, ...]


def parse_tokenize(body: object) -> Tokenize:
    """Raises `InvalidRequest` that names the field."""
    fields = validated(TokenizeRequest, body)
    return Tokenize(fields.model, _prompt(fields), bool(fields.return_token_strs))


def _prompt(fields: TokenizeRequest) -> TextPrompt | ChatPrompt:
    if fields.messages is not None:
        if fields.prompt is not None:
            raise InvalidRequest("'prompt' and 'messages' exclude each other; send one.", param="prompt")
        if fields.add_special_tokens:
            raise InvalidRequest(
                "'add_special_tokens' is for 'prompt': with 'messages' the chat template writes them.",
                param="add_special_tokens",
            )
        return ChatPrompt(to_protocol(fields.messages), fields.chat_template_kwargs or {})
    if fields.prompt is None:
        raise InvalidRequest("'prompt' or 'messages' is required.", param="prompt")
    if fields.chat_template_kwargs is not None:
        raise InvalidRequest("'chat_template_kwargs' is for 'messages'.", param="chat_template_kwargs")
    return TextPrompt(fields.prompt, add_special=fields.add_special_tokens is not False)


def parse_detokenize(body: object) -> Detokenize:
    """Raises `InvalidRequest` that names the field. The vocabulary's bound is the engine's to check."""
    fields = validated(DetokenizeRequest, body)
    return Detokenize(fields.model, tuple(fields.tokens))


def tokenize_body(
    tokens: Sequence[int], *, max_model_len: int, token_strs: Sequence[str] | None = None
) -> dict[str, Any]:
    """`token_strs` is null unless the request asked for it, as in vLLM."""
    return {
        "count": len(tokens),
        "max_model_len": max_model_len,
        "tokens": list(tokens),
        "token_strs": None if token_strs is None else list(token_strs),
    }


def detokenize_body(text: str) -> dict[str, Any]:
    return {"prompt": text}
