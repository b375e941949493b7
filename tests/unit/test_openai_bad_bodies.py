"""Bad bodies: each is refused with a 400 that names the field as OpenAI would."""

from typing import Any

import pytest
from pydantic import ValidationError

from appliance.api.openai.chat_request import ChatCompletionRequest, parse_chat
from appliance.api.openai.completion_request import parse_completion
from appliance.errors import InvalidRequest

HALF = "\ud83d"  # the first half of an emoji, as a client that cut a string in UTF-16 sends it
HUGE = 10**400


def user(content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **fields}


def assistant(**fields: Any) -> dict[str, Any]:
    return {"role": "assistant", **fields}


def call(**fields: Any) -> dict[str, Any]:
    return {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}, **fields}


def text(value: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **fields}


# Fields of chat and completions alike: name, value, where the fault lies.
SHARED: list[tuple[dict[str, Any], str]] = [
    ({"model": None}, "model"),
    ({"model": ""}, "model"),
    ({"model": 1}, "model"),
    ({"model": ["local"]}, "model"),
    ({"model": "m" * 257}, "model"),
    ({"model": HALF}, "model"),
    ({"temperature": -0.1}, "temperature"),
    ({"temperature": 2.01}, "temperature"),
    ({"temperature": "1"}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"temperature": float("inf")}, "temperature"),
    ({"temperature": float("nan")}, "temperature"),
    ({"temperature": HUGE}, "temperature"),
    ({"temperature": []}, "temperature"),
    ({"top_p": -0.001}, "top_p"),
    ({"top_p": 1.001}, "top_p"),
    ({"top_p": "0.9"}, "top_p"),
    ({"top_p": False}, "top_p"),
    ({"top_k": -2}, "top_k"),
    ({"top_k": 1.0}, "top_k"),
    ({"top_k": 2**31}, "top_k"),
    ({"top_k": "40"}, "top_k"),
    ({"min_p": -1}, "min_p"),
    ({"min_p": 1.5}, "min_p"),
    ({"min_p": {}}, "min_p"),
    ({"presence_penalty": -2.1}, "presence_penalty"),
    ({"presence_penalty": 3}, "presence_penalty"),
    ({"presence_penalty": "0"}, "presence_penalty"),
    ({"frequency_penalty": 2.5}, "frequency_penalty"),
    ({"frequency_penalty": True}, "frequency_penalty"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"repetition_penalty": -1.1}, "repetition_penalty"),
    ({"repetition_penalty": 11}, "repetition_penalty"),
    ({"logit_bias": []}, "logit_bias"),
    ({"logit_bias": {"hello": 1}}, "logit_bias"),
    ({"logit_bias": {"-1": 1}}, "logit_bias"),
    ({"logit_bias": {"1.0": 1}}, "logit_bias"),
    ({"logit_bias": {"01": 1}}, "logit_bias"),
    ({"logit_bias": {"": 1}}, "logit_bias"),
    ({"logit_bias": {"٣": 1}}, "logit_bias"),
    ({"logit_bias": {HALF: 1}}, "logit_bias"),
    ({"logit_bias": {"9" * 5000: 1}}, "logit_bias"),
    ({"logit_bias": {str(2**31): 1}}, "logit_bias"),
    ({"logit_bias": {str(token): 0 for token in range(1025)}}, "logit_bias"),
    ({"logit_bias": {"5": 101}}, "logit_bias.5"),
    ({"logit_bias": {"5": -100.5}}, "logit_bias.5"),
    ({"logit_bias": {"5": "1"}}, "logit_bias.5"),
    ({"logit_bias": {"5": None}}, "logit_bias.5"),
    ({"logit_bias": {"5": True}}, "logit_bias.5"),
    ({"seed": 1.5}, "seed"),
    ({"seed": 1.0}, "seed"),
    ({"seed": "7"}, "seed"),
    ({"seed": True}, "seed"),
    ({"seed": 2**63}, "seed"),
    ({"seed": -(2**63) - 1}, "seed"),
    ({"seed": HUGE}, "seed"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": -5}, "max_tokens"),
    ({"max_tokens": 2**31}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_tokens": 16.0}, "max_tokens"),
    ({"max_tokens": "16"}, "max_tokens"),
    ({"max_tokens": True}, "max_tokens"),
    ({"max_tokens": HUGE}, "max_tokens"),
    ({"min_tokens": -1}, "min_tokens"),
    ({"min_tokens": "1"}, "min_tokens"),
    ({"min_tokens": 9, "max_tokens": 8}, "min_tokens"),
    ({"ignore_eos": 1}, "ignore_eos"),
    ({"ignore_eos": "true"}, "ignore_eos"),
    ({"n": 0}, "n"),
    ({"n": -1}, "n"),
    ({"n": 17}, "n"),
    ({"n": 1.0}, "n"),
    ({"n": True}, "n"),
    ({"n": "2"}, "n"),
    ({"stop": ""}, "stop"),
    ({"stop": 5}, "stop"),
    ({"stop": {}}, "stop"),
    ({"stop": True}, "stop"),
    ({"stop": "x" * 513}, "stop"),
    ({"stop": HALF}, "stop"),
    ({"stop": ["a", "b", ""]}, "stop[2]"),
    ({"stop": ["a", None]}, "stop[1]"),
    ({"stop": [1]}, "stop[0]"),
    ({"stop": [["a"]]}, "stop[0]"),
    ({"stop": ["x" * 513]}, "stop[0]"),
    ({"stop": [HALF]}, "stop[0]"),
    ({"stop": ["x"] * 17}, "stop"),
    ({"stream": 1}, "stream"),
    ({"stream": "true"}, "stream"),
    ({"stream": []}, "stream"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream_options": {}}, "stream_options"),
    ({"stream": False, "stream_options": {"include_usage": False}}, "stream_options"),
    ({"stream": True, "stream_options": []}, "stream_options"),
    ({"stream": True, "stream_options": True}, "stream_options"),
    ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ({"stream": True, "stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation"),
    ({"stream": True, "stream_options": {"include_obfuscation": 0}}, "stream_options.include_obfuscation"),
    ({"stream": True, "stream_options": {"usage": True}}, "stream_options.usage"),
    ({"metadata": []}, "metadata"),
    ({"metadata": "task"}, "metadata"),
    ({"metadata": {"a": 1}}, "metadata.a"),
    ({"metadata": {"a": None}}, "metadata.a"),
    ({"metadata": {"a": {"b": "c"}}}, "metadata.a"),
    ({"metadata": {"a": "x" * 513}}, "metadata.a"),
    ({"metadata": {"a": HALF}}, "metadata.a"),
    ({"metadata": {"k" * 65: "x"}}, "metadata"),
    ({"metadata": {HALF: "x"}}, "metadata"),
    ({"metadata": {HALF: 1}}, "metadata"),
    ({"metadata": {str(key): "x" for key in range(17)}}, "metadata"),
    ({"metadata": {"step": "think"}}, "metadata.step"),
    ({"metadata": {"criticality": "high"}}, "metadata.criticality"),
    ({"metadata": {"cache": "on"}}, "metadata.cache"),
    ({"metadata": {"privacy": "local"}}, "metadata.privacy"),
    ({"metadata": {"task": "t" * 129}}, "metadata.task"),
    ({"metadata": {"task": ""}}, "metadata.task"),
    ({"metadata": {"task": "a\nb"}}, "metadata.task"),
    ({"metadata": {"timeout_s": "0"}}, "metadata.timeout_s"),
    ({"metadata": {"timeout_s": "soon"}}, "metadata.timeout_s"),
    ({"metadata": {"timeout_s": 30}}, "metadata.timeout_s"),
    ({"service_tier": "turbo"}, "service_tier"),
    ({"service_tier": HALF}, "service_tier"),
    ({"service_tier": 1}, "service_tier"),
    ({"temprature": 1}, "temprature"),
    ({"max_token": 5}, "max_token"),
    ({"": 1}, ""),
    ({"=text": 1}, "=text"),
    ({HALF: 1}, "\\ud83d"),
    ({"x" * 100_000: 1}, "x" * 64 + "…"),
]

CHAT: list[tuple[dict[str, Any], str]] = [
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": {}}, "messages"),
    ({"messages": "hello"}, "messages"),
    ({"messages": [user("x")] * 2049}, "messages"),
    ({"messages": [user([text("x")] * 1000)] * 9}, "messages"),
    ({"messages": [assistant(tool_calls=[call()] * 128)] * 65}, "messages"),
    ({"messages": [None]}, "messages[0].role"),
    ({"messages": ["hello"]}, "messages[0].role"),
    ({"messages": [[]]}, "messages[0].role"),
    ({"messages": [{}]}, "messages[0].role"),
    ({"messages": [{"content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": None, "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "User", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": ["user"], "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": {}, "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "function", "name": "f", "content": "x"}]}, "messages[0].role"),
    ({"messages": [user("x"), {"role": "bot", "content": "x"}]}, "messages[1].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "system"}]}, "messages[0].content"),
    ({"messages": [{"role": "developer"}]}, "messages[0].content"),
    ({"messages": [{"role": "tool", "tool_call_id": "c"}]}, "messages[0].content"),
    ({"messages": [user(5)]}, "messages[0].content"),
    ({"messages": [user(content=True)]}, "messages[0].content"),
    ({"messages": [user({"type": "text", "text": "x"})]}, "messages[0].content"),
    ({"messages": [user([])]}, "messages[0].content"),
    ({"messages": [user(HALF)]}, "messages[0].content"),
    ({"messages": [user("x" * 1000 + HALF)]}, "messages[0].content"),
    ({"messages": [user([text("x")] * 1025)]}, "messages[0].content"),
    ({"messages": [user(["x"])]}, "messages[0].content[0]"),
    ({"messages": [user([None])]}, "messages[0].content[0]"),
    ({"messages": [user([{}])]}, "messages[0].content[0]"),
    ({"messages": [user([{"text": "x"}])]}, "messages[0].content[0]"),
    (
        {"messages": [user([text("x"), {"type": "image_url", "image_url": {"url": "data:,"}}])]},
        "messages[0].content[1].image_url.url",
    ),
    ({"messages": [user([{"type": "image_url"}])]}, "messages[0].content[0].image_url"),
    ({"messages": [user([{"type": "image_url", "image_url": {"url": 1}}])]}, "messages[0].content[0].image_url.url"),
    ({"messages": [user([{"type": "input_audio", "input_audio": {}}])]}, "messages[0].content[0]"),
    ({"messages": [user([{"type": "file", "file": {}}])]}, "messages[0].content[0]"),
    ({"messages": [user([{"type": "refusal", "refusal": "x"}])]}, "messages[0].content[0]"),
    ({"messages": [user([{"type": ["text"], "text": "x"}])]}, "messages[0].content[0]"),
    ({"messages": [user([{"type": "text"}])]}, "messages[0].content[0].text"),
    ({"messages": [user([text(None)])]}, "messages[0].content[0].text"),
    ({"messages": [user([text("a"), text(5)])]}, "messages[0].content[1].text"),
    ({"messages": [user([text(HALF)])]}, "messages[0].content[0].text"),
    ({"messages": [user([text("x", cache_control={"type": "ephemeral"})])]}, "messages[0].content[0].cache_control"),
    ({"messages": [user("x", nam="ann")]}, "messages[0].nam"),
    ({"messages": [user("x", name=1)]}, "messages[0].name"),
    ({"messages": [user("x", name="")]}, "messages[0].name"),
    ({"messages": [user("x", name="n" * 65)]}, "messages[0].name"),
    ({"messages": [user("x", name=HALF)]}, "messages[0].name"),
    ({"messages": [user("x", tool_calls=[])]}, "messages[0].tool_calls"),
    ({"messages": [user("x", tool_call_id="c")]}, "messages[0].tool_call_id"),
    ({"messages": [{"role": "system", "content": [{"type": "image_url"}]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
    ({"messages": [{"role": "tool", "content": "x", "tool_call_id": None}]}, "messages[0].tool_call_id"),
    ({"messages": [{"role": "tool", "content": "x", "tool_call_id": ""}]}, "messages[0].tool_call_id"),
    ({"messages": [{"role": "tool", "content": "x", "tool_call_id": 1}]}, "messages[0].tool_call_id"),
    ({"messages": [assistant(content=1)]}, "messages[0].content"),
    ({"messages": [assistant(content=[{"type": "output_text", "text": "x"}])]}, "messages[0].content[0]"),
    ({"messages": [assistant(content=[{"type": "refusal"}])]}, "messages[0].content[0].refusal"),
    ({"messages": [assistant(refusal=1)]}, "messages[0].refusal"),
    ({"messages": [assistant(audio={"id": "a"})]}, "messages[0].audio"),
    ({"messages": [assistant(function_call={"name": "f", "arguments": ""})]}, "messages[0].function_call"),
    ({"messages": [assistant(tool_calls={})]}, "messages[0].tool_calls"),
    ({"messages": [assistant(tool_calls=[call()] * 129)]}, "messages[0].tool_calls"),
    ({"messages": [assistant(tool_calls=[1])]}, "messages[0].tool_calls[0]"),
    ({"messages": [assistant(tool_calls=[call(type="custom")])]}, "messages[0].tool_calls[0]"),
    ({"messages": [assistant(tool_calls=[{"id": "c", "type": "function"}])]}, "messages[0].tool_calls[0].function"),
    ({"messages": [assistant(tool_calls=[call(id=None)])]}, "messages[0].tool_calls[0].id"),
    ({"messages": [assistant(tool_calls=[call(place=0)])]}, "messages[0].tool_calls[0].place"),
    (
        {"messages": [assistant(tool_calls=[call(), call(function={"name": "f", "arguments": {}})])]},
        "messages[0].tool_calls[1].function.arguments",
    ),
    (
        {"messages": [assistant(tool_calls=[call(function={"name": "", "arguments": ""})])]},
        "messages[0].tool_calls[0].function.name",
    ),
    ({"prompt": "x"}, "prompt"),
    ({"echo": True}, "echo"),
    ({"best_of": 1}, "best_of"),
    ({"suffix": None}, "suffix"),
    ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ({"max_completion_tokens": -1}, "max_completion_tokens"),
    ({"max_completion_tokens": "5"}, "max_completion_tokens"),
    ({"max_completion_tokens": 5.5}, "max_completion_tokens"),
    ({"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens"),
    ({"min_tokens": 7, "max_completion_tokens": 6}, "min_tokens"),
    ({"logprobs": 1}, "logprobs"),
    ({"logprobs": 5}, "logprobs"),
    ({"logprobs": "true"}, "logprobs"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"logprobs": False, "top_logprobs": 3}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": True}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 2.0}, "top_logprobs"),
    ({"functions": [{"name": "f"}]}, "functions"),
    ({"functions": "f"}, "functions"),
    ({"function_call": {"name": "f"}}, "function_call"),
    ({"function_call": "f"}, "function_call"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": {}}, "response_format.type"),
    ({"response_format": "json"}, "response_format.type"),
    ({"response_format": {"type": "text", "schema": {}}}, "response_format.schema"),
    ({"modalities": ["text", "audio"]}, "modalities"),
    ({"modalities": []}, "modalities"),
    ({"modalities": ["video"]}, "modalities[0]"),
    ({"modalities": "text"}, "modalities"),
    ({"audio": {"voice": "alloy", "format": "wav"}}, "audio"),
    ({"audio": False}, "audio"),
    ({"moderation": {"model": "omni-moderation-latest"}}, "moderation"),
    ({"web_search_options": {}}, "web_search_options"),
    ({"reasoning_effort": "extreme"}, "reasoning_effort"),
    ({"reasoning_effort": 1}, "reasoning_effort"),
    ({"chat_template_kwargs": []}, "chat_template_kwargs"),
    ({"chat_template_kwargs": {"a-b": 1}}, "chat_template_kwargs"),
    ({"chat_template_kwargs": {HALF: 1}}, "chat_template_kwargs"),
    ({"chat_template_kwargs": {f"v{i}": 1 for i in range(65)}}, "chat_template_kwargs"),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
    ({"chat_template_kwargs": {"bos_token": "x"}}, "chat_template_kwargs.bos_token"),
    ({"chat_template_kwargs": {"x": 2**63}}, "chat_template_kwargs.x"),
    ({"chat_template_kwargs": {"x": [0] * 10_000}}, "chat_template_kwargs.x"),
    ({"chat_template_kwargs": {"x": [{"y": float("inf")}]}}, "chat_template_kwargs.x"),
    ({"chat_template_kwargs": {"x": {HALF: 1}}}, "chat_template_kwargs.x"),
    ({"chat_template_kwargs": {"x": [HALF]}}, "chat_template_kwargs.x"),
    ({"chat_template": "{{ x }}"}, "chat_template"),
    ({"guided_json": {}}, "guided_json"),
]

COMPLETION: list[tuple[dict[str, Any], str]] = [
    ({"prompt": None}, "prompt"),
    ({"prompt": ""}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": 5}, "prompt"),
    ({"prompt": {}}, "prompt"),
    ({"prompt": HALF}, "prompt"),
    ({"prompt": ["a", ""]}, "prompt[1]"),
    ({"prompt": ["a", 5]}, "prompt[1]"),
    ({"prompt": [None]}, "prompt[0]"),
    ({"prompt": [1.5]}, "prompt[0]"),
    ({"prompt": ["a", HALF]}, "prompt[1]"),
    ({"prompt": ["a", ["b"]]}, "prompt[1]"),
    ({"prompt": ["a"] * 129}, "prompt"),
    ({"prompt": ["a"] * 9, "n": 16}, "prompt"),
    ({"prompt": [1, "a"]}, "prompt[1]"),
    ({"prompt": [1, -2]}, "prompt[1]"),
    ({"prompt": [1, 2.0]}, "prompt[1]"),
    ({"prompt": [True]}, "prompt[0]"),
    ({"prompt": [2**31]}, "prompt[0]"),
    ({"prompt": [1] * (2**20 + 1)}, "prompt"),
    ({"prompt": [[]]}, "prompt[0]"),
    ({"prompt": [[1], []]}, "prompt[1]"),
    ({"prompt": [[1], [2, "x"]]}, "prompt[1][1]"),
    ({"prompt": [[1], 2]}, "prompt[1]"),
    ({"prompt": [[[1]]]}, "prompt[0][0]"),
    ({"messages": [user("x")]}, "messages"),
    ({"max_completion_tokens": 5}, "max_completion_tokens"),
    ({"suffix": "end"}, "suffix"),
    ({"suffix": ""}, "suffix"),
    ({"echo": 1}, "echo"),
    ({"echo": True, "logprobs": 0}, "echo"),
    ({"echo": True, "logprobs": 5}, "echo"),
    ({"logprobs": True}, "logprobs"),
    ({"logprobs": -1}, "logprobs"),
    ({"logprobs": 21}, "logprobs"),
    ({"logprobs": "5"}, "logprobs"),
    ({"best_of": 2}, "best_of"),
    ({"best_of": 2, "n": 3}, "best_of"),
    ({"best_of": 0}, "best_of"),
    ({"best_of": 17}, "best_of"),
    ({"min_tokens": 17}, "min_tokens"),  # above the default of max_tokens
    ({"top_logprobs": 1}, "top_logprobs"),
    ({"tools": []}, "tools"),
]


def name(case: object) -> str:
    return ascii(case)[:80]


def check(refusal: InvalidRequest, param: str) -> None:
    assert refusal.status == 400
    assert refusal.param == param
    assert refusal.message.startswith(f"'{param}' ")
    assert refusal.message.endswith((".", "?"))
    assert len(refusal.message) < 400
    (refusal.message + str(refusal.param)).encode()  # it goes out as UTF-8


@pytest.mark.parametrize(("fields", "param"), SHARED + CHAT, ids=name)
def test_a_bad_chat_body_is_refused_by_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        parse_chat({"model": "local", "messages": [user("hello")], **fields}, {}, "r1")
    check(refusal.value, param)


@pytest.mark.parametrize(("fields", "param"), SHARED + COMPLETION, ids=name)
def test_a_bad_completion_body_is_refused_by_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        parse_completion({"model": "local", "prompt": "Once", **fields}, {}, "r1")
    check(refusal.value, param)


@pytest.mark.parametrize("body", [None, [], "x", 1, True, 1.5], ids=name)
def test_a_body_that_is_no_object_is_refused(body: object) -> None:
    for parse in (parse_chat, parse_completion):
        with pytest.raises(InvalidRequest, match="The body must be an object") as refusal:
            parse(body, {}, "r1")
        assert refusal.value.param is None


@pytest.mark.parametrize("field", ["model", "messages"])
def test_what_is_required_must_be_there(field: str) -> None:
    body = {"model": "local", "messages": [user("hello")]}
    del body[field]
    with pytest.raises(InvalidRequest, match=f"'{field}' is required"):
        parse_chat(body, {}, "r1")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"temperature": 3}, "'temperature' must be at most 2, not 3."),
        ({"n": "2"}, "'n' must be an integer, not '2'."),
        ({"n": True}, "'n' must be an integer, not true."),
        ({"max_tokens": HUGE}, "'max_tokens' must be at most 2147483647, not an integer of more than 18 digits."),
        ({"stream": "yes"}, "'stream' must be true or false, not 'yes'."),
        (
            {"service_tier": "x"},
            "'service_tier' must be 'auto', 'default', 'flex', 'scale', 'priority' or 'fast', not 'x'.",
        ),
        ({"max_token": 5}, "'max_token' is not a known field. Did you mean 'max_tokens'?"),
        ({"repeat_penalty": 1.1}, "'repeat_penalty' is not a known field. Did you mean 'repetition_penalty'?"),
        ({"zzz": 5}, "'zzz' is not a known field."),
        ({"stop": ["a"] * 17}, "'stop' must have at most 16 items, not 17."),
        ({"messages": [user("x", nmae="a")]}, "'messages[0].nmae' is not a known field. Did you mean 'name'?"),
        (
            {"messages": [user([{"type": "input_audio"}])]},
            "'messages[0].content[0]' must be a part of type 'text' or 'image_url': audio and files are not read.",
        ),
        (
            {"max_tokens": 5, "max_completion_tokens": 6},
            "'max_tokens' (5) and 'max_completion_tokens' (6) differ; send the second only.",
        ),
    ],
    ids=name,
)
def test_messages_say_what_is_wrong_and_what_to_do(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        parse_chat({"model": "local", "messages": [user("hello")], **fields}, {}, "r1")
    assert refusal.value.message == message


def test_a_wrong_hint_header_is_refused_by_its_name() -> None:
    body = {"model": "local", "messages": [user("hello")], "prompt": "x"}
    for parse, wanted in ((parse_chat, "messages"), (parse_completion, "prompt")):
        with pytest.raises(InvalidRequest) as refusal:
            parse({"model": "m", wanted: body[wanted]}, {"x-appliance-step": "think"}, "r1")
        assert refusal.value.param == "x-appliance-step"


@pytest.mark.parametrize(
    "fields",
    [
        {"stop": [1] * 100_000},
        {"messages": [1] * 100_000},
        {"messages": [user([1] * 100_000)]},
        {"messages": [assistant(tool_calls=[1] * 100_000)]},
        {"logit_bias": {f"x{i}": "x" for i in range(100_000)}},
        {"metadata": {str(i): 1 for i in range(100_000)}},
        {"modalities": [1] * 100_000},
        {"tools": [1] * 100_000},
        {f"x{i}": 1 for i in range(100_000)},
    ],
    ids=name,
)
def test_a_body_of_many_faults_is_refused_at_the_first_of_them(fields: dict[str, Any]) -> None:
    """pydantic would collect them all, at a hundred times the body's own size."""
    with pytest.raises(ValidationError) as faults:
        ChatCompletionRequest.model_validate({"model": "local", "messages": [user("hello")], **fields})
    assert faults.value.error_count() == 1
