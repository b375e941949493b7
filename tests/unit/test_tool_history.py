"""A history's calls and results belong together, or the message at fault is named, or it is repaired."""

from collections.abc import Sequence

import pytest

from appliance.api.tool_history import with_sound_history
from appliance.errors import InvalidRequest
from appliance.protocol import ChatPrompt, Message, Request, TextPart, TextPrompt, ToolCall

USER = Message("user", (TextPart("What is the weather?"),))


def asked(*messages: Message) -> Request:
    return Request("id", "model", (ChatPrompt(messages),))


def calling(*calls: tuple[str, str]) -> Message:
    return Message("assistant", tool_calls=tuple(ToolCall(id_, "look", arguments) for id_, arguments in calls))


def result(call_id: str, text: str = "42") -> Message:
    return Message("tool", (TextPart(text),), tool_call_id=call_id)


def messages_of(request: Request) -> Sequence[Message]:
    (prompt,) = request.prompts
    assert isinstance(prompt, ChatPrompt)
    return prompt.messages


SOUND = [
    asked(USER),
    asked(USER, calling(("a", "{}"), ("b", '{"x": [1, "é"]}')), result("b"), result("a"), USER),
    asked(USER, calling(("a", "")), result("a"), calling(("a", "  ")), result("a")),
    asked(USER, calling(("a", "{}")), result("a"), result("a", "once more")),
    asked(USER, calling(("a", "{}")), USER),  # a call that was never answered
    Request("id", "model", (TextPrompt("text"),)),
]


@pytest.mark.parametrize("request_", SOUND)
def test_a_sound_history_stays_as_it_is(request_: Request) -> None:
    assert with_sound_history(request_, "refuse") is request_
    assert with_sound_history(request_, "repair") is request_


BROKEN = [
    (asked(USER, result("a")), "messages[1].tool_call_id"),
    (asked(USER, calling(("a", "{}")), result("b")), "messages[2].tool_call_id"),
    (asked(result("a"), calling(("a", "{}"))), "messages[0].tool_call_id"),
    (asked(USER, calling(("a", "{"))), "messages[1].tool_calls[0].function.arguments"),
    (asked(USER, calling(("a", "{}"), ("b", "[1]"))), "messages[1].tool_calls[1].function.arguments"),
    (asked(USER, calling(("a", '"{}"'))), "messages[1].tool_calls[0].function.arguments"),
    (asked(USER, calling(("a", '{"x": NaN}'))), "messages[1].tool_calls[0].function.arguments"),
    (asked(USER, calling(("a", '{"x": 1e999}'))), "messages[1].tool_calls[0].function.arguments"),
    (asked(USER, calling(("a", '{"x": "\\ud800"}'))), "messages[1].tool_calls[0].function.arguments"),
    (asked(USER, calling(("a", "[" * 100_000))), "messages[1].tool_calls[0].function.arguments"),
    (asked(USER, calling(("a", "{}"), ("a", "{}"))), "messages[1].tool_calls[1].id"),
]


@pytest.mark.parametrize(("request_", "param"), BROKEN, ids=[param for _, param in BROKEN])
def test_a_broken_history_names_the_message(request_: Request, param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        with_sound_history(request_, "refuse")
    assert refused.value.param == param


@pytest.mark.parametrize(("request_", "param"), BROKEN, ids=[param for _, param in BROKEN])
def test_a_repaired_history_is_sound(request_: Request, param: str) -> None:
    repaired = with_sound_history(request_, "repair")
    assert with_sound_history(repaired, "refuse") is repaired
    assert len(messages_of(repaired)) == len(messages_of(request_))


def test_a_repair_keeps_what_was_said() -> None:
    repaired = messages_of(
        with_sound_history(asked(USER, calling(("a", "{x")), result("a"), result("z", "lost")), "repair")
    )
    assert repaired[1].tool_calls[0].arguments == '{"arguments": "{x"}'
    assert repaired[2] == result("a")
    assert repaired[3].role == "user"
    assert repaired[3].content[-1] == TextPart("lost")
