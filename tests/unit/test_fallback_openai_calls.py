"""Tool calls of OpenAI's likes come in pieces, whole, or without an index; and no stream, however odd, does harm."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.api.sse import json_bytes
from appliance.protocol import ChatPrompt, Delta, Event, Finished, Message, Request, Started, TextPart, ToolCallDelta
from fallback.wire import MalformedAnswer, ProviderFault
from fallback.wire.openai import OpenAIAnswer, OpenAIWire

REQUEST = Request("r", "frontier", (ChatPrompt((Message("user", (TextPart("Hi."),)),)),))


def choice(delta: Any = None, reason: Any = None, **more: Any) -> str:
    return json.dumps({"choices": [{"index": 0, "delta": delta or {}, "finish_reason": reason, **more}]})


def calls(*said: dict[str, Any]) -> str:
    return choice({"tool_calls": list(said)})


def call(index: int | None = None, id_: Any = None, name: Any = None, arguments: Any = None) -> dict[str, Any]:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    said: dict[str, Any] = {"function": function}
    return said | ({} if index is None else {"index": index}) | ({} if id_ is None else {"id": id_})


def read(*data: str) -> list[Event]:
    answer = OpenAIWire().answer(REQUEST)
    return [event for text in data for event in answer.feed("", text)] + answer.end()


def found(*data: str) -> tuple[list[tuple[str, str, str]], str]:
    """(id, name and arguments of each call, why the answer ended); checks that each call is opened once."""
    opened: dict[int, tuple[str, str, str]] = {}
    events = read(*data, choice(reason="tool_calls"), "[DONE]")
    for event in events:
        if isinstance(event, ToolCallDelta):
            if event.index not in opened:
                assert event.id is not None
                assert event.name
                assert event.index == len(opened)
                opened[event.index] = event.id, event.name, event.arguments
            else:
                assert (event.id, event.name) == (None, None)
                id_, name, arguments = opened[event.index]
                opened[event.index] = id_, name, arguments + event.arguments
    assert isinstance(events[-1], Finished)
    return list(opened.values()), events[-1].reason


def test_a_call_comes_in_pieces() -> None:
    assert found(
        calls(call(0, "call_1", "look", "")), calls(call(0, arguments='{"a"')), calls(call(0, arguments=": 1}"))
    ) == ([("call_1", "look", '{"a": 1}')], "tool_calls")


def test_calls_may_come_at_once_or_by_turns() -> None:
    expected = [("x", "a", "{}"), ("y", "b", '{"c":2}')]
    assert found(calls(call(0, "x", "a", "{}"), call(1, "y", "b", '{"c":2}')))[0] == expected
    assert found(
        calls(call(0, "x", "a", "")), calls(call(1, "y", "b", "")), calls(call(0, arguments="{")),
        calls(call(1, arguments='{"c"')), calls(call(0, arguments="}")), calls(call(1, arguments=":2}")),
    )[0] == expected  # fmt: skip


def test_indices_need_not_begin_at_zero() -> None:
    assert [name for _, name, _ in found(calls(call(3, "x", "a", "{}")), calls(call(7, "y", "b", "{}")))[0]] == [
        "a",
        "b",
    ]


def test_a_name_that_is_repeated_with_every_piece_opens_no_new_call() -> None:
    assert found(calls(call(0, "x", "a", "{")), calls(call(0, "x", "a", "}")))[0] == [("x", "a", "{}")]


def test_a_server_without_indices_sends_calls_whole() -> None:
    assert found(calls(call(None, "x", "a", "{}"), call(None, "y", "a", '{"b":1}')))[0] == [
        ("x", "a", "{}"), ("y", "a", '{"b":1}')
    ]  # fmt: skip


def test_arguments_that_are_an_object_become_text() -> None:
    ((_, _, arguments),) = found(calls(call(0, "x", "a", {"ü": [1]})))[0]
    assert json.loads(arguments) == {"ü": [1]}


@pytest.mark.parametrize("arguments", [None, "", {}])
def test_a_call_without_arguments_has_an_empty_object(arguments: Any) -> None:
    assert found(calls(call(0, "x", "a", arguments)))[0] == [("x", "a", "{}")]


@pytest.mark.parametrize("id_", [None, "", 5, "ü", "x" * 41, "a:b", "a b"])
def test_an_id_that_no_one_would_take_back_is_replaced(id_: Any) -> None:
    ((given_, _, _),) = found(calls(call(0, id_, "a", "{}")))[0]
    assert given_.startswith("call_")


def test_ids_differ_within_an_answer_and_between_answers() -> None:
    first = [
        id_ for id_, _, _ in found(calls(call(0, "x", "a", "{}"), call(1, "x", "a", "{}"), call(2, None, "a", "{}")))[0]
    ]
    assert len(set(first)) == 3
    other = OpenAIAnswer("another")
    opened = [e for e in other.feed("", calls(call(0, None, "a"))) if isinstance(e, ToolCallDelta)]
    mine = [e for e in OpenAIAnswer("r").feed("", calls(call(0, None, "a"))) if isinstance(e, ToolCallDelta)]
    assert opened[0].id != mine[0].id


def test_stop_after_calls_means_the_calls() -> None:
    last = read(calls(call(0, "x", "a", "{}")), choice(reason="stop"), "[DONE]")[-1]
    assert isinstance(last, Finished)
    assert last.reason == "tool_calls"


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "no JSON",
        "[]",
        "null",
        '"[DONE]',
        "{}",
        '{"choices": 5}',
        '{"choices": [5]}',
        '{"choices": [{"index": -1}]}',
        '{"choices": [{"index": 128}]}',
        '{"choices": [{"index": "0"}]}',
        '{"choices": [{"index": null}]}',
        '{"choices": [{"index": true, "delta": {"content": "x"}}]}',
        '{"choices": [{"index": 0, "delta": [1]}]}',
        "[" * 100_000,
        '{"choices": [], "x": 1' + "0" * 5000 + "}",
        calls(call(0, "x")),
        calls(call(0, "x", "")),
        calls(call(0, "x", ["a"])),
        calls(call(0, arguments="{}")),
        calls(call(None, arguments="{}")),
        calls(call(0, "x", "a", 5)),
        calls(call(0, "x", "a", [1])),
        calls({"index": 0}),
        choice({"tool_calls": [5]}),
        choice({"tool_calls": "look"}),
        choice({"tool_calls": 5}),
        choice({"tool_calls": True}),
        choice({"tool_calls": {"a": 1}}),
    ],
    ids=lambda wrong: wrong[:40],
)
def test_what_is_not_the_format_is_refused(wrong: str) -> None:
    with pytest.raises(MalformedAnswer):
        read(wrong, "[DONE]")


@pytest.mark.parametrize(
    "data",
    [
        [],
        ["[DONE]"],
        [choice({"content": "x"})],
        [choice({"content": "x"}), "[DONE]"],
        [choice(reason="stop")],
        [
            choice({"content": "x"}),
            json.dumps({"choices": [{"index": 0, "delta": {}}]}),
            "[DONE]",
        ],
    ],
)
def test_a_stream_that_ends_too_soon_is_no_answer(data: list[str]) -> None:
    with pytest.raises(MalformedAnswer, match="ended before"):
        read(*data)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ({"error": {"message": "overloaded", "code": 502}}, "overloaded"),
        ({"error": "overloaded"}, "overloaded"),
        ({"error": {"code": 5}}, "error"),
        (
            {
                "error": {"message": "gone"},
                "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}],
            },
            "gone",
        ),
    ],
)
def test_an_error_in_the_middle_is_the_provider_s(error: dict[str, Any], said: str) -> None:
    with pytest.raises(ProviderFault, match=said):
        read(choice({"content": "x"}), json.dumps(error))


def test_an_error_that_is_null_is_none() -> None:
    assert len(read(json.dumps({"error": None, "choices": []}), choice({"content": "x"}, "stop"), "[DONE]")) == 3


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"error": {"message": "No such model."}}, "No such model."),
        ({"error": "No such model."}, "No such model."),
        ({"error": {"message": 5}}, None),
        ({"message": "x"}, None),
        (None, None),
        ("x", None),
        ([{"error": {"code": 429, "message": "Quota."}}], "Quota."),  # Google's endpoint for OpenAI's clients
    ],
)
def test_the_message_of_an_error_is_found(body: Any, said: str | None) -> None:
    assert OpenAIWire().error_message(body) == said


@pytest.mark.parametrize(
    "usage",
    [None, 5, [], {}, {"prompt_tokens": None, "completion_tokens": "5"}, {"prompt_tokens": -1}, {"total_tokens": 7}],
)
def test_usage_that_names_no_number_of_tokens_is_no_claim(usage: Any) -> None:
    answer = OpenAIWire().answer(REQUEST)
    answer.feed("", json.dumps({"choices": [], "usage": usage}))
    assert answer.claimed is None


def test_claims_are_consistent_whatever_was_said() -> None:
    answer = OpenAIWire().answer(REQUEST)
    usage = {
        "prompt_tokens": 10, "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 99}, "completion_tokens_details": {"reasoning_tokens": 2**60},
    }  # fmt: skip
    answer.feed("", json.dumps({"choices": [], "usage": usage}))
    assert answer.claimed is not None
    assert answer.claimed.cached_tokens <= 10
    assert answer.claimed.reasoning_tokens <= 5


def test_usage_that_grows_with_every_chunk_is_the_last() -> None:
    answer = OpenAIWire().answer(REQUEST)
    for tokens in (1, 2, 3):
        answer.feed("", json.dumps({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": tokens}}))
    assert answer.claimed is not None
    assert answer.claimed.completion_tokens == 3


def logprob(value: str, bytes_: str = "null") -> str:
    entry = f'{{"token": "x", "logprob": {value}, "bytes": {bytes_}, "top_logprobs": []}}'
    return f'{{"choices": [{{"index": 0, "delta": {{"content": "x"}}, "logprobs": {{"content": [{entry}]}}}}]}}'


@pytest.mark.parametrize("value", ["-0.5", "0", "null", '"a"', "NaN", "Infinity", "-Infinity", "1" + "0" * 400, "true"])
def test_log_probabilities_are_numbers_that_json_can_say(value: str) -> None:
    event = read(logprob(value), choice(reason="stop"), "[DONE]")[1]
    assert isinstance(event, Delta)
    assert not any(math.isnan(token.logprob) or token.logprob == math.inf for token in event.logprobs)


@pytest.mark.parametrize("bytes_", ["[300]", "[-1]", '["a"]', "5", "[1.5]"])
def test_bytes_that_are_none_give_way_to_the_text(bytes_: str) -> None:
    event = read(logprob("-1", bytes_), choice(reason="stop"), "[DONE]")[1]
    assert isinstance(event, Delta)
    assert event.logprobs[0].token == b"x"


@pytest.mark.parametrize("name", ["content", "reasoning_content", "refusal"])
def test_half_a_surrogate_pair_does_not_reach_the_client_s_json(name: str) -> None:
    for event in read(choice({name: "a\ud83d"}), choice(reason="stop"), "[DONE]"):
        json_bytes(getattr(event, "text", ""))


def test_half_a_surrogate_pair_in_a_call_does_not_either() -> None:
    for event in read(calls(call(0, "x", "lo\udc00k", '{"a": "\ud83d"}')), choice(reason="stop"), "[DONE]"):
        if isinstance(event, ToolCallDelta):
            json_bytes([event.name, event.arguments])


def test_more_choices_than_were_asked_for_are_not_handed_on() -> None:
    answer, events = OpenAIWire().answer(REQUEST), list[Event]()
    try:
        for data in (
            choice({"content": "x"}, "stop"),
            json.dumps({"choices": [{"index": 7, "delta": {"content": "y"}}]}),
        ):
            events += answer.feed("", data)
    except MalformedAnswer:
        return  # that will do too
    assert {event.choice for event in events if isinstance(event, Started | Delta)} == {0}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                (
                    "choices",
                    "index",
                    "delta",
                    "message",
                    "content",
                    "reasoning",
                    "refusal",
                    "tool_calls",
                    "function",
                    "name",
                    "arguments",
                    "id",
                    "finish_reason",
                    "usage",
                    "prompt_tokens",
                    "prompt_tokens_details",
                    "cached_tokens",
                    "logprobs",
                    "logprob",
                    "token",
                    "bytes",
                    "top_logprobs",
                    "error",
                )
            ),
            inner,
            max_size=6,
        )
    ),
    max_leaves=30,
)


@given(
    deltas=st.lists(json_values, max_size=4),
    choices=st.lists(json_values, max_size=3),
    usage=json_values,
    logprobs=json_values,
    tool_calls=json_values,
)
def test_whatever_json_comes_it_is_read_or_refused(
    deltas: list[Any], choices: list[Any], usage: Any, logprobs: Any, tool_calls: Any
) -> None:
    said = [
        *(json.dumps({"choices": [{"index": 0, "delta": delta, "logprobs": logprobs}]}) for delta in deltas),
        json.dumps({"choices": [{"index": 0, "delta": {"tool_calls": tool_calls}}], "usage": usage}),
        json.dumps({"choices": choices}),
    ]
    for data in said:
        try:
            OpenAIWire().answer(REQUEST).feed("", data)
        except (MalformedAnswer, ProviderFault):
            continue
