"""What goes to OpenAI and its likes is what its official client would send; their streams are read as it reads them."""

import json
from typing import Any

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from pydantic import TypeAdapter

from appliance.protocol import (
    ChatPrompt,
    Constraint,
    Delta,
    Event,
    Finished,
    ImagePart,
    Message,
    Reasoning,
    ReasoningDelta,
    RefusalDelta,
    Request,
    Sampling,
    Started,
    Stopping,
    TextPart,
    Tool,
    ToolCall,
    ToolCallDelta,
    ToolUse,
)
from fallback.provider import Provider
from fallback.wire import ProviderFault, wire_of
from fallback.wire.openai import OpenAIWire

PROVIDER = Provider("openai", "openai", "https://api.openai.com/v1", "gpt-4o")
LOOK = Tool("look", "Looks.", '{"type":"object","properties":{"at":{"type":"string"}}}')
_PARAMS: TypeAdapter[Any] = TypeAdapter(CompletionCreateParamsStreaming)


def asked(
    *messages: Message, tools: tuple[Tool, ...] = (), kwargs: dict[str, Any] | None = None, **more: Any
) -> Request:
    messages = messages or (Message("user", (TextPart("Hi."),)),)
    return Request("r", "frontier", (ChatPrompt(messages, kwargs or {}, tools),), **more)


def body(request: Request, provider: Provider = PROVIDER) -> dict[str, Any]:
    sent = OpenAIWire().body(request, provider)
    _PARAMS.validate_python(sent)
    parsed: dict[str, Any] = json.loads(json.dumps(sent))
    return parsed


# What goes out


def test_a_plain_question_is_sent_with_nothing_but_what_it_needs() -> None:
    assert body(asked()) == {
        "model": "gpt-4o",
        "messages": [{"role": "user", "content": "Hi."}],
        "max_completion_tokens": 8192,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_the_limit_goes_into_the_field_that_the_provider_reads() -> None:
    old = Provider("vllm", "openai", "http://x/v1", "m", max_tokens=100, max_tokens_field="max_tokens")
    assert body(asked(), old)["max_tokens"] == 100
    assert body(asked(stopping=Stopping(max_tokens=7)), old)["max_tokens"] == 7
    assert "max_completion_tokens" not in body(asked(), old)


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("https://api.openai.com/v1", "https://api.openai.com/v1/chat/completions"),
        ("https://openrouter.ai/api/v1/", "https://openrouter.ai/api/v1/chat/completions"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/chat/completions"),
        (
            "https://x.openai.azure.com/openai/deployments/d?api-version=2024-10-21",
            "https://x.openai.azure.com/openai/deployments/d/chat/completions?api-version=2024-10-21",
        ),
    ],
)
def test_the_address_keeps_its_query(base: str, url: str) -> None:
    assert OpenAIWire().url(Provider("p", "openai", base, "m")) == url


def test_the_key_stands_in_the_header_of_the_kind() -> None:
    assert wire_of("openai").headers("sk") == {"authorization": "Bearer sk"}
    assert wire_of("azure").headers("sk") == {"api-key": "sk"}
    assert wire_of("openai").headers(None) == wire_of("azure").headers(None) == {}


def test_a_conversation_with_tools_goes_out_whole() -> None:
    sent = body(
        asked(
            Message("developer", (TextPart("Be brief."),)),
            Message("user", (TextPart("Look"), TextPart(" there.")), name="ann"),
            Message("assistant", (), tool_calls=(ToolCall("call_1", "look", '{"at": "x"'),)),
            Message("tool", (TextPart("A cat."),), name="look", tool_call_id="call_1"),
            Message("assistant", ()),
        )
    )["messages"]
    assert sent == [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "name": "ann",
            "content": [{"type": "text", "text": "Look"}, {"type": "text", "text": " there."}],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at": "x"'}}
            ],
        },
        {"role": "tool", "content": "A cat.", "tool_call_id": "call_1"},
        {"role": "assistant", "content": ""},
    ]


def test_images_keep_their_address_and_detail() -> None:
    image = ImagePart("data:image/png;base64,AA==", "low")
    assert body(asked(Message("user", (TextPart("?"), image))))["messages"][0]["content"] == [
        {"type": "text", "text": "?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}},
    ]


@pytest.mark.parametrize("call_id", ["toolu_" + "x" * 60, "call:1", "ü", "", "a b", "\ud800"])
def test_ids_of_other_makers_become_ones_that_are_taken_and_still_match(call_id: str) -> None:
    call, result = body(
        asked(
            Message("assistant", tool_calls=(ToolCall(call_id, "look", "{}"),)),
            Message("tool", (TextPart("x"),), tool_call_id=call_id),
        )
    )["messages"]
    assert call["tool_calls"][0]["id"] == result["tool_call_id"]
    assert len(result["tool_call_id"]) <= 40
    assert result["tool_call_id"].isascii()


@pytest.mark.parametrize(
    ("use", "choice"),
    [
        (None, "none"),
        (ToolUse("auto"), "auto"),
        (ToolUse("required"), "required"),
        (ToolUse("required", "look"), {"type": "function", "function": {"name": "look"}}),
    ],
)
def test_tools_are_offered_and_chosen(use: ToolUse | None, choice: Any) -> None:
    sent = body(asked(tools=(LOOK,), tool_use=use))
    assert sent["tool_choice"] == choice
    assert sent["tools"] == [
        {
            "type": "function",
            "function": {"name": "look", "description": "Looks.", "parameters": json.loads(LOOK.parameters)},
        }
    ]
    assert "parallel_tool_calls" not in sent
    assert body(asked(tools=(LOOK,), tool_use=ToolUse("auto", parallel=False)))["parallel_tool_calls"] is False


def test_sampling_is_sent_where_it_differs_from_the_default() -> None:
    sampling = Sampling(temperature=0.0, top_p=0.5, presence_penalty=1, frequency_penalty=-1, seed=0)
    sent = body(asked(sampling=sampling, n=2, stopping=Stopping(stop=("\n",)), logprobs=0))
    for name, value in {
        "temperature": 0,
        "top_p": 0.5,
        "presence_penalty": 1,
        "frequency_penalty": -1,
        "seed": 0,
    }.items():
        assert sent[name] == value
    assert (sent["n"], sent["stop"], sent["logprobs"], sent["top_logprobs"]) == (2, ["\n"], True, 0)


def test_effort_and_what_a_template_reads_go_where_they_are_read() -> None:
    vllm = Provider(
        "vllm", "openai", "http://x/v1", "m", also=frozenset({"chat_template_kwargs", "thinking_token_budget"})
    )
    kwargs = {"reasoning_effort": "low", "enable_thinking": True}
    assert body(asked(kwargs=kwargs))["reasoning_effort"] == "low"
    assert "chat_template_kwargs" not in body(asked(kwargs=kwargs))
    assert body(asked(kwargs=kwargs), vllm)["chat_template_kwargs"] == {"enable_thinking": True}
    assert body(asked(reasoning=Reasoning(budget=0)), vllm)["thinking_token_budget"] == 0


CLOSED: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (CLOSED, True),
        (CLOSED | {"required": []}, False),
        (CLOSED | {"additionalProperties": True}, False),
        ({"type": "object", "properties": {}}, False),
        (CLOSED | {"properties": {"a": {"type": "array", "items": {"type": "object"}}}}, False),
        (CLOSED | {"properties": {"a": {"anyOf": [CLOSED, {"type": "null"}]}}}, True),
        (CLOSED | {"$defs": {"b": {"type": "object", "properties": {"c": {}}}}}, False),
        (CLOSED | {"properties": {"required": {"type": "string"}}, "required": ["required"]}, True),
    ],
)
def test_a_schema_is_strict_where_openai_would_take_it_as_such(schema: dict[str, Any], strict: bool) -> None:  # noqa: FBT001 - a column of the table
    form = body(asked(constraint=Constraint("json_schema", json.dumps(schema), "response_format")))["response_format"]
    assert form == {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": strict}}


@pytest.mark.parametrize("required", [5, True, None, [[]], [{}], {"a": 1}, "a"])
def test_a_schema_that_is_odd_is_the_provider_s_to_refuse(required: Any) -> None:
    schema = CLOSED | {"required": required}
    form = body(asked(constraint=Constraint("json_schema", json.dumps(schema), "response_format")))["response_format"]
    assert form["json_schema"]["schema"] == schema


def test_any_object_is_asked_for_by_its_own_name() -> None:
    form = body(asked(constraint=Constraint("json_schema", '{"type":"object"}', "response_format")))["response_format"]
    assert form == {"type": "json_object"}


# What comes back


def chunk(choices: list[dict[str, Any]], **more: Any) -> str:
    """As OpenAI's own types would have it, checked against them."""
    said = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o", "choices": choices, **more}
    ChatCompletionChunk.model_validate(said)
    return json.dumps(said)


def piece(delta: dict[str, Any] | None = None, reason: str | None = None, index: int = 0, **more: Any) -> str:
    return chunk([{"index": index, "delta": delta or {}, "finish_reason": reason, **more}])


USAGE = {
    "prompt_tokens": 9,
    "completion_tokens": 5,
    "total_tokens": 14,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 2},
}


def read(*data: str, n: int = 1) -> list[Event]:
    answer = OpenAIWire().answer(asked(n=n))
    return [event for text in data for event in answer.feed("", text)] + answer.end()


def test_a_stream_of_text_is_read_to_its_end() -> None:
    answer = OpenAIWire().answer(asked())
    data = [
        piece({"role": "assistant", "content": "", "refusal": None}),
        piece({"content": "Hel"}, logprobs=None),
        piece({"content": "lo"}),
        piece(reason="stop"),
        chunk([], usage=USAGE),
        "[DONE]",
    ]
    events = [event for text in data for event in answer.feed("", text)] + answer.end()
    assert events == [Started(0, 0, 0, 0.0), Delta(0, "Hel", 0), Delta(0, "lo", 0), Finished(0, "stop", 5)]
    assert answer.claimed is not None
    assert (answer.claimed.prompt_tokens, answer.claimed.cached_tokens) == (9, 4)
    assert (answer.claimed.completion_tokens, answer.claimed.reasoning_tokens) == (5, 2)


def test_azure_s_first_chunk_of_filter_results_tells_nothing() -> None:
    first = json.dumps({"choices": [], "id": "", "prompt_filter_results": [{"prompt_index": 0}]})
    assert read(first, piece({"content": "x"}), piece(reason="stop"), "[DONE]")[1] == Delta(0, "x", 0)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_thoughts_come_under_either_name(name: str) -> None:
    both = json.dumps({"choices": [{"index": 0, "delta": {name: "hm", "content": None}}]})
    assert read(both, piece({"content": "x"}), piece(reason="stop"), "[DONE]")[1:3] == [
        ReasoningDelta(0, "hm", 0), Delta(0, "x", 0)
    ]  # fmt: skip


def test_a_refusal_is_no_text() -> None:
    assert read(piece({"refusal": "No."}), piece(reason="stop"), "[DONE]")[1] == RefusalDelta(0, "No.")


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("stop", "stop"), ("length", "length"), ("content_filter", "content_filter"), ("tool_calls", "tool_calls"),
     ("function_call", "tool_calls")],
)  # fmt: skip
def test_reasons_for_the_end_are_the_same(theirs: str, ours: str) -> None:
    last = read(piece({"content": "x"}), piece(reason=theirs), "[DONE]")[-1]
    assert isinstance(last, Finished)
    assert last.reason == ours


@pytest.mark.parametrize("reason", ["error", "abort", "insufficient_system_resource"])  # OpenRouter, vLLM, DeepSeek
def test_an_answer_that_the_provider_gave_up_is_no_whole_answer(reason: str) -> None:
    with pytest.raises(ProviderFault):
        read(json.dumps({"choices": [{"index": 0, "delta": {"content": "Half"}, "finish_reason": reason}]}), "[DONE]")


def test_choices_are_kept_apart() -> None:
    events = read(
        piece({"content": "a"}),
        piece({"content": "b"}, index=1),
        piece(reason="length", index=1),
        piece(reason="stop"),
        "[DONE]",
        n=2,
    )
    assert [event for event in events if isinstance(event, Delta)] == [Delta(0, "a", 0), Delta(1, "b", 0)]
    assert events[-2:] == [Finished(0, "stop", 0), Finished(1, "length", 0)]


def test_log_probabilities_come_with_their_bytes() -> None:
    said = {
        "token": " é",
        "logprob": -0.5,
        "bytes": [32, 195, 169],
        "top_logprobs": [{"token": "a", "logprob": -1, "bytes": None}],
    }
    event = read(
        piece({"content": " é"}, logprobs={"content": [said], "refusal": None}), piece(reason="stop"), "[DONE]"
    )[1]
    assert isinstance(event, Delta)
    (token,) = event.logprobs
    assert (token.token, token.logprob, token.top[0].token) == (" é".encode(), -0.5, b"a")


def test_a_server_that_does_not_stream_is_read_too() -> None:
    said = {
        "id": "c", "object": "chat.completion", "created": 1, "model": "m", "usage": USAGE,
        "choices": [{
            "index": 0, "finish_reason": "tool_calls", "logprobs": None,
            "message": {
                "role": "assistant", "content": "Let me look.", "refusal": None,
                "tool_calls": [{"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
            },
        }],
    }  # fmt: skip
    ChatCompletion.model_validate(said)
    assert read(json.dumps(said), "[DONE]") == [
        Started(0, 0, 0, 0.0),
        Delta(0, "Let me look.", 0),
        ToolCallDelta(0, 0, "a", "look", ""),
        ToolCallDelta(0, 0, None, None, "{}"),
        Finished(0, "tool_calls", 5),
    ]


def test_nothing_after_the_end_is_read() -> None:
    assert (
        len(read(piece({"content": "x"}), piece(reason="stop"), " [DONE] ", "not JSON", piece({"content": "y"}))) == 3
    )
