"""What goes between the engine worker and the renderer process, in frames of `runtimes.sandbox`.

    {"load": [template, special tokens, control tokens, time limit, output limit]}   -> None
    {"render": [messages, template_kwargs, add_generation_prompt]}                    -> {"segments": …, "form": …}
    either                                                                            -> {"error": …, "param": …}
                                                                                      -> {"out_of_memory": …}

Pure; it knows no sockets.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from appliance.protocol import ChatPrompt, ImagePart, Message, TextPart, ToolCall
from runtimes.templates.result import Rendered, Segment, TemplateError


@dataclass(frozen=True, slots=True)
class Load:
    template: str
    special_tokens: Mapping[str, str]
    control_tokens: tuple[str, ...]
    time_limit_s: float
    output_limit_bytes: int


def load_to_wire(load: Load) -> dict[str, Any]:
    tokens = (load.template, dict(load.special_tokens), load.control_tokens)
    return {"load": (*tokens, load.time_limit_s, load.output_limit_bytes)}


def load_from_wire(fields: list[Any]) -> Load:
    template, special, control, time_limit_s, output_limit_bytes = fields
    return Load(template, special, tuple(control), time_limit_s, output_limit_bytes)


def render_to_wire(prompt: ChatPrompt, *, add_generation_prompt: bool) -> dict[str, Any]:
    messages = [_message_to_wire(message) for message in prompt.messages]
    return {"render": (messages, dict(prompt.template_kwargs), add_generation_prompt)}


def render_from_wire(fields: list[Any]) -> tuple[ChatPrompt, bool]:
    messages, template_kwargs, add_generation_prompt = fields
    return ChatPrompt(tuple(map(_message_from_wire, messages)), template_kwargs), add_generation_prompt


def answer_to_wire(answer: Rendered | TemplateError) -> dict[str, Any]:
    if isinstance(answer, TemplateError):
        return {"error": answer.message, "param": answer.param}
    return {"segments": [(part.text, part.parse_special) for part in answer.segments], "form": answer.form}


def answer_from_wire(fields: dict[str, Any]) -> Rendered:
    """Raises the `TemplateError` that the answer holds; KeyError, TypeError or ValueError for garbage."""
    if "error" in fields:
        raise TemplateError(str(fields["error"]), fields["param"])
    segments = tuple(Segment(str(text), bool(parse_special)) for text, parse_special in fields["segments"])
    return Rendered(segments, str(fields["form"]))


def _message_to_wire(message: Message) -> tuple[Any, ...]:
    texts = [part.text if isinstance(part, TextPart) else None for part in message.content]  # None: an image
    calls = [(call.id, call.name, call.arguments) for call in message.tool_calls]
    return message.role, texts, message.name, calls, message.tool_call_id, dict(message.attributes)


def _message_from_wire(fields: list[Any]) -> Message:
    role, texts, name, calls, call_id, attributes = fields
    content = tuple(ImagePart("") if text is None else TextPart(text) for text in texts)
    return Message(role, content, name, tuple(ToolCall(*call) for call in calls), call_id, attributes)
