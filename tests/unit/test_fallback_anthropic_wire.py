"""What goes to Anthropic is what its official client would send; roles, results and thoughts find their place there."""

import json
from typing import Any

import pytest
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from pydantic import TypeAdapter

from appliance.protocol import (
    ChatPrompt,
    Constraint,
    ImagePart,
    Message,
    Reasoning,
    Request,
    Sampling,
    Stopping,
    TextPart,
    Tool,
    ToolCall,
    ToolUse,
)
from fallback.provider import Provider
from fallback.wire.anthropic import AnthropicWire

PROVIDER = Provider("anthropic", "anthropic", "https://api.anthropic.com/v1", "claude-sonnet-4")
LOOK = Tool("look", "Looks.", '{"type":"object","properties":{"at":{"type":"string"}}}')
_PARAMS: TypeAdapter[Any] = TypeAdapter(MessageCreateParamsStreaming)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def said(role: Any, words: str = "", **more: Any) -> Message:
    return Message(role, (TextPart(words),) if words else (), **more)


def asked(
    *messages: Message, tools: tuple[Tool, ...] = (), kwargs: dict[str, Any] | None = None, **more: Any
) -> Request:
    return Request("r", "frontier", (ChatPrompt(messages or (said("user", "Hi."),), kwargs or {}, tools),), **more)


def body(request: Request, provider: Provider = PROVIDER) -> dict[str, Any]:
    sent = AnthropicWire().body(request, provider)
    _PARAMS.validate_python(sent)
    parsed: dict[str, Any] = json.loads(json.dumps(sent))
    return parsed


def turns(*messages: Message) -> list[tuple[str, list[dict[str, Any]]]]:
    return [(turn["role"], turn["content"]) for turn in body(asked(*messages))["messages"]]


def test_a_plain_question_is_sent_with_nothing_but_what_it_needs() -> None:
    assert body(asked()) == {
        "model": "claude-sonnet-4",
        "max_tokens": 8192,  # without it there is no answer
        "messages": [{"role": "user", "content": [text("Hi.")]}],
        "stream": True,
    }
    assert body(asked(stopping=Stopping(max_tokens=5)))["max_tokens"] == 5


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("https://api.anthropic.com/v1", "https://api.anthropic.com/v1/messages"),
        ("https://api.anthropic.com/v1/", "https://api.anthropic.com/v1/messages"),
        ("https://gateway.example/v1?team=a", "https://gateway.example/v1/messages?team=a"),
    ],
)
def test_the_address_keeps_its_query(base: str, url: str) -> None:
    assert AnthropicWire().url(Provider("p", "anthropic", base, "m")) == url


def test_the_key_and_the_version_are_headers() -> None:
    assert AnthropicWire().headers("sk") == {"anthropic-version": "2023-06-01", "x-api-key": "sk"}
    assert AnthropicWire().headers(None) == {"anthropic-version": "2023-06-01"}


def test_instructions_are_gathered_in_front() -> None:
    sent = body(asked(said("system", "A."), said("user", "Hi."), said("developer", "B."), said("system")))
    assert sent["system"] == "A.\n\nB."
    assert [turn["role"] for turn in sent["messages"]] == ["user"]


def test_turns_of_one_side_in_a_row_become_one() -> None:
    assert turns(
        said("user", "a"), said("user", "b"), said("assistant", "c"), said("assistant", "d"), said("user", "e")
    ) == [
        ("user", [text("a"), text("b")]),
        ("assistant", [text("c"), text("d")]),
        ("user", [text("e")]),
    ]


@pytest.mark.parametrize("messages", [(), (said("system", "x"),), (said("user", " \n"),), (said("assistant", "I am"),)])
def test_a_user_begins_whatever_the_client_sent(messages: tuple[Message, ...]) -> None:
    request = Request("r", "frontier", (ChatPrompt(messages),))
    assert body(request)["messages"][0]["role"] == "user"
    assert all(turn["content"] for turn in body(request)["messages"])


def test_texts_of_nothing_but_space_which_are_refused_there_are_left_out() -> None:
    assert turns(
        Message("user", (TextPart(" "), TextPart("a"), TextPart("\n"))), said("assistant", " "), said("user", "b")
    ) == [("user", [text("a"), text("b")])]


def test_a_conversation_with_tools_goes_out_whole() -> None:
    assert turns(
        said("user", "Look."),
        said("assistant", "So.", tool_calls=(ToolCall("call_1", "look", '{"at":1}'), ToolCall("call_2", "look", "{}"))),
        said("tool", "A cat.", tool_call_id="call_1"),
        said("tool", tool_call_id="call_2"),
        said("user", "And?"),
    ) == [
        ("user", [text("Look.")]),
        ("assistant", [
            text("So."),
            {"type": "tool_use", "id": "call_1", "name": "look", "input": {"at": 1}},
            {"type": "tool_use", "id": "call_2", "name": "look", "input": {}},
        ]),
        ("user", [
            {"type": "tool_result", "tool_use_id": "call_1", "content": [text("A cat.")]},
            {"type": "tool_result", "tool_use_id": "call_2", "content": []},
            text("And?"),
        ]),
    ]  # fmt: skip


@pytest.mark.parametrize("arguments", ["", "{", "[1]", "null", "5", "[" * 5000])
def test_arguments_that_are_no_object_are_shown_as_the_model_wrote_them(arguments: str) -> None:
    call = said("assistant", tool_calls=(ToolCall("c", "look", arguments),))
    block = turns(said("user", "x"), call)[1][1][0]
    assert block["input"] == {"arguments": arguments}


@pytest.mark.parametrize("call_id", ["call:1", "chatcmpl-tool.5", "ü", "", "x" * 300])
def test_ids_of_other_makers_become_ones_that_are_taken_and_still_match(call_id: str) -> None:
    sent = turns(
        said("user", "x"),
        said("assistant", tool_calls=(ToolCall(call_id, "look", "{}"),)),
        said("tool", "y", tool_call_id=call_id),
    )
    assert sent[1][1][0]["id"] == sent[2][1][0]["tool_use_id"]
    assert sent[1][1][0]["id"].replace("_", "").replace("-", "").isalnum()


def test_images_are_sent_inline_or_by_their_address() -> None:
    inline, linked = ImagePart("data:image/png;base64,AAAA"), ImagePart("https://x.example/a.jpg")
    assert turns(Message("user", (TextPart("?"), inline, linked)))[0][1] == [
        text("?"),
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
        {"type": "image", "source": {"type": "url", "url": "https://x.example/a.jpg"}},
    ]


@pytest.mark.parametrize(
    ("use", "choice"),
    [
        (None, {"type": "none"}),
        (ToolUse("auto"), {"type": "auto"}),
        (ToolUse("required"), {"type": "any"}),
        (ToolUse("auto", parallel=False), {"type": "auto", "disable_parallel_tool_use": True}),
        (
            ToolUse("required", "look", parallel=False),
            {"type": "tool", "name": "look", "disable_parallel_tool_use": True},
        ),
    ],
)
def test_tools_are_offered_and_chosen(use: ToolUse | None, choice: dict[str, Any]) -> None:
    sent = body(asked(tools=(LOOK,), tool_use=use))
    assert sent["tool_choice"] == choice
    assert sent["tools"] == [{"name": "look", "description": "Looks.", "input_schema": json.loads(LOOK.parameters)}]
    assert "tools" not in body(asked())
    assert "tool_choice" not in body(asked())


def test_sampling_is_sent_where_it_differs_from_the_default() -> None:
    sent = body(asked(sampling=Sampling(temperature=0.0, top_p=0.9, top_k=5), stopping=Stopping(stop=("###",))))
    assert (sent["temperature"], sent["top_p"], sent["top_k"], sent["stop_sequences"]) == (0.0, 0.9, 5, ["###"])


def test_a_form_is_asked_for_in_the_output_s_configuration() -> None:
    constraint = Constraint("json_schema", '{"type":"object","properties":{}}', "response_format")
    assert body(asked(constraint=constraint))["output_config"] == {
        "format": {"type": "json_schema", "schema": {"type": "object", "properties": {}}}
    }


@pytest.mark.parametrize(
    ("theirs", "ours"), [("minimal", "low"), ("low", "low"), ("medium", "medium"), ("high", "high"), ("max", "max")]
)
def test_effort_is_asked_for_in_its_words(theirs: str, ours: str) -> None:
    assert body(asked(kwargs={"reasoning_effort": theirs}))["output_config"] == {"effort": ours}


def test_a_budget_for_thoughts_is_told() -> None:
    assert body(asked(reasoning=Reasoning(budget=2000)))["thinking"] == {"type": "enabled", "budget_tokens": 2000}


@pytest.mark.parametrize(
    "asks",
    [
        asked(kwargs={"reasoning_effort": "none", "enable_thinking": False}, reasoning=Reasoning(enabled=False)),
        asked(reasoning=Reasoning(budget=0)),
    ],
    ids=["effort none", "no budget"],
)
def test_that_nothing_is_to_be_thought_is_not_kept_from_it(asks: Request) -> None:
    assert body(asks)["thinking"] == {"type": "disabled"}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "Overloaded"),
        ({"type": "error", "error": "x"}, None),
        ({"error": {"message": 5}}, None),
        (None, None),
        ([], None),
    ],
)
def test_the_message_of_an_error_is_found(document: Any, message: str | None) -> None:
    assert AnthropicWire().error_message(document) == message
