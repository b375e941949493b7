"""The stand-in for a frontier API says what the official clients understand, misbehaves as told, and bills truly."""

import json
import signal
from collections.abc import Iterator
from typing import Any, Literal

import anthropic
import httpx
import openai
import pytest
from pydantic import BaseModel

from tests.integration.daemon_fixture import wait_until
from tests.integration.stand_in_fixture import StandIn

KEY = "sk-of-the-stand-in"
CHAT = "/v1/chat/completions"
MESSAGES = "/v1/messages"
BOTH = pytest.mark.parametrize("path", [CHAT, MESSAGES])
HELLO: Any = [{"role": "user", "content": "Hello to you"}]
ANSWER = "You said: Hello to you"  # five words
PROMPT_TOKENS = 3 + 3
CITY = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}
TOOLS: Any = [
    {"type": "function", "function": {"name": "weather", "parameters": CITY}},
    {"type": "function", "function": {"name": "time"}},
]
ANTHROPIC_TOOLS: Any = [
    {"name": "weather", "input_schema": CITY},
    {"name": "time", "input_schema": {"type": "object"}},
]


class Node(BaseModel):
    colour: Literal["red", "green"]
    count: int
    inner: "Node | None"
    names: list[str]


@pytest.fixture(scope="module")
def running() -> Iterator[StandIn]:
    stand_in = StandIn(KEY)
    try:
        yield stand_in
    finally:
        assert stand_in.close() == 0


@pytest.fixture
def stand_in(running: StandIn) -> StandIn:
    running.reset()
    return running


@pytest.fixture
def chat(stand_in: StandIn) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{stand_in.url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture
def claude(stand_in: StandIn) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=stand_in.url, api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture
def raw(stand_in: StandIn) -> Iterator[httpx.Client]:
    """Sends what it is told, with every API's key, and retries nothing."""
    headers = {"authorization": f"Bearer {KEY}", "x-api-key": KEY, "anthropic-version": "2023-06-01"}
    with httpx.Client(base_url=stand_in.url, headers=headers, timeout=10, trust_env=False, verify=False) as client:
        yield client


def body(*, stream: bool = True, **fields: object) -> dict[str, Any]:
    """Good for both APIs."""
    return {"model": "m", "messages": HELLO, "max_tokens": 100, "stream": stream, **fields}


def received(client: httpx.Client, path: str, **fields: Any) -> tuple[bytes, Exception | None]:
    """What came of a 200's body, and what ended it early."""
    content = b""
    with client.stream("POST", path, json=body(**fields)) as response:
        assert response.status_code == 200
        try:
            for part in response.iter_raw():
                content += part
        except httpx.TransportError as error:
            return content, error
    return content, None


def last_request(stand_in: StandIn) -> dict[str, Any]:
    request: dict[str, Any] = stand_in.journal()["requests"][-1]
    return request


def usd(prompt: int, completion: int) -> float:
    """What the stand-in bills at its prices when it is not told any."""
    return (prompt * 1.0 + completion * 2.0) / 1e6


# --- OpenAI's API ---


def test_a_chat_repeats_what_it_was_told(chat: openai.OpenAI, stand_in: StandIn) -> None:
    completion = chat.chat.completions.create(model="some-model", messages=HELLO)
    assert completion.model == "some-model"
    assert completion.choices[0].message.content == ANSWER
    assert completion.choices[0].finish_reason == "stop"
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (PROMPT_TOKENS, 5)
    request = last_request(stand_in)
    assert (request["path"], request["status"], request["fault"]) == (CHAT, 200, None)
    assert request["body"]["messages"] == HELLO
    assert request["headers"]["authorization"] == f"Bearer {KEY}"
    assert request["usage"]["total_tokens"] == PROMPT_TOKENS + 5


def test_a_streamed_chat_comes_word_by_word(chat: openai.OpenAI) -> None:
    chunks = list(
        chat.chat.completions.create(
            model="m", messages=HELLO, stream=True, stream_options={"include_usage": True}, logprobs=True
        )
    )
    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    said = [choice for choice in choices if choice.delta.content]
    assert [choice.delta.content for choice in said] == ["You", " said:", " Hello", " to", " you"]
    assert choices[0].delta.role == "assistant"
    for choice in said:
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        assert choice.logprobs.content[0].token == choice.delta.content
    assert [choice.finish_reason for choice in choices if choice.finish_reason] == ["stop"]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 5


def test_a_stream_tells_its_usage_only_when_asked(chat: openai.OpenAI, stand_in: StandIn) -> None:
    chunks = list(chat.chat.completions.create(model="m", messages=HELLO, stream=True))
    assert not any(chunk.usage for chunk in chunks)
    assert last_request(stand_in)["usage"] is None
    assert last_request(stand_in)["billed_usd"] == pytest.approx(usd(PROMPT_TOKENS, 5))


def test_a_chat_keeps_to_its_limits(chat: openai.OpenAI) -> None:
    short = chat.chat.completions.create(model="m", messages=HELLO, max_completion_tokens=3)
    assert short.choices[0].message.content == "You said: Hello"
    assert short.choices[0].finish_reason == "length"
    stopped = chat.chat.completions.create(model="m", messages=HELLO, stop=["you", " to"])
    assert stopped.choices[0].message.content == "You said: Hello"
    assert stopped.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("count", [1, 2])
def test_a_chat_calls_the_tools_offered(chat: openai.OpenAI, stand_in: StandIn, count: int) -> None:
    stand_in.control(calls=count)
    asked: Any = {"model": "m", "messages": HELLO, "tools": TOOLS}
    choice = chat.chat.completions.create(**asked).choices[0]
    assert choice.finish_reason == "tool_calls"
    calls: Any = choice.message.tool_calls
    assert [call.function.name for call in calls] == ["weather", "time"][:count]
    assert json.loads(calls[0].function.arguments) == {"city": "text"}
    assert len({call.id for call in calls}) == count
    with chat.chat.completions.stream(**asked) as stream:
        streamed: Any = stream.get_final_completion().choices[0].message.tool_calls
    assert [(call.function.name, call.function.arguments) for call in streamed] == [
        (call.function.name, call.function.arguments) for call in calls
    ]


def test_a_chat_calls_as_it_is_told(chat: openai.OpenAI, stand_in: StandIn) -> None:
    stand_in.control(calls=2)

    def called(messages: Any = HELLO, **fields: Any) -> list[str]:
        choice = chat.chat.completions.create(model="m", messages=messages, tools=TOOLS, **fields).choices[0]
        calls: Any = choice.message.tool_calls or []
        return [call.function.name for call in calls]

    assert called(parallel_tool_calls=False) == ["weather"]
    assert called(tool_choice={"type": "function", "function": {"name": "time"}}) == ["time"]
    assert called(tool_choice="none") == []
    call = {"id": "1", "type": "function", "function": {"name": "time", "arguments": "{}"}}
    history = [
        *HELLO,
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "9"},
    ]
    assert called(history) == []
    with pytest.raises(openai.BadRequestError, match="tool_choice"):
        called(tool_choice={"type": "function", "function": {"name": "none of them"}})


def test_a_chat_has_the_form_asked_for(chat: openai.OpenAI) -> None:
    parsed = chat.chat.completions.parse(model="m", messages=HELLO, response_format=Node).choices[0].message.parsed
    assert parsed is not None
    assert parsed.colour == "red"
    assert parsed.inner is not None  # `anyOf`'s first, as often as that ends
    form: Any = {"type": "json_object"}
    plain = chat.chat.completions.create(model="m", messages=HELLO, response_format=form)
    assert json.loads(plain.choices[0].message.content or "") == {"answer": ANSWER}


def test_a_chat_shows_its_reasoning(chat: openai.OpenAI, stand_in: StandIn) -> None:
    stand_in.control(reasoning="Let me think", text="Done.")
    message: Any = chat.chat.completions.create(model="m", messages=HELLO)
    assert message.choices[0].message.reasoning_content == "Let me think"
    assert message.choices[0].message.content == "Done."
    assert message.usage.completion_tokens == 4
    assert message.usage.completion_tokens_details.reasoning_tokens == 3
    chunks: Any = list(chat.chat.completions.create(model="m", messages=HELLO, stream=True))
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert [d.reasoning_content for d in deltas if hasattr(d, "reasoning_content")] == ["Let", " me", " think"]


def test_azure_has_its_own_path_and_key(stand_in: StandIn) -> None:
    asked: Any = {"azure_endpoint": stand_in.url, "api_version": "2024-10-21", "max_retries": 0}
    with openai.AzureOpenAI(**asked, api_key=KEY) as client:
        completion = client.chat.completions.create(model="my-deployment", messages=HELLO)
        assert completion.model == "my-deployment"
    request = stand_in.journal()["requests"][0]
    assert request["path"] == "/openai/deployments/my-deployment/chat/completions"
    assert request["query"] == "api-version=2024-10-21"
    with openai.AzureOpenAI(**asked, api_key="wrong") as client, pytest.raises(openai.AuthenticationError):
        client.chat.completions.create(model="my-deployment", messages=HELLO)


# --- Anthropic's API ---


def test_a_message_repeats_what_it_was_told(claude: anthropic.Anthropic, stand_in: StandIn) -> None:
    message = claude.messages.create(model="claude", max_tokens=50, messages=HELLO, system="Be brief")
    assert [(block.type, getattr(block, "text", "")) for block in message.content] == [("text", ANSWER)]
    assert message.model == "claude"
    assert message.stop_reason == "end_turn"
    assert (message.usage.input_tokens, message.usage.output_tokens) == (PROMPT_TOKENS + 2 + 3, 5)
    assert last_request(stand_in)["usage"]["output_tokens"] == 5


def test_a_streamed_message_is_the_plain_one_in_pieces(claude: anthropic.Anthropic, stand_in: StandIn) -> None:
    stand_in.control(reasoning="Let me think", cached=2)
    asked: Any = {"model": "claude", "max_tokens": 50, "messages": HELLO}
    plain = claude.messages.create(**asked)
    with claude.messages.stream(**asked) as stream:
        texts = list(stream.text_stream)
        streamed = stream.get_final_message()
    assert texts == ["You", " said:", " Hello", " to", " you"]
    assert [block.type for block in streamed.content] == ["thinking", "text"]
    assert streamed.model_dump(exclude={"id", "usage"}) == plain.model_dump(exclude={"id", "usage"})
    for usage in (plain.usage, streamed.usage):
        assert (usage.input_tokens, usage.cache_read_input_tokens) == (PROMPT_TOKENS - 2, 2)
        assert usage.output_tokens == 8
    kinds = [event.type for event in claude.messages.create(**asked, stream=True)]
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 2
    assert kinds.count("content_block_delta") == 3 + 1 + 5  # with the signature


def test_a_message_keeps_to_its_limits(claude: anthropic.Anthropic) -> None:
    short = claude.messages.create(model="m", max_tokens=2, messages=HELLO)
    assert (short.stop_reason, short.usage.output_tokens) == ("max_tokens", 2)
    stopped = claude.messages.create(model="m", max_tokens=9, messages=HELLO, stop_sequences=[" to"])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", " to")


@pytest.mark.parametrize("count", [1, 2])
def test_a_message_uses_the_tools_offered(claude: anthropic.Anthropic, stand_in: StandIn, count: int) -> None:
    stand_in.control(calls=count)
    asked: Any = {"model": "m", "max_tokens": 50, "messages": HELLO, "tools": ANTHROPIC_TOOLS}
    with claude.messages.stream(**asked) as stream:
        streamed = stream.get_final_message()
    plain = claude.messages.create(**asked)
    for message in (plain, streamed):
        uses: Any = message.content
        assert [(use.name, use.input) for use in uses] == [("weather", {"city": "text"}), ("time", {})][:count]
        assert message.stop_reason == "tool_use"
    one = claude.messages.create(**asked, tool_choice={"type": "auto", "disable_parallel_tool_use": True})
    assert len(one.content) == 1
    forced = claude.messages.create(**asked, tool_choice={"type": "tool", "name": "time"})
    assert [getattr(use, "name", None) for use in forced.content] == ["time"]
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "rain"}]}
    asked["messages"] = [*HELLO, {"role": "assistant", "content": plain.content}, result]
    assert [block.type for block in claude.messages.create(**asked).content] == ["text"]


def test_a_message_has_the_form_asked_for(claude: anthropic.Anthropic) -> None:
    parsed = claude.messages.parse(model="m", max_tokens=99, messages=HELLO, output_format=Node).parsed_output
    assert parsed is not None
    assert parsed.colour == "red"


# --- Keys, models, requests that are refused ---


def test_both_clients_list_the_models(chat: openai.OpenAI, claude: anthropic.Anthropic) -> None:
    names = [model.id for model in chat.models.list()]
    assert names
    assert names == [model.id for model in claude.models.list()]


def test_a_wrong_key_is_refused_in_the_shape_of_the_api(stand_in: StandIn) -> None:
    with (
        openai.OpenAI(base_url=f"{stand_in.url}/v1", api_key="wrong", max_retries=0) as chat,
        pytest.raises(openai.AuthenticationError) as refused,
    ):
        chat.chat.completions.create(model="m", messages=HELLO)
    assert refused.value.code == "invalid_api_key"
    with (
        anthropic.Anthropic(base_url=stand_in.url, api_key="wrong", max_retries=0) as claude,
        pytest.raises(anthropic.AuthenticationError, match="authentication_error"),
    ):
        claude.messages.create(model="m", max_tokens=9, messages=HELLO)
    assert [request["status"] for request in stand_in.journal()["requests"]] == [401, 401]
    assert stand_in.journal()["billed_usd"] == 0


def test_a_request_that_the_api_does_not_take_is_refused(raw: httpx.Client, stand_in: StandIn) -> None:
    assert raw.post(CHAT, content=b"{no json").status_code == 400
    assert raw.post(CHAT, json={"model": "m", "messages": []}).status_code == 400
    assert raw.post(CHAT, json={"messages": HELLO}).status_code == 400
    without_limit = raw.post(MESSAGES, json={"model": "m", "messages": HELLO})
    assert (without_limit.status_code, without_limit.json()["error"]["type"]) == (400, "invalid_request_error")
    assert raw.post("/v1/nothing", json={}).status_code == 404
    endless = {"$ref": "#"}
    form = {
        "type": "json_schema",
        "json_schema": {"schema": {"type": "object", "required": ["a"], "properties": {"a": endless}}},
    }
    assert raw.post(CHAT, json=body(response_format=form)).status_code == 400
    assert stand_in.journal()["billed_usd"] == 0


def test_a_mistake_in_the_control_is_refused(raw: httpx.Client) -> None:
    assert raw.put("/_control", json={"txet": "Hello."}).status_code == 400
    assert raw.post("/_control/faults", json={"kind": "no such fault"}).status_code == 400


def test_a_connection_is_kept_and_counted_once(raw: httpx.Client, stand_in: StandIn) -> None:
    before = stand_in.journal()["connections"]
    for stream in (True, False, True):
        raw.post(CHAT, json=body(stream=stream))
    assert stand_in.journal()["connections"] == before + 1


# --- Faults ---


@BOTH
@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500, 502, 503, 529])
def test_it_answers_with_the_status_it_is_told(raw: httpx.Client, stand_in: StandIn, path: str, status: int) -> None:
    stand_in.fault("status", status=status, headers={"retry-after": "2"})
    response = raw.post(path, json=body())
    assert response.status_code == status
    assert response.headers["retry-after"] == "2"
    assert response.json()["error"]["message"]
    assert response.json().get("type") == ("error" if path == MESSAGES else None)
    request = last_request(stand_in)
    assert (request["status"], request["fault"], request["billed_usd"]) == (status, "status", 0)


def test_it_redirects_and_fails_with_a_body_of_ones_own(raw: httpx.Client, stand_in: StandIn) -> None:
    stand_in.fault("status", status=307, headers={"location": "/elsewhere"})
    assert raw.post(CHAT, json=body()).headers["location"] == "/elsewhere"
    stand_in.fault("status", status=402, body={"detail": "pay"})
    assert raw.post(CHAT, json=body()).json() == {"detail": "pay"}
    stand_in.fault("status", status=502, body="<html>", headers={"Content-Type": "text/html"})
    page = raw.post(CHAT, json=body())
    assert (page.text, page.headers["content-type"]) == ("<html>", "text/html")


def test_faults_come_in_order_and_as_often_as_told(raw: httpx.Client, stand_in: StandIn) -> None:
    stand_in.control(faults=[{"kind": "status", "status": 503, "times": 2}, {"kind": "none"}])
    stand_in.fault("status", status=429, times=-1)
    assert [raw.post(CHAT, json=body()).status_code for _ in range(6)] == [503, 503, 200, 429, 429, 429]
    stand_in.control(faults=[])
    assert raw.post(CHAT, json=body()).status_code == 200


@BOTH
@pytest.mark.parametrize("kind", ["slow_headers", "slow_body"])
@pytest.mark.parametrize("stream", [True, False])
def test_it_is_slow(raw: httpx.Client, stand_in: StandIn, path: str, kind: str, *, stream: bool) -> None:
    expected, _ = received(raw, path, stream=stream)
    stand_in.fault(kind, seconds=0.01)
    assert len(received(raw, path, stream=stream)[0]) == len(expected)
    stand_in.fault(kind, seconds=60)
    with pytest.raises(httpx.ReadTimeout):
        raw.post(path, json=body(stream=stream), timeout=0.1)


@BOTH
@pytest.mark.parametrize("kind", ["cut", "half_close"])
def test_it_breaks_off_a_stream(raw: httpx.Client, stand_in: StandIn, path: str, kind: str) -> None:
    stand_in.fault(kind, after=2)
    content, error = received(raw, path)
    assert isinstance(error, httpx.RemoteProtocolError)
    assert b" said:" in content
    assert b" Hello" not in content
    assert last_request(stand_in)["billed_usd"] == pytest.approx(usd(PROMPT_TOKENS, 2))


@BOTH
@pytest.mark.parametrize("kind", ["cut", "half_close"])
def test_it_breaks_off_a_plain_answer(raw: httpx.Client, stand_in: StandIn, path: str, kind: str) -> None:
    stand_in.fault(kind)
    content, error = received(raw, path, stream=False)
    assert isinstance(error, httpx.RemoteProtocolError)
    assert content
    assert last_request(stand_in)["billed_usd"] == pytest.approx(usd(PROMPT_TOKENS, 5))


def test_a_stream_that_breaks_off_before_its_first_word_is_not_billed(raw: httpx.Client, stand_in: StandIn) -> None:
    stand_in.fault("cut", after=0)
    content, error = received(raw, CHAT)
    assert content
    assert error
    assert last_request(stand_in)["billed_usd"] == 0


@BOTH
def test_it_drops_the_connection(raw: httpx.Client, stand_in: StandIn, path: str) -> None:
    stand_in.fault("drop")
    with pytest.raises(httpx.RemoteProtocolError, match="without sending a response"):
        raw.post(path, json=body())
    assert last_request(stand_in)["status"] is None


@BOTH
def test_it_ends_a_stream_without_saying_so(raw: httpx.Client, stand_in: StandIn, path: str) -> None:
    stand_in.fault("no_done")
    content, error = received(raw, path)
    assert error is None
    assert b" you" in content
    for ending in (b"[DONE]", b'"stop"', b"message_stop", b"message_delta"):
        assert ending not in content
    stand_in.fault("no_done")
    assert b'_reason": null' in received(raw, path, stream=False)[0]


@BOTH
@pytest.mark.parametrize("stream", [True, False])
def test_it_sends_garbage(raw: httpx.Client, stand_in: StandIn, path: str, *, stream: bool) -> None:
    stand_in.fault("garbage", after=2)
    content, error = received(raw, path, stream=stream)
    assert error is None
    assert b"data: {not json\n\n" in content
    with pytest.raises(UnicodeDecodeError):
        content.decode()
    assert last_request(stand_in)["billed_usd"] == pytest.approx(usd(PROMPT_TOKENS, 2) if stream else 0)


def test_it_reports_an_error_in_the_middle(
    chat: openai.OpenAI, claude: anthropic.Anthropic, raw: httpx.Client, stand_in: StandIn
) -> None:
    stand_in.fault("error_event", after=2, times=3)
    stream = chat.chat.completions.create(model="m", messages=HELLO, stream=True)
    with pytest.raises(openai.APIError, match="told to fail"):
        list(stream)
    events = claude.messages.create(model="m", max_tokens=9, messages=HELLO, stream=True)
    with pytest.raises(anthropic.APIStatusError, match="overloaded_error"):
        list(events)
    assert raw.post(CHAT, json=body(stream=False)).json()["error"]
    assert [request["billed_usd"] > 0 for request in stand_in.journal()["requests"]] == [True, True, False]


def test_it_finishes_with_an_error(raw: httpx.Client, stand_in: StandIn) -> None:
    stand_in.fault("finish_error", times=2)
    assert b'"finish_reason": "error"' in received(raw, CHAT)[0]
    assert b'"stop_reason": "error"' in received(raw, MESSAGES, stream=False)[0]


@BOTH
@pytest.mark.parametrize("stream", [True, False])
def test_it_tells_a_wrong_usage_and_bills_the_true_one(
    raw: httpx.Client, stand_in: StandIn, path: str, *, stream: bool
) -> None:
    stand_in.fault("wrong_usage", factor=10)
    received(raw, path, stream=stream, stream_options={"include_usage": True})
    request = last_request(stand_in)
    assert request["usage"]["output_tokens" if path == MESSAGES else "completion_tokens"] == 50
    assert request["billed_usd"] == pytest.approx(usd(PROMPT_TOKENS, 5))


@BOTH
@pytest.mark.parametrize("stream", [True, False])
def test_it_tells_no_usage(raw: httpx.Client, stand_in: StandIn, path: str, *, stream: bool) -> None:
    stand_in.fault("no_usage")
    content, _ = received(raw, path, stream=stream, stream_options={"include_usage": True})
    assert b"_tokens" not in content
    assert last_request(stand_in)["usage"] is None
    assert last_request(stand_in)["billed_usd"] == pytest.approx(usd(PROMPT_TOKENS, 5))


def test_it_gives_two_calls_one_id(chat: openai.OpenAI, stand_in: StandIn) -> None:
    stand_in.control(calls=2)
    stand_in.fault("duplicate_ids")
    calls: Any = chat.chat.completions.create(model="m", messages=HELLO, tools=TOOLS).choices[0].message.tool_calls
    assert [call.function.name for call in calls] == ["weather", "time"]
    assert calls[0].id == calls[1].id


@pytest.mark.parametrize("stream", [True, False])
def test_it_writes_arguments_that_are_no_json(raw: httpx.Client, stand_in: StandIn, *, stream: bool) -> None:
    stand_in.fault("bad_arguments", times=2)
    assert b"are" in received(raw, CHAT, stream=stream, tools=TOOLS)[0]
    assert b"are" in received(raw, MESSAGES, stream=stream, tools=ANTHROPIC_TOOLS)[0]


def test_it_calls_a_tool_that_was_not_offered(chat: openai.OpenAI, stand_in: StandIn) -> None:
    stand_in.fault("unknown_tool")
    calls: Any = chat.chat.completions.create(model="m", messages=HELLO, tools=TOOLS).choices[0].message.tool_calls
    assert [call.function.name for call in calls] == ["no_such_tool"]


def test_it_answers_with_nothing_or_with_a_page(raw: httpx.Client, stand_in: StandIn) -> None:
    stand_in.fault("empty")
    empty = raw.post(CHAT, json=body())
    assert (empty.status_code, empty.content) == (200, b"")
    stand_in.fault("html")
    page = raw.post(CHAT, json=body())
    assert (page.status_code, page.headers["content-type"].partition(";")[0]) == (200, "text/html")
    assert stand_in.journal()["billed_usd"] == 0


@pytest.mark.parametrize("stream", [True, False])
def test_it_sends_a_huge_line(raw: httpx.Client, stand_in: StandIn, *, stream: bool) -> None:
    stand_in.fault("huge_line", bytes=300_000)
    content, error = received(raw, CHAT, stream=stream)
    assert error is None
    assert max(map(len, content.split(b"\n"))) > 300_000


@BOTH
@pytest.mark.parametrize("stream", [True, False])
def test_it_talks_until_the_client_goes(raw: httpx.Client, stand_in: StandIn, path: str, *, stream: bool) -> None:
    stand_in.fault("endless")
    with raw.stream("POST", path, json=body(stream=stream)) as response:
        words = 0
        for part in response.iter_raw():
            words += part.count(b" more")
            if words > 500:
                break
    wait_until(lambda: last_request(stand_in) == last_request(stand_in), "it has noticed that the client is gone")
    assert last_request(stand_in)["billed_usd"] > usd(PROMPT_TOKENS, 500)


# --- The bill ---


def test_the_bill_is_the_sum_of_what_was_answered(
    chat: openai.OpenAI, claude: anthropic.Anthropic, stand_in: StandIn
) -> None:
    stand_in.control(prices={"input": 3.0, "cached_input": 0.3, "output": 15.0}, cached=4, reasoning="Hm hm")
    usage = chat.chat.completions.create(model="m", messages=HELLO).usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert (usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens) == (PROMPT_TOKENS, 4)
    claude.messages.create(model="m", max_tokens=9, messages=HELLO)
    stand_in.fault("status", status=500)
    with pytest.raises(openai.InternalServerError):
        chat.chat.completions.create(model="m", messages=HELLO)
    journal = stand_in.journal()
    each = (2 * 3.0 + 4 * 0.3 + 7 * 15.0) / 1e6
    assert [request["billed_usd"] for request in journal["requests"]] == pytest.approx([each, each, 0])
    assert journal["billed_usd"] == pytest.approx(2 * each)
    stand_in.reset()
    assert stand_in.journal()["requests"] == []
    assert stand_in.journal()["billed_usd"] == 0


# --- The process ---


def test_it_ends_at_once_on_sigterm_and_when_its_input_closes() -> None:
    for ends_by_signal in (True, False):
        stand_in = StandIn()
        try:
            stand_in.fault("endless")
            with httpx.stream("POST", stand_in.url + CHAT, json=body(), trust_env=False, verify=False) as response:
                next(response.iter_raw())
                if ends_by_signal:
                    stand_in.process.send_signal(signal.SIGTERM)
                    stand_in.process.wait(10)
                else:
                    assert stand_in.close() == 0
        finally:
            assert stand_in.close() == 0
