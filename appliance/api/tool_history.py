"""Calls and results of tools in a conversation's history: whether they belong together, and what to do when not.

Pure, and the same for every wire format. A model that is shown a result without its call, or arguments that are no
JSON, answers in kind; so by default such a history is refused, as OpenAI does.
"""

import json
from dataclasses import replace
from typing import Literal

from appliance.errors import InvalidRequest
from appliance.protocol import ChatPrompt, Message, Request, TextPart, ToolCall
from runtimes import strict_json

BrokenHistory = Literal["refuse", "repair"]


def with_sound_history(request: Request, broken: BrokenHistory) -> Request:
    """Raises `InvalidRequest` that names the message, or repairs it: a result without its call becomes text of the
    user, arguments that are no JSON object become the one member of one."""
    prompts = tuple(
        replace(prompt, messages=_sound(prompt.messages, broken)) if isinstance(prompt, ChatPrompt) else prompt
        for prompt in request.prompts
    )
    return request if prompts == request.prompts else replace(request, prompts=prompts)


def _sound(messages: tuple[Message, ...], broken: BrokenHistory) -> tuple[Message, ...]:
    called: set[str] = set()
    made = []
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        try:
            made.append(_checked(message, called, where))
        except InvalidRequest:
            if broken == "refuse":
                raise
            made.append(_repaired(message))
        called.update(call.id for call in message.tool_calls)
    return tuple(made)


def _checked(message: Message, called: set[str], where: str) -> Message:
    if message.role == "tool" and message.tool_call_id not in called:
        raise InvalidRequest(
            f"'{where}.tool_call_id' names no call of an assistant message before it: a result follows its call.",
            param=f"{where}.tool_call_id",
        )
    own: set[str] = set()
    for position, call in enumerate(message.tool_calls):
        at = f"{where}.tool_calls[{position}]"
        if call.id in own:
            raise InvalidRequest(f"'{at}.id' is the id of another call of this message too.", param=f"{at}.id")
        own.add(call.id)
        if not _is_object(call.arguments):
            param = f"{at}.function.arguments"
            raise InvalidRequest(f"'{param}' must be the text of a JSON object.", param=param)
    return message


def _repaired(message: Message) -> Message:
    if message.role == "tool":
        return Message("user", (TextPart("Result of a tool:\n"), *message.content))
    calls: dict[str, ToolCall] = {}
    for call in message.tool_calls:
        sound = _is_object(call.arguments)
        arguments = call.arguments if sound else json.dumps({"arguments": call.arguments}, ensure_ascii=False)
        calls.setdefault(call.id, replace(call, arguments=arguments))
    return replace(message, tool_calls=tuple(calls.values()))


def _is_object(text: str) -> bool:
    """Nothing at all is what some clients send for a call without arguments."""
    if not text.strip():
        return True
    try:
        value = strict_json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()  # a lone surrogate is no text
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict)
