"""Everything the official client can send is used, ignored on purpose or refused by name: the client's own types say
what that is, so a newer client that knows a new field fails here first."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from openai.types import completion_create_params as completion
from openai.types.chat import (
    ChatCompletionAssistantMessageParam,
    ChatCompletionContentPartRefusalParam,
    ChatCompletionContentPartTextParam,
    ChatCompletionDeveloperMessageParam,
    ChatCompletionMessageFunctionToolCallParam,
    ChatCompletionStreamOptionsParam,
    ChatCompletionSystemMessageParam,
    ChatCompletionToolMessageParam,
    ChatCompletionUserMessageParam,
)
from openai.types.chat import completion_create_params as chat

from appliance.api.openai.chat_request import parse_chat
from appliance.api.openai.completion_request import parse_completion
from appliance.api.openai.field_support import IGNORED_FIELDS, REFUSED_FIELDS
from appliance.errors import InvalidRequest
from appliance.protocol import Request

USER = {"role": "user", "content": "x"}
Fields = dict[str, Any]

# Values that ask for something, and what the field needs beside it.
TOOL = {"type": "function", "function": {"name": "f"}}
CHAT_USED: dict[str, tuple[Any, Fields]] = {
    "messages": ([{"role": "user", "content": "y"}], {}),
    "model": ("other", {}),
    "frequency_penalty": (1.0, {}),
    "logit_bias": ({"5": 1}, {}),
    "logprobs": (True, {}),
    "max_completion_tokens": (5, {}),
    "max_tokens": (5, {}),
    "metadata": ({"task": "t"}, {}),
    "n": (2, {}),
    "presence_penalty": (1.0, {}),
    "reasoning_effort": ("low", {}),
    "seed": (7, {}),
    "service_tier": ("flex", {}),
    "stop": ("x", {}),
    "stream": (True, {}),
    "stream_options": ({"include_usage": True}, {"stream": True}),
    "temperature": (0.5, {}),
    "top_logprobs": (3, {"logprobs": True}),
    "top_p": (0.5, {}),
    # Not OpenAI's: clients of vLLM and llama.cpp send them.
    "chat_template_kwargs": ({"enable_thinking": False}, {}),
    "ignore_eos": (True, {}),
    "min_p": (0.1, {}),
    "min_tokens": (1, {}),
    "repetition_penalty": (1.1, {}),
    "top_k": (5, {}),
    "response_format": ({"type": "json_object"}, {}),
    "tools": ([TOOL], {}),
    "tool_choice": ("required", {"tools": [TOOL]}),
    "parallel_tool_calls": (False, {"tools": [TOOL]}),
}
CHAT_REFUSED: Fields = {
    "audio": {"voice": "alloy", "format": "wav"},
    "function_call": {"name": "f"},
    "functions": [{"name": "f"}],
    "modalities": ["text", "audio"],
    "moderation": {"model": "omni-moderation-latest"},
    "web_search_options": {},
}
CHAT_IGNORED = (
    "prediction",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "store",
    "user",
    "verbosity",
)
COMPLETION_USED: dict[str, tuple[Any, Fields]] = {
    "prompt": ("y", {}),
    "echo": (True, {}),
    "logprobs": (3, {}),
    **{
        name: value
        for name, value in CHAT_USED.items()
        if name
        not in {
            "messages",
            "logprobs",
            "top_logprobs",
            "max_completion_tokens",
            "reasoning_effort",
            "chat_template_kwargs",
            "tools",
            "tool_choice",
            "parallel_tool_calls",
        }
    },
}
# `best_of` is checked against `n` and else changes nothing: it may only ask for what happens anyway.
COMPLETION_REFUSED: Fields = {"suffix": "end", "best_of": 2}
JUNK = (True, 0, "x", ["x"], {"x": {"y": [None]}})


def parse_chat_with(**fields: Any) -> Request:
    return parse_chat({"model": "local", "messages": [USER], **fields}, {}, "r1")


def parse_completion_with(**fields: Any) -> Request:
    return parse_completion({"model": "local", "prompt": "x", **fields}, {}, "r1")


def keys(*types: type) -> set[str]:
    return set().union(*(kind.__annotations__ for kind in types))


def test_every_chat_field_of_the_client_is_in_one_of_the_three() -> None:
    client = keys(chat.CompletionCreateParamsNonStreaming, chat.CompletionCreateParamsStreaming)
    assert len(client) > 35
    groups: list[Mapping[str, Any] | tuple[str, ...]] = [CHAT_USED, CHAT_REFUSED, CHAT_IGNORED]
    assert all(sum(name in group for group in groups) == 1 for name in client), client - {*CHAT_USED, *CHAT_REFUSED}
    assert all(name in IGNORED_FIELDS for name in CHAT_IGNORED)
    assert all(name in REFUSED_FIELDS for name in CHAT_REFUSED)


def test_every_completion_field_of_the_client_is_in_one_of_the_three() -> None:
    client = keys(completion.CompletionCreateParamsNonStreaming, completion.CompletionCreateParamsStreaming)
    assert len(client) > 15
    for name in client:
        assert sum([name in COMPLETION_USED, name in COMPLETION_REFUSED, name in IGNORED_FIELDS]) == 1, name


@pytest.mark.parametrize("name", CHAT_USED)
def test_a_used_chat_field_changes_the_request(name: str) -> None:
    value, beside = CHAT_USED[name]
    assert parse_chat_with(**{**beside, name: value}) != parse_chat_with(**beside)


@pytest.mark.parametrize("name", COMPLETION_USED)
def test_a_used_completion_field_changes_the_request(name: str) -> None:
    value, beside = COMPLETION_USED[name]
    assert parse_completion_with(**{**beside, name: value}) != parse_completion_with(**beside)


@pytest.mark.parametrize(
    ("parse", "name", "value"),
    [
        *((parse_chat_with, *field) for field in CHAT_REFUSED.items()),
        *((parse_completion_with, *field) for field in COMPLETION_REFUSED.items()),
    ],
)
def test_a_refused_field_is_refused_by_name(parse: Callable[..., Request], name: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        parse(**{name: value})
    assert refusal.value.param == name
    assert REFUSED_FIELDS.get(name, "not ranked") in refusal.value.message


@pytest.mark.parametrize("name", CHAT_IGNORED)
@pytest.mark.parametrize("value", JUNK, ids=repr)
def test_an_ignored_field_changes_nothing_whatever_it_holds(name: str, value: Any) -> None:
    assert parse_chat_with(**{name: value}) == parse_chat_with()


def test_user_is_ignored_in_completions_too() -> None:
    assert parse_completion_with(user={"x": 1}) == parse_completion_with()


TEXT_PART = {"type": "text", "text": "x", "prompt_cache_breakpoint": {"mode": "explicit"}}
REFUSAL_PART = {"type": "refusal", "refusal": "x"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
WHOLE_MESSAGES: list[tuple[type, Fields, set[str]]] = [
    (ChatCompletionSystemMessageParam, {"role": "system", "content": "x", "name": "n"}, set()),
    (ChatCompletionDeveloperMessageParam, {"role": "developer", "content": "x", "name": "n"}, set()),
    (ChatCompletionUserMessageParam, {"role": "user", "content": [TEXT_PART], "name": "n"}, set()),
    (ChatCompletionToolMessageParam, {"role": "tool", "content": "x", "tool_call_id": "c"}, set()),
    (
        ChatCompletionAssistantMessageParam,
        {"role": "assistant", "content": [TEXT_PART, REFUSAL_PART], "name": "n", "refusal": "x", "tool_calls": [CALL]},
        {"audio", "function_call"},
    ),
]


@pytest.mark.parametrize(("kind", "message", "refused"), WHOLE_MESSAGES, ids=lambda case: getattr(case, "__name__", ""))
def test_a_message_with_every_field_of_the_client_is_accepted_but_for_the_refused(
    kind: type, message: Fields, refused: set[str]
) -> None:
    assert keys(kind) == set(message) | refused
    parse_chat_with(messages=[message])
    for name in refused:
        assert f"messages[].{name}" in REFUSED_FIELDS
        with pytest.raises(InvalidRequest) as refusal:
            parse_chat_with(messages=[{**message, name: {"id": "x"}}])
        assert refusal.value.param == f"messages[0].{name}"


def test_the_parts_of_a_message_have_every_field_of_the_client() -> None:
    assert keys(ChatCompletionContentPartTextParam) == set(TEXT_PART)
    assert keys(ChatCompletionContentPartRefusalParam) == set(REFUSAL_PART)
    assert keys(ChatCompletionMessageFunctionToolCallParam) == set(CALL)
    assert keys(ChatCompletionStreamOptionsParam) == {"include_usage", "include_obfuscation"}


@pytest.mark.parametrize("value", JUNK, ids=repr)
def test_what_is_ignored_inside_messages_changes_nothing(value: Any) -> None:
    part = {"type": "text", "text": "x"}
    with_it = parse_chat_with(messages=[{"role": "user", "content": [{**part, "prompt_cache_breakpoint": value}]}])
    assert with_it == parse_chat_with(messages=[{"role": "user", "content": [part]}])
    answer = {"role": "assistant", "content": "x"}
    for field in ("annotations", "parsed", "provider_specific_fields", "reasoning_details", "thinking_blocks"):
        assert parse_chat_with(messages=[{**answer, field: value}]) == parse_chat_with(messages=[answer])
    function = {"name": "f", "arguments": "{}"}
    call = {"id": "c", "type": "function", "function": function}
    for noted in ({**call, "index": value}, {**call, "function": {**function, "parsed_arguments": value}}):
        with_it = parse_chat_with(messages=[{**answer, "tool_calls": [noted]}])
        assert with_it == parse_chat_with(messages=[{**answer, "tool_calls": [call]}])


def test_the_tables_name_no_field_that_is_not_there() -> None:
    inside = {name for name in IGNORED_FIELDS if name.startswith("messages[].")}
    assert set(IGNORED_FIELDS) == {*CHAT_IGNORED, *inside}
    inside = {"messages[].audio", "messages[].function_call", "stream_options.include_obfuscation"}
    assert set(REFUSED_FIELDS) == {*CHAT_REFUSED, "suffix", *inside}


def test_the_readme_lists_what_is_ignored_and_why() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    missing = [row for field, why in IGNORED_FIELDS.items() if (row := f"| `{field}` | {why} |") not in readme]
    assert missing == [], "\n".join(["the README lacks these rows:", *missing])


def test_a_text_that_is_too_long_is_measured_in_characters() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "stop": "x" * 100_000}
    with pytest.raises(InvalidRequest, match=r"'stop' must be at most 512 characters long, not 100000\."):
        parse_chat(body, {}, "id")
