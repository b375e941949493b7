"""Events as OpenAI's answers, checked against the official client's own types, strictly and with nothing beside."""

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import BaseModel

from appliance.api import sse
from appliance.api.openai.chat_request import parse_chat
from appliance.api.openai.serialize import ChatSerializer, CompletionSerializer, Serializer
from appliance.errors import ContextLengthExceeded, EngineCrashed
from appliance.protocol import (
    ChatPrompt,
    Delta,
    Event,
    Failed,
    Finished,
    Message,
    ReasoningDelta,
    Request,
    Started,
    TextPart,
    TextPrompt,
    TokenLogprob,
)

CHAT = Request("r1", "auto", (ChatPrompt((Message("user", (TextPart("hi"),)),)),))
TEXT = Request("r1", "auto", (TextPrompt("Once"),))


def request(base: Request, **changes: Any) -> Request:
    fields = {name: getattr(base, name) for name in Request.__slots__}
    return Request(**{**fields, **changes})


def chat(**changes: Any) -> ChatSerializer:
    return ChatSerializer(request(CHAT, **changes), created=1_700_000_000, model="m", system_fingerprint="fp_1")


def completion(**changes: Any) -> CompletionSerializer:
    return CompletionSerializer(request(TEXT, **changes), created=1_700_000_000, model="m", system_fingerprint="fp_1")


def started(choice: int = 0, prompt_tokens: int = 10, cached_tokens: int = 0, **fields: Any) -> Started:
    return Started(choice, prompt_tokens, cached_tokens, queue_s=0.0, **fields)


HELLO: list[Event] = [started(cached_tokens=8), Delta(0, "Hel", 1), Delta(0, "lo", 1), Finished(0, "stop", 3)]


def chunks(serializer: Serializer, events: list[Event]) -> list[dict[str, Any]]:
    return [chunk for event in events for chunk in serializer.chunks(event)]


def strictly(kind: type[BaseModel], body: dict[str, Any]) -> Any:
    """`body` through JSON as the client's type; fails on a wrong type, a missing field or an unknown one."""
    parsed = kind.model_validate_json(sse.json_bytes(body), strict=True)
    assert parsed.model_dump(exclude_unset=True) == body
    unknown(parsed)
    return parsed


def unknown(parsed: object) -> None:
    """The client's types let unknown fields in; ours may have none."""
    if isinstance(parsed, BaseModel):
        assert not parsed.model_extra
        for value in parsed.__dict__.values():
            unknown(value)
    elif isinstance(parsed, list):
        for value in parsed:
            unknown(value)


def strict_completion_chunk(chunk: dict[str, Any]) -> None:
    """OpenAI sends null as the reason while a choice goes on, though the type it shares with whole answers has none."""
    choices = [{**choice, "finish_reason": choice["finish_reason"] or "stop"} for choice in chunk["choices"]]
    strictly(Completion, {**chunk, "choices": choices})


def token(text: bytes, logprob: float = -0.5, top: tuple[TokenLogprob, ...] = ()) -> TokenLogprob:
    return TokenLogprob(7, text, logprob, top)


USAGE = {
    "prompt_tokens": 10,
    "completion_tokens": 3,
    "total_tokens": 13,
    "prompt_tokens_details": {"cached_tokens": 8},
    "completion_tokens_details": {"reasoning_tokens": 0},
}


def test_a_whole_chat_answer() -> None:
    body = chat().whole(HELLO)
    strictly(ChatCompletion, body)
    assert body == {
        "id": "chatcmpl-r1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "m",
        "system_fingerprint": "fp_1",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": USAGE,
    }


THOUGHTFUL: list[Event] = [
    Started(0, 3, 0, 0.0),
    ReasoningDelta(0, "2 + ", 2),
    ReasoningDelta(0, "2", 1),
    Delta(0, "4", 1),
    Finished(0, "stop", 6),
]


def test_thoughts_stand_beside_the_answer() -> None:
    body = chat().whole(THOUGHTFUL)
    message = ChatCompletion.model_validate(body).choices[0].message
    assert (message.content, message.model_extra) == ("4", {"reasoning_content": "2 + 2"})
    assert body["usage"]["completion_tokens_details"] == {"reasoning_tokens": 3}
    history = parse_chat({"model": "m", "messages": [message.model_dump()]}, {}, "r2").prompts[0]
    assert history == ChatPrompt((Message("assistant", (TextPart("4"),), attributes={"reasoning_content": "2 + 2"}),))


def test_thoughts_are_streamed_before_the_answer() -> None:
    serializer = chat(stream=True)
    deltas = [chunk["choices"][0]["delta"] for event in THOUGHTFUL for chunk in serializer.chunks(event)]
    assert deltas[1:-1] == [{"reasoning_content": "2 + "}, {"reasoning_content": "2"}, {"content": "4"}]


def test_a_whole_answer_can_be_sent_back_as_history() -> None:
    message = ChatCompletion.model_validate(chat().whole(HELLO)).choices[0].message.model_dump()
    history = parse_chat({"model": "m", "messages": [message]}, {}, "r2").prompts[0]
    assert history == ChatPrompt((Message("assistant", (TextPart("Hello"),)),))


def test_a_chat_stream_opens_each_choice_with_its_role_and_closes_it_with_the_reason() -> None:
    seen = chunks(chat(stream=True), HELLO)
    for chunk in seen:
        strictly(ChatCompletionChunk, chunk)
    assert [chunk["choices"][0]["delta"] for chunk in seen] == [
        {"role": "assistant", "content": ""},
        {"content": "Hel"},
        {"content": "lo"},
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in seen] == [None, None, None, "stop"]
    assert all("usage" not in chunk for chunk in seen)
    heads = [{key: value for key, value in chunk.items() if key != "choices"} for chunk in seen]
    assert heads == [heads[0]] * 4
    assert heads[0]["object"] == "chat.completion.chunk"


def test_a_stream_that_asked_for_usage_ends_with_it() -> None:
    seen = chunks(chat(stream=True, include_usage=True), HELLO)
    for chunk in seen:
        strictly(ChatCompletionChunk, chunk)
    assert [chunk["usage"] for chunk in seen] == [None, None, None, None, USAGE]
    assert seen[-1]["choices"] == []


def test_usage_comes_after_the_last_of_several_choices() -> None:
    events: list[Event] = [
        started(0, cached_tokens=4),
        started(1, cached_tokens=10),
        Delta(1, "b", 1),
        Finished(1, "stop", 1),
        Delta(0, "a", 1),
        Finished(0, "length", 5),
    ]
    seen = chunks(chat(stream=True, include_usage=True, n=2), events)
    assert [chunk["choices"][0]["index"] for chunk in seen[:-1]] == [0, 1, 1, 1, 0, 0]
    assert [chunk["usage"] for chunk in seen[:-1]] == [None] * 6
    # The prompt counts once, and the second choice's share of the first's prefill is no saving.
    assert seen[-1]["usage"]["prompt_tokens"] == 10
    assert seen[-1]["usage"]["prompt_tokens_details"] == {"cached_tokens": 4}
    assert seen[-1]["usage"]["completion_tokens"] == 6


def test_a_whole_answer_has_its_choices_in_order_and_counts_each_prompt_once() -> None:
    events: list[Event] = []
    for choice in (3, 1, 0, 2):
        events += [
            started(choice, 10 + choice // 2, choice),
            Delta(choice, str(choice), 1),
            Finished(choice, "stop", 2),
        ]
    body = completion(prompts=(TextPrompt("a"), TextPrompt("b")), n=2).whole(events)
    strictly(Completion, body)
    assert [(choice["index"], choice["text"]) for choice in body["choices"]] == [(i, str(i)) for i in range(4)]
    assert body["usage"]["prompt_tokens"] == 10 + 11
    assert body["usage"]["prompt_tokens_details"]["cached_tokens"] == 0 + 2
    assert body["usage"]["completion_tokens"] == 8


def test_an_answer_without_a_word_is_an_empty_string() -> None:
    events: list[Event] = [started(), Finished(0, "stop", 1)]
    assert chat().whole(events)["choices"][0]["message"]["content"] == ""
    assert completion().whole(events)["choices"][0]["text"] == ""


def test_a_whole_completion() -> None:
    body = completion().whole(HELLO)
    strictly(Completion, body)
    assert (body["id"], body["object"]) == ("cmpl-r1", "text_completion")
    assert body["choices"] == [{"index": 0, "text": "Hello", "logprobs": None, "finish_reason": "stop"}]
    assert body["usage"] == USAGE


def test_a_completion_stream() -> None:
    seen = chunks(completion(stream=True, include_usage=True), HELLO)
    for chunk in seen:
        strict_completion_chunk(chunk)
    assert [choice["text"] for chunk in seen for choice in chunk["choices"]] == ["Hel", "lo", ""]
    assert [choice["finish_reason"] for chunk in seen for choice in chunk["choices"]] == [None, None, "stop"]
    assert [chunk["usage"] for chunk in seen] == [None, None, None, USAGE]


def test_echo_puts_the_prompt_first_streamed_or_not() -> None:
    events: list[Event] = [started(prompt_text="Once"), Delta(0, " upon", 1), Finished(0, "length", 1)]
    assert completion(echo=True).whole(events)["choices"][0]["text"] == "Once upon"
    seen = chunks(completion(echo=True, stream=True), events)
    assert [chunk["choices"][0]["text"] for chunk in seen] == ["Once", " upon", ""]


def test_a_delta_that_shows_nothing_gives_no_chunk() -> None:
    for serializer in (chat(stream=True), completion(stream=True)):
        assert serializer.chunks(Delta(0, "", 1)) == []
        assert serializer.frames(Delta(0, "", 1)) == b""


TOP = (token(b"Hi", -0.5), token(b"\xe2\x98", -2.0), token(b"no", -math.inf))


def test_chat_logprobs_have_exact_bytes_and_readable_text() -> None:
    events: list[Event] = [
        started(),
        Delta(0, "Hi", 1, (token(b"Hi", -0.5, TOP),)),
        Delta(0, "", 1, (token(b"\xe2\x98", -1.5),)),
        Delta(0, "☃", 1, (token(b"\x83", -0.1),)),
        Finished(0, "stop", 3),
    ]
    body = chat(logprobs=3).whole(events)
    strictly(ChatCompletion, body)
    logprobs = body["choices"][0]["logprobs"]
    assert logprobs["refusal"] is None
    assert logprobs["content"][0] == {
        "token": "Hi",
        "logprob": -0.5,
        "bytes": [72, 105],
        "top_logprobs": [
            {"token": "Hi", "logprob": -0.5, "bytes": [72, 105]},
            {"token": "�", "logprob": -2.0, "bytes": [0xE2, 0x98]},
            {"token": "no", "logprob": -9999.0, "bytes": [110, 111]},
        ],
    }
    assert b"".join(bytes(entry["bytes"]) for entry in logprobs["content"]).decode() == "Hi☃"

    seen = chunks(chat(logprobs=3, stream=True), events)
    for chunk in seen:
        strictly(ChatCompletionChunk, chunk)
    streamed = [chunk["choices"][0]["logprobs"] for chunk in seen]
    assert [entry for piece in streamed if piece for entry in piece["content"]] == logprobs["content"]
    assert streamed[0] is None
    assert streamed[-1] is None


def test_asking_for_logprobs_of_no_tokens_gives_an_empty_list() -> None:
    body = chat(logprobs=0).whole([started(), Finished(0, "stop", 0)])
    assert strictly(ChatCompletion, body).choices[0].logprobs.content == []


def test_completion_logprobs_tell_where_each_token_starts_in_the_text() -> None:
    events: list[Event] = [
        started(),
        Delta(0, "né", 2, (token(b"n", -1.0, (token(b"x", -0.2), token(b"y", -0.3))), token("é".encode()))),
        Delta(0, "", 1, (token(b"\xe2\x98", -1.5),)),
        Delta(0, "☃!", 2, (token(b"\x83", -0.1), token(b"!", -math.inf))),
        Finished(0, "stop", 5),
    ]
    body = completion(logprobs=2).whole(events)
    strictly(Completion, body)
    logprobs = body["choices"][0]["logprobs"]
    assert logprobs == {
        "tokens": ["n", "é", "bytes:\\xe2\\x98", "bytes:\\x83", "!"],
        "token_logprobs": [-1.0, -0.5, -1.5, -0.1, -9999.0],
        "top_logprobs": [
            {"x": -0.2, "y": -0.3, "n": -1.0},
            {"é": -0.5},
            {"bytes:\\xe2\\x98": -1.5},
            {"bytes:\\x83": -0.1},
            {"!": -9999.0},
        ],
        "text_offset": [0, 1, 2, 2, 3],
    }

    seen = chunks(completion(logprobs=2, stream=True), events)
    for chunk in seen:
        strict_completion_chunk(chunk)
    streamed = [piece for chunk in seen if (piece := chunk["choices"][0]["logprobs"])]
    assert len(streamed) == 3
    for name, whole in logprobs.items():
        assert [value for piece in streamed for value in piece[name]] == whole


def test_the_choices_of_a_completion_count_their_offsets_apart() -> None:
    serializer = completion(logprobs=0, stream=True, n=2)
    offsets = [
        serializer.chunks(Delta(choice, "ab", 1, (token(b"ab"),)))[0]["choices"][0]["logprobs"]["text_offset"]
        for choice in (0, 1, 0)
    ]
    assert offsets == [[0], [0], [2]]


@pytest.mark.parametrize("make", [chat, completion])
def test_a_failure_becomes_its_error_streamed_or_not(make: Callable[..., Serializer]) -> None:
    too_long = Failed(0, "context_length_exceeded", "Too long.", "messages")
    with pytest.raises(ContextLengthExceeded) as refusal:
        make().whole([started(), too_long])
    assert (refusal.value.message, refusal.value.param) == ("Too long.", "messages")
    for say in (make(stream=True).frames, make(stream=True).chunks):
        with pytest.raises(EngineCrashed, match="gone"):
            say(Failed(0, "engine_crashed", "gone"))


ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
EVENTS = st.lists(
    st.one_of(
        st.builds(started, st.integers(0, 3)),
        st.builds(Delta, st.integers(0, 3), ANY_TEXT, st.just(1)),
        st.builds(
            lambda choice, text, logprob: Delta(choice, text, 1, (token(text.encode(), logprob),)),
            st.integers(0, 3),
            ANY_TEXT,
            st.floats(max_value=0),
        ),
        st.builds(Finished, st.integers(0, 3), st.sampled_from(["stop", "length"]), st.integers(0, 9)),
    ),
    max_size=8,
)


@given(events=EVENTS, model=ANY_TEXT, options=st.sampled_from([{}, {"include_usage": True}]))
@pytest.mark.parametrize(("kind", "base"), [(ChatSerializer, CHAT), (CompletionSerializer, TEXT)])
def test_the_bytes_of_a_stream_are_its_chunks(
    kind: type[Serializer], base: Request, events: list[Event], model: str, options: dict[str, Any]
) -> None:
    of = request(base, n=4, stream=True, **options)
    plain, fast = (kind(of, created=1, model=model, system_fingerprint=None) for _ in range(2))
    for event in events:
        wanted = b"".join(sse.event(chunk) for chunk in plain.chunks(event))
        assert fast.frames(event) == wanted
    assert fast.usage() == plain.usage()


def test_the_client_reads_the_frames_it_is_sent() -> None:
    serializer = chat(stream=True, include_usage=True)
    sent = b"".join(serializer.frames(event) for event in HELLO) + sse.DONE
    lines = [line.removeprefix("data: ") for line in sent.decode().splitlines() if line]
    assert lines[-1] == "[DONE]"
    read = [ChatCompletionChunk.model_validate(json.loads(line)) for line in lines[:-1]]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in read[:-1]) == "Hello"
    assert read[-1].usage is not None
    assert read[-1].usage.total_tokens == 13
