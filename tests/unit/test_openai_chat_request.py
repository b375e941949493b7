"""What a good chat body becomes."""

from typing import Any

import pytest

from appliance.api.openai.chat_request import ChatCompletionRequest, parse_chat
from appliance.protocol import (
    ChatPrompt,
    Hints,
    Message,
    Reasoning,
    Request,
    Sampling,
    Stopping,
    TextPart,
    ToolCall,
)

HELLO = {"role": "user", "content": "hello"}


def parse(**fields: Any) -> Request:
    return parse_chat({"model": "local", "messages": [HELLO], **fields}, {}, "r1")


def messages(*bodies: dict[str, Any]) -> tuple[Message, ...]:
    (prompt,) = parse(messages=list(bodies)).prompts
    assert isinstance(prompt, ChatPrompt)
    return prompt.messages


def test_the_smallest_body_has_openais_defaults() -> None:
    assert parse() == Request(
        id="r1",
        model="local",
        prompts=(ChatPrompt((Message("user", (TextPart("hello"),)),)),),
        n=1,
        sampling=Sampling(),
        stopping=Stopping(),
        logprobs=None,
        stream=False,
        include_usage=False,
        hints=Hints(),
    )


def test_null_means_absent_for_every_optional_field() -> None:
    optional = set(ChatCompletionRequest.model_fields) - {"model", "messages"}
    assert len(optional) > 35
    assert parse(**dict.fromkeys(optional)) == parse()


def test_every_sampling_field_reaches_the_engine() -> None:
    request = parse(
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        min_p=0.05,
        presence_penalty=1,
        frequency_penalty=-1.5,
        repetition_penalty=1.1,
        logit_bias={"20": -100, "3": 1.5},
        seed=7,
    )
    assert request.sampling == Sampling(
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        min_p=0.05,
        presence_penalty=1.0,
        frequency_penalty=-1.5,
        repetition_penalty=1.1,
        logit_bias=((3, 1.5), (20, -100.0)),
        seed=7,
    )


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"top_p": 0}, Sampling(temperature=0.0)),
        ({"top_p": 0, "temperature": 2}, Sampling(temperature=0.0)),
        ({"top_k": -1}, Sampling()),
        ({"top_k": 0}, Sampling()),
        ({"temperature": 0}, Sampling(temperature=0.0)),
        ({"temperature": 2}, Sampling(temperature=2.0)),
        ({"seed": -1}, Sampling(seed=2**64 - 1)),
        ({"seed": -(2**63)}, Sampling(seed=2**63)),
        ({"seed": 2**63 - 1}, Sampling(seed=2**63 - 1)),
        ({"seed": 0}, Sampling(seed=0)),
        ({"logit_bias": {}}, Sampling()),
        ({"logit_bias": {"2147483647": 100}}, Sampling(logit_bias=((2**31 - 1, 100.0),))),
    ],
)
def test_the_edges_of_sampling(fields: dict[str, Any], expected: Sampling) -> None:
    assert parse(**fields).sampling == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"max_tokens": 5}, Stopping(max_tokens=5)),
        ({"max_completion_tokens": 6}, Stopping(max_tokens=6)),
        ({"max_tokens": 6, "max_completion_tokens": 6}, Stopping(max_tokens=6)),
        ({"max_tokens": None, "max_completion_tokens": 6}, Stopping(max_tokens=6)),
        ({"min_tokens": 3, "max_tokens": 3}, Stopping(max_tokens=3, min_tokens=3)),
        ({"min_tokens": 3}, Stopping(min_tokens=3)),
        ({"stop": "\n"}, Stopping(stop=("\n",))),
        ({"stop": ["a", "b"]}, Stopping(stop=("a", "b"))),
        ({"stop": []}, Stopping()),
        ({"stop": ["x"] * 16}, Stopping(stop=("x",) * 16)),
        ({"ignore_eos": True}, Stopping(ignore_eos=True)),
    ],
)
def test_when_to_stop(fields: dict[str, Any], expected: Stopping) -> None:
    assert parse(**fields).stopping == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"logprobs": True}, 0),
        ({"logprobs": True, "top_logprobs": 20}, 20),
        ({"logprobs": False}, None),
        ({"logprobs": False, "top_logprobs": 0}, None),
        ({"top_logprobs": 0}, None),
    ],
)
def test_logprobs(fields: dict[str, Any], expected: int | None) -> None:
    assert parse(**fields).logprobs == expected


def test_streams_can_ask_for_usage() -> None:
    assert parse(stream=True).include_usage is False
    request = parse(stream=True, stream_options={"include_usage": True, "include_obfuscation": False})
    assert (request.stream, request.include_usage) == (True, True)


def test_template_variables_come_from_kwargs_and_reasoning_effort() -> None:
    def variables(**fields: Any) -> Any:
        (prompt,) = parse(**fields).prompts
        assert isinstance(prompt, ChatPrompt)
        return prompt.template_kwargs

    assert variables(chat_template_kwargs={"top": "x", "x": [1, {"y": None}]}) == {"top": "x", "x": [1, {"y": None}]}
    assert variables(reasoning_effort="low") == {"reasoning_effort": "low"}
    assert variables(reasoning_effort="low", chat_template_kwargs={"reasoning_effort": "high"}) == {
        "reasoning_effort": "high"
    }


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"role": "user", "content": "hi"}, Message("user", (TextPart("hi"),))),
        ({"role": "user", "content": "hi", "name": "ann"}, Message("user", (TextPart("hi"),), "ann")),
        ({"role": "user", "content": None}, Message("user")),
        ({"role": "user", "content": ""}, Message("user")),
        ({"role": "system", "content": None}, Message("system")),
        ({"role": "developer", "content": "d"}, Message("developer", (TextPart("d"),))),
        (
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            Message("user", (TextPart("a"), TextPart("b"))),
        ),
        ({"role": "user", "content": [{"type": "text", "text": ""}]}, Message("user")),
        ({"role": "assistant"}, Message("assistant")),
        ({"role": "assistant", "content": None}, Message("assistant")),
        ({"role": "assistant", "content": None, "refusal": "no"}, Message("assistant", (TextPart("no"),))),
        (
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
            Message("assistant", (TextPart("no"),)),
        ),
        (
            {
                "role": "assistant",
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{not json"}}],
            },
            Message("assistant", (), None, (ToolCall("c1", "f", "{not json"),)),
        ),
        ({"role": "assistant", "content": "a", "tool_calls": []}, Message("assistant", (TextPart("a"),))),
        (
            {"role": "tool", "tool_call_id": "c1", "content": "42"},
            Message("tool", (TextPart("42"),), tool_call_id="c1"),
        ),
        (
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "4"}], "name": "f"},
            Message("tool", (TextPart("4"),), "f", (), "c1"),
        ),
    ],
)
def test_messages(body: dict[str, Any], expected: Message) -> None:
    assert messages(body) == (expected,)


def test_roles_may_come_in_any_order() -> None:
    roles = ["assistant", "user", "system", "developer", "user", "system"]
    assert [m.role for m in messages(*({"role": role, "content": "x"} for role in roles))] == roles


def test_an_answer_can_be_sent_back_as_history() -> None:
    """Clients append the message they were given, with the nulls it had."""
    answer: dict[str, Any] = {
        "role": "assistant",
        "content": "4",
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": None,
    }
    assert messages(HELLO, answer, HELLO)[1] == Message("assistant", (TextPart("4"),))


def test_thoughts_of_an_earlier_answer_are_for_the_template() -> None:
    answer = {"role": "assistant", "content": "4", "reasoning_content": "2 + 2"}
    assert messages(answer)[0].attributes == {"reasoning_content": "2 + 2"}
    assert messages({**answer, "reasoning_content": None})[0].attributes == {}


@pytest.mark.parametrize(
    ("fields", "reasoning"),
    [
        ({}, Reasoning()),
        ({"reasoning_effort": "high"}, Reasoning()),
        ({"thinking_token_budget": 100}, Reasoning(budget=100)),
        ({"reasoning_effort": "none"}, Reasoning(enabled=False)),
        ({"chat_template_kwargs": {"enable_thinking": False}}, Reasoning(enabled=False)),
        ({"chat_template_kwargs": {"thinking": False}, "thinking_token_budget": 0}, Reasoning(enabled=False, budget=0)),
        ({"chat_template_kwargs": {"enable_thinking": True}}, Reasoning()),
    ],
)
def test_how_much_a_model_may_think(fields: dict[str, Any], reasoning: Reasoning) -> None:
    request = parse(**fields)
    assert request.reasoning == reasoning
    (prompt,) = request.prompts
    assert isinstance(prompt, ChatPrompt)
    switches = [prompt.template_kwargs.get(name) for name in ("enable_thinking", "thinking")]
    assert reasoning.enabled or switches == [False, False]


def test_tools_that_may_not_be_called_change_nothing() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    assert parse(tools=[tool], tool_choice="none") == parse()
    assert parse(functions=[{"name": "f"}], function_call="none") == parse()
    assert parse(tools=[], tool_choice="auto") == parse()


def test_asking_for_text_is_asking_for_nothing_special() -> None:
    assert parse(response_format={"type": "text"}, modalities=["text"]) == parse()


def test_hints_come_from_headers_metadata_and_service_tier() -> None:
    body = {
        "model": "local",
        "messages": [HELLO],
        "metadata": {"task": "t1", "other": "x"},
        "service_tier": "flex",
    }
    request = parse_chat(body, {"x-appliance-step": "extract"}, "r1")
    assert request.hints == Hints(task="t1", step="extract", criticality="sheddable")


def test_equal_requests_are_equal_however_they_are_written() -> None:
    assert parse(stop="a", logit_bias={"1": 1, "2": 2}) == parse(stop=["a"], logit_bias={"2": 2.0, "1": 1.0})
