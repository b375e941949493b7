"""Anthropic's stream is read as its official client reads it; what is missing, doubled or out of place does no harm."""

import json
from typing import Any

import pytest
from anthropic.types import RawMessageStreamEvent
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from appliance.api.sse import json_bytes
from appliance.protocol import (
    ChatPrompt,
    Delta,
    Event,
    Finished,
    Message,
    ReasoningDelta,
    Request,
    Started,
    TextPart,
    ToolCallDelta,
)
from fallback.wire import MalformedAnswer, ProviderFault
from fallback.wire.anthropic import AnthropicAnswer, AnthropicWire

REQUEST = Request("r", "frontier", (ChatPrompt((Message("user", (TextPart("Hi."),)),)),))
_EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)

Said = dict[str, Any]


def start(**usage: Any) -> Said:
    message: Said = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 1, **usage},
    }  # fmt: skip
    return {"type": "message_start", "message": message}


def block(index: int, **content: Any) -> Said:
    return {"type": "content_block_start", "index": index, "content_block": content}


def text(index: int = 0) -> Said:
    return block(index, type="text", text="")


def call(index: int, id_: str = "toolu_1", name: str = "look", **given: Any) -> Said:
    return block(index, type="tool_use", id=id_, name=name, input=given)


def piece(index: int, kind: str, **content: Any) -> Said:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **content}}


def words(index: int, said: str) -> Said:
    return piece(index, "text_delta", text=said)


def arguments(index: int, said: str) -> Said:
    return piece(index, "input_json_delta", partial_json=said)


def stop(index: int) -> Said:
    return {"type": "content_block_stop", "index": index}


def end(reason: str = "end_turn", **usage: Any) -> Said:
    delta = {"stop_reason": reason, "stop_sequence": None}
    return {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 7, **usage}}


STOP: Said = {"type": "message_stop"}


def feed(answer: AnthropicAnswer, *said: Said) -> list[Event]:
    return [event for one in said for event in answer.feed(one.get("type", ""), json.dumps(one))]


def read(*said: Said) -> list[Event]:
    """Of events that Anthropic could send."""
    for one in said:
        _EVENT.validate_python(one)
    answer = AnthropicWire().answer(REQUEST)
    return feed(answer, *said) + answer.end()


def odd(*said: Said) -> list[Event]:
    """Of events that it should not."""
    answer = AnthropicWire().answer(REQUEST)
    return feed(answer, *said) + answer.end()


def test_a_stream_of_text_is_read_to_its_end() -> None:
    assert read(start(), text(), words(0, "Hel"), words(0, "lo"), stop(0), end(), STOP) == [
        Started(0, 0, 0, 0.0), Delta(0, "Hel", 0), Delta(0, "lo", 0), Finished(0, "stop", 7)
    ]  # fmt: skip


def test_the_name_of_an_event_stands_in_for_a_type_that_is_missing() -> None:
    answer = AnthropicWire().answer(REQUEST)
    assert answer.feed("message_start", json.dumps({"message": {}})) == [Started(0, 0, 0, 0.0)]


def test_thoughts_come_apart_from_text_and_their_signature_is_nothing_to_show() -> None:
    assert read(
        start(),
        block(0, type="thinking", thinking="", signature=""),
        piece(0, "thinking_delta", thinking="Hm."),
        piece(0, "signature_delta", signature="c2ln"),
        stop(0),
        block(1, type="redacted_thinking", data="xx"),
        stop(1),
        text(2),
        words(2, "Hi."),
        stop(2),
        end(),
        STOP,
    )[1:3] == [ReasoningDelta(0, "Hm.", 0), Delta(0, "Hi.", 0)]


def test_calls_are_numbered_by_themselves() -> None:
    assert read(
        start(), text(0), words(0, "So."), stop(0),
        call(1), arguments(1, ""), arguments(1, '{"at"'), arguments(1, ':"x"}'), stop(1),
        call(2, "toolu_2", "see"), arguments(2, "{}"), stop(2),
        end("tool_use"), STOP,
    )[2:] == [
        ToolCallDelta(0, 0, "toolu_1", "look", ""),
        ToolCallDelta(0, 0, None, None, '{"at"'),
        ToolCallDelta(0, 0, None, None, ':"x"}'),
        ToolCallDelta(0, 1, "toolu_2", "see", ""),
        ToolCallDelta(0, 1, None, None, "{}"),
        Finished(0, "tool_calls", 7),
    ]  # fmt: skip


def test_a_call_without_arguments_has_an_empty_object() -> None:
    assert read(start(), call(0), stop(0), end("tool_use"), STOP)[2] == ToolCallDelta(0, 0, None, None, "{}")


def test_a_call_without_arguments_that_nothing_closes_has_it_too() -> None:
    pieces = [event for event in odd(start(), call(0), end("tool_use"), STOP) if isinstance(event, ToolCallDelta)]
    assert "".join(piece.arguments for piece in pieces) == "{}"


def test_a_call_that_is_closed_twice_has_its_arguments_once() -> None:
    said = odd(start(), call(0), stop(0), stop(0), end("tool_use"), STOP)
    assert "".join(event.arguments for event in said if isinstance(event, ToolCallDelta)) == "{}"


def test_arguments_that_come_whole_are_taken_whole() -> None:
    said = read(start(), call(0, at="ü"), stop(0), end("tool_use"), STOP)
    assert json.loads("".join(event.arguments for event in said if isinstance(event, ToolCallDelta))) == {"at": "ü"}


def test_ids_that_come_twice_are_made_different() -> None:
    said = odd(start(), call(0, "x"), stop(0), call(1, "x"), stop(1), end("tool_use"), STOP)
    assert len({event.id for event in said if isinstance(event, ToolCallDelta) and event.id}) == 2


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("end_turn", "stop"), ("stop_sequence", "stop"), ("pause_turn", "stop"), ("max_tokens", "length"),
     ("model_context_window_exceeded", "length"), ("tool_use", "tool_calls"), ("refusal", "content_filter")],
)  # fmt: skip
def test_reasons_for_the_end_are_translated(theirs: str, ours: str) -> None:
    last = read(start(), text(), words(0, "x"), stop(0), end(theirs), STOP)[-1]
    assert isinstance(last, Finished)
    assert last.reason == ours


def test_usage_is_of_all_parts_of_the_prompt_and_its_last_word_counts() -> None:
    answer = AnthropicWire().answer(REQUEST)
    feed(answer, start(cache_read_input_tokens=100, cache_creation_input_tokens=20))
    assert answer.claimed is not None
    assert (answer.claimed.prompt_tokens, answer.claimed.cached_tokens, answer.claimed.completion_tokens) == (
        130,
        100,
        1,
    )
    feed(answer, end(input_tokens=11, output_tokens_details={"thinking_tokens": 3}))
    assert (answer.claimed.prompt_tokens, answer.claimed.cached_tokens) == (131, 100)
    assert (answer.claimed.completion_tokens, answer.claimed.reasoning_tokens) == (7, 3)


@pytest.mark.parametrize("usage", [None, 5, [], {"input_tokens": -1}, {"output_tokens": "7"}, {"input_tokens": 2**70}])
def test_usage_that_names_no_number_of_tokens_is_no_claim(usage: Any) -> None:
    answer = AnthropicWire().answer(REQUEST)
    feed(answer, {"type": "message_start", "message": {"usage": usage}})
    assert answer.claimed is None


def test_pings_and_what_is_yet_to_be_invented_tell_nothing() -> None:
    news: Said = {"type": "message_mood", "mood": {"is": "good"}}
    said = odd(
        start(), {"type": "ping"}, news, text(), words(0, "x"), piece(0, "mood_delta", mood=1), stop(0), end(), STOP
    )
    assert said == [Started(0, 0, 0, 0.0), Delta(0, "x", 0), Finished(0, "stop", 7)]


def test_an_error_in_the_middle_is_the_provider_s() -> None:
    with pytest.raises(ProviderFault, match="Overloaded"):
        odd(start(), text(), {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    with pytest.raises(ProviderFault):
        odd({"type": "error"})


@pytest.mark.parametrize(
    "said",
    [
        (), (start(),), (start(), text(), words(0, "x"), stop(0)), (start(), text(), words(0, "x"), stop(0), end()),
        (start(), text(), words(0, "x"), stop(0), STOP), (STOP,), (end(), STOP),
    ],
)  # fmt: skip
def test_a_stream_that_ends_too_soon_or_never_began_is_no_answer(said: tuple[Said, ...]) -> None:
    with pytest.raises(MalformedAnswer):
        odd(*said)


def test_an_answer_begins_once() -> None:
    try:
        said = odd(start(), start(), text(), words(0, "x"), stop(0), end(), STOP)
    except MalformedAnswer:
        return  # that will do too
    assert sum(isinstance(event, Started) for event in said) == 1


def test_nothing_after_the_end_is_read() -> None:
    try:
        said = odd(start(), text(), words(0, "x"), stop(0), end(), STOP, text(1), words(1, "late"))
    except MalformedAnswer:
        return  # that will do too
    assert Delta(0, "late", 0) not in said


@pytest.mark.parametrize(
    "wrong",
    [
        text(),
        words(0, "x"),
        arguments(0, "{}"),  # nothing has begun
        *(
            (start(), one)
            for one in (
                words(5, "x"),
                {"type": "content_block_start", "index": "0", "content_block": {"type": "text"}},
                {"type": "content_block_start", "index": 0, "content_block": 5},
                {"type": "content_block_delta", "index": 0},
                block(0, type="tool_use", id="x"),
                block(0, type="tool_use", id="x", name=5),
                block(0, type="tool_use", name=""),
            )
        ),
        *(
            (start(), text(), one)
            for one in (
                piece(0, "text_delta"),
                piece(0, "text_delta", text=5),
                piece(0, "thinking_delta", thinking=None),
                arguments(0, "{"),
                {"type": "content_block_delta", "index": 0, "delta": "x"},
            )
        ),
    ],
)
def test_what_is_not_the_format_is_refused(wrong: Said | tuple[Said, ...]) -> None:
    with pytest.raises(MalformedAnswer):
        odd(*(wrong if isinstance(wrong, tuple) else (wrong,)))


@pytest.mark.parametrize("data", ["", "no JSON", "[]", "null", "5", "[" * 100_000])
def test_data_that_is_no_object_is_refused(data: str) -> None:
    with pytest.raises(MalformedAnswer):
        AnthropicWire().answer(REQUEST).feed("message_start", data)


def test_half_a_surrogate_pair_does_not_reach_the_client_s_json() -> None:
    said = odd(
        start(),
        text(),
        words(0, "a\ud83d"),
        stop(0),
        call(1, "x", "lo\udc00k"),
        arguments(1, '{"a": "\ud83d"}'),
        stop(1),
        end("tool_use"),
        STOP,
    )
    for event in said:
        json_bytes([getattr(event, name, "") for name in ("text", "name", "arguments")])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(("type", "message", "index", "content_block", "delta", "text", "usage", "id", "name", "input",
                         "input_tokens", "output_tokens", "output_tokens_details", "thinking_tokens", "stop_reason")),
        inner,
        max_size=5,
    ),
    max_leaves=20,
)  # fmt: skip
TYPES = (
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
)


@given(said=st.lists(st.tuples(st.sampled_from(TYPES), st.dictionaries(st.sampled_from(
    ("message", "index", "content_block", "delta", "usage")), json_values, max_size=4)), max_size=6))  # fmt: skip
def test_whatever_json_comes_it_is_read_or_refused(said: list[tuple[str, Said]]) -> None:
    answer = AnthropicWire().answer(REQUEST)
    feed(answer, start(), text(), call(1))
    for kind, fields in said:
        try:
            answer.feed(kind, json.dumps({"type": kind, **fields}))
        except (MalformedAnswer, ProviderFault):
            continue
