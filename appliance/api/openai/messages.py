"""Chat messages as OpenAI writes them, and the prompt that they make.

The local models read text only. A user's images are taken all the same, since a frontier model may answer; other parts
are refused where they stand. Any role may come anywhere in the list; order is the chat template's matter.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, Tag, WithJsonSchema, field_validator
from pydantic_core.core_schema import ValidationInfo

from appliance.api.openai.field_support import ignored, refuse_unless_null, refused
from appliance.api.openai.validation import Body, Text, branch, branch_by, refuse
from appliance.protocol import ImagePart, Message, Part, TextPart, ToolCall

MAX_MESSAGES = 2048  # as OpenAI's
MAX_PARTS = 1024  # of one message
MAX_TOOL_CALLS = 128  # of one message
MAX_ITEMS = 8192  # parts and tool calls of all messages: they take 50 ms, in which nothing else is served

_TEXT_ONLY = "must be a part of type 'text': the local models read text, not images, audio or files."
_TEXT_OR_IMAGE = "must be a part of type 'text' or 'image_url': audio and files are not read."
_IMAGE_SCHEMES = ("data:image/", "https://", "http://")


class TextContentPart(Body):
    type: Literal["text"]
    text: Text
    prompt_cache_breakpoint: Any = ignored("messages[].content[].prompt_cache_breakpoint")


class RefusalContentPart(Body):
    type: Literal["refusal"]
    refusal: Text


def _image_url(value: str) -> str:
    if not value.startswith(_IMAGE_SCHEMES):
        raise refuse("must be an http(s) address or a data URL of an image.")
    return value


class ImageUrl(Body):
    url: Annotated[
        Text,
        AfterValidator(_image_url),
        WithJsonSchema({"type": "string", "pattern": "^(data:image/|https://|http://)"}),
    ]
    detail: Literal["auto", "low", "high"] | None = None


class ImageContentPart(Body):
    type: Literal["image_url"]
    image_url: ImageUrl


def _part_type(value: Any) -> str | None:
    return value["type"] if isinstance(value, dict) and value.get("type") in ("text", "refusal") else None


def _text_part_type(value: Any) -> str | None:
    return "text" if _part_type(value) == "text" else None


def _user_part_type(value: Any) -> str | None:
    is_image = isinstance(value, dict) and value.get("type") == "image_url"
    return "image_url" if is_image else _text_part_type(value)


def _content_shape(value: Any) -> str | None:
    return "text" if isinstance(value, str) else "parts" if isinstance(value, list) else None


_TextOnlyPart = Annotated[Annotated[TextContentPart, Tag(branch("text"))], branch_by(_text_part_type, _TEXT_ONLY)]
_AnswerPart = Annotated[
    Annotated[TextContentPart, Tag(branch("text"))] | Annotated[RefusalContentPart, Tag(branch("refusal"))],
    branch_by(_part_type, _TEXT_ONLY),
]
_WRONG_CONTENT = "must be a string, an array of parts or null."
Content = Annotated[
    Annotated[Text, Tag(branch("text"))]
    | Annotated[list[_TextOnlyPart], Field(min_length=1, max_length=MAX_PARTS, fail_fast=True), Tag(branch("parts"))],
    branch_by(_content_shape, _WRONG_CONTENT),
]
AnswerContent = Annotated[
    Annotated[Text, Tag(branch("text"))]
    | Annotated[list[_AnswerPart], Field(min_length=1, max_length=MAX_PARTS, fail_fast=True), Tag(branch("parts"))],
    branch_by(_content_shape, _WRONG_CONTENT),
]
_UserPart = Annotated[
    Annotated[TextContentPart, Tag(branch("text"))] | Annotated[ImageContentPart, Tag(branch("image_url"))],
    branch_by(_user_part_type, _TEXT_OR_IMAGE),
]
UserContent = Annotated[
    Annotated[Text, Tag(branch("text"))]
    | Annotated[list[_UserPart], Field(min_length=1, max_length=MAX_PARTS, fail_fast=True), Tag(branch("parts"))],
    branch_by(_content_shape, _WRONG_CONTENT),
]
Name = Annotated[Text, Field(min_length=1, max_length=64)]
CallId = Annotated[Text, Field(min_length=1, max_length=256)]


class CalledFunction(Body):
    name: Name
    arguments: Text  # as the model wrote it, which need not be valid JSON
    parsed_arguments: Any = ignored("messages[].tool_calls[].function.parsed_arguments")


class FunctionToolCall(Body):
    id: CallId
    type: Literal["function"]
    function: CalledFunction
    index: Any = ignored("messages[].tool_calls[].index")


def _call_type(value: Any) -> str | None:
    return "function" if isinstance(value, dict) and value.get("type") == "function" else None


_ToolCall = Annotated[
    Annotated[FunctionToolCall, Tag(branch("function"))],
    branch_by(_call_type, "must be a tool call of type 'function'; custom tool calls are not supported."),
]


class InstructionMessage(Body):
    role: Literal["system", "developer"]
    content: Content | None
    name: Name | None = None


class UserMessage(Body):
    role: Literal["user"]
    content: UserContent | None
    name: Name | None = None


class AssistantMessage(Body):
    role: Literal["assistant"]
    content: AnswerContent | None = None
    name: Name | None = None
    refusal: Text | None = None
    reasoning_content: Text | None = Field(
        None, description="What the model thought, for chat templates that show it again."
    )
    tool_calls: Annotated[list[_ToolCall], Field(max_length=MAX_TOOL_CALLS, fail_fast=True)] | None = None
    reasoning: Text | None = Field(None, description="As `reasoning_content`, which goes before it.")
    annotations: Any = ignored("messages[].annotations")
    parsed: Any = ignored("messages[].parsed")
    provider_specific_fields: Any = ignored("messages[].provider_specific_fields")
    reasoning_details: Any = ignored("messages[].reasoning_details")
    thinking_blocks: Any = ignored("messages[].thinking_blocks")
    audio: None = refused("messages[].audio")
    function_call: None = refused("messages[].function_call")

    @field_validator("audio", "function_call", mode="before")
    @classmethod
    def _refuse(cls, value: Any, info: ValidationInfo) -> Any:
        return refuse_unless_null(value, f"messages[].{info.field_name}")


class ToolMessage(Body):
    role: Literal["tool"]
    content: Content | None
    tool_call_id: CallId
    name: Name | None = None


_BRANCHES = {
    "system": "instruction",
    "developer": "instruction",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}


def _role(value: Any) -> str | None:
    role = value.get("role") if isinstance(value, dict) else None
    return _BRANCHES.get(role) if isinstance(role, str) else None


AnyMessage = Annotated[
    Annotated[InstructionMessage, Tag(branch("instruction"))]
    | Annotated[UserMessage, Tag(branch("user"))]
    | Annotated[AssistantMessage, Tag(branch("assistant"))]
    | Annotated[ToolMessage, Tag(branch("tool"))],
    branch_by(
        _role,
        "must be 'system', 'developer', 'user', 'assistant' or 'tool' (which replaces 'function').",
        at="role",
    ),
]


def _few_items(value: Any) -> Any:
    if isinstance(value, list):
        members = (m.get(name) for m in value if isinstance(m, dict) for name in ("content", "tool_calls"))
        items = sum(len(member) for member in members if isinstance(member, list))
        if items > MAX_ITEMS:
            raise refuse(f"must have at most {MAX_ITEMS} parts and tool calls in all, not {items}.")
    return value


Messages = Annotated[
    list[AnyMessage],
    Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True),
    BeforeValidator(_few_items),
]


def to_protocol(messages: Sequence[AnyMessage]) -> tuple[Message, ...]:
    return tuple(_message(message) for message in messages)


def _message(message: AnyMessage) -> Message:
    content = _parts(message.content)
    match message:
        case AssistantMessage():
            if message.refusal:
                # What the model refused with is what it said: the history must show it.
                content += (TextPart(message.refusal),)
            calls = tuple(
                ToolCall(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()
            )
            thoughts = message.reasoning_content or message.reasoning
            shown = {"reasoning_content": thoughts} if thoughts else {}
            return Message("assistant", content, message.name, calls, attributes=shown)
        case ToolMessage():
            return Message("tool", content, message.name, tool_call_id=message.tool_call_id)
        case _:
            return Message(message.role, content, message.name)


def _parts(content: str | Sequence[TextContentPart | RefusalContentPart | ImageContentPart] | None) -> tuple[Part, ...]:
    """Null, "" and parts without text are all the empty tuple."""
    if content is None:
        return ()
    if isinstance(content, str):
        return (TextPart(content),) if content else ()
    return tuple(part for part in map(_part, content) if part != TextPart(""))


def _part(part: TextContentPart | RefusalContentPart | ImageContentPart) -> Part:
    match part:
        case TextContentPart():
            return TextPart(part.text)
        case RefusalContentPart():
            return TextPart(part.refusal)
        case ImageContentPart():
            return ImagePart(part.image_url.url, part.image_url.detail or "auto")
