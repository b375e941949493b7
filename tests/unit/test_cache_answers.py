"""A stored answer comes back as it was, and a client cannot tell it from a fresh one but by what it cost."""

import json
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.api.openai.serialize import ChatSerializer
from appliance.protocol import (
    ChatPrompt,
    Delta,
    Event,
    Finished,
    Message,
    Queued,
    ReasoningDelta,
    Request,
    Started,
    TextPart,
    Usage,
)
from cache.answers import PIECE_CHARACTERS, Answer, UnreadableAnswer, answer_of, events_of, packed, unpacked
from cache.eligibility import unfit

REQUEST = Request("r", "auto", (ChatPrompt((Message("user", (TextPart("Hi."),)),)),), include_usage=True)
PLAIN = Answer("Paris.", "", "small", 9, 3, 0, thinking=False)

# Half a surrogate pair too: a model's bytes become text with care, a provider's JSON may hold anything.
texts = st.text(st.characters(exclude_categories=()), max_size=300)
counts = st.integers(0, 2**40)


def _answer(text: str, thoughts: str, model: str, prompt: int, spoken: int, thought: int, *, thinking: bool) -> Answer:
    thought = thought if thoughts else 0
    return Answer(text, thoughts, model, prompt, spoken + thought, thought, thinking)


models = st.text(min_size=1, max_size=30)
answers = st.builds(_answer, texts, texts, models, counts, counts, counts, thinking=st.booleans())


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Delta))


def thoughts_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, ReasoningDelta))


# Bytes


@given(answers)
def test_an_answer_comes_back_as_it_was(answer: Answer) -> None:
    assert unpacked(packed(answer)) == answer


def test_every_field_makes_a_difference_to_the_bytes() -> None:
    others = [
        Answer("Rome.", "", "small", 9, 3, 0, thinking=False),
        Answer("Paris.", "Hm.", "small", 9, 3, 0, thinking=False),
        Answer("Paris.", "", "big", 9, 3, 0, thinking=False),
        Answer("Paris.", "", "small", 8, 3, 0, thinking=False),
        Answer("Paris.", "", "small", 9, 4, 0, thinking=False),
        Answer("Paris.", "", "small", 9, 3, 1, thinking=False),
        Answer("Paris.", "", "small", 9, 3, 0, thinking=True),
        PLAIN,
    ]
    assert len({packed(answer) for answer in others}) == len(others)


@given(st.binary(max_size=200))
def test_bytes_that_are_no_answer_say_so(data: bytes) -> None:
    with pytest.raises(UnreadableAnswer):
        unpacked(data)


@given(answer=answers, data=st.data())
def test_an_answer_that_was_cut_is_none(answer: Answer, data: st.DataObject) -> None:
    whole = packed(answer)
    with pytest.raises(UnreadableAnswer):
        unpacked(whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(answer=answers, more=st.binary(min_size=1, max_size=20))
def test_an_answer_with_something_after_it_is_none(answer: Answer, more: bytes) -> None:
    with pytest.raises(UnreadableAnswer):
        unpacked(packed(answer) + more)


@given(answer=answers, data=st.data())
def test_a_byte_that_was_damaged_makes_another_answer_or_none_and_no_other_error(
    answer: Answer, data: st.DataObject
) -> None:
    damaged = bytearray(packed(answer))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        found = unpacked(bytes(damaged))
    except UnreadableAnswer:
        return
    assert [type(getattr(found, name)) for name in Answer.__slots__] == [str, str, str, int, int, int, bool]


FIELDS = ["Paris.", "", "small", 9, 3, 0, False]


@pytest.mark.parametrize(
    "document",
    [
        None,
        5,
        "text",
        b"bytes",
        [],
        {},
        [1],
        [1, *FIELDS[:-1]],
        [1, *FIELDS, 0],
        [2, *FIELDS],
        [0, *FIELDS],
        ["1", *FIELDS],
        [None, *FIELDS],
        FIELDS,
        [[1], *FIELDS],
        {"version": 1},
        dict(zip("abcdefgh", FIELDS, strict=False)),
        [1, [], *FIELDS],
    ],
    ids=str,
)
def test_something_else_in_the_same_packing_is_no_answer(document: Any) -> None:
    with pytest.raises(UnreadableAnswer):
        unpacked(msgpack.packb(document))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, 5),
        (0, None),
        (0, b"Paris."),
        (0, ["Paris."]),
        (1, None),
        (2, None),
        (3, "9"),
        (3, None),
        (4, 1.5),
        (5, None),
        (6, None),
        (6, "no"),
    ],
)
def test_an_answer_with_a_field_of_another_kind_is_none(place: int, value: Any) -> None:
    fields = [*FIELDS[:place], value, *FIELDS[place + 1 :]]
    with pytest.raises(UnreadableAnswer):
        unpacked(msgpack.packb([1, *fields]))


@pytest.mark.parametrize(
    "data",
    [
        b"\x91" * 100_000,
        b"\xdd\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xffabc",
        b"\xc1",
        b"\xc7\x0c\xff" + b"\xff" * 12,
        b"\xd6\xff" + b"\xff" * 4,
        b"\x81\x90\x90",
    ],
)
def test_bytes_made_to_break_a_reader_do_not(data: bytes) -> None:
    with pytest.raises(UnreadableAnswer):
        unpacked(data)


# Replayed


@given(answers)
def test_a_replayed_answer_says_the_same(answer: Answer) -> None:
    events = list(events_of(answer))
    assert text_of(events) == answer.text
    assert thoughts_of(events) == answer.reasoning
    assert unfit(events) is None
    assert answer_of(events, "another") == answer


@given(answers)
def test_its_tokens_are_those_of_the_answer_and_each_is_told_once(answer: Answer) -> None:
    events = list(events_of(answer))
    spoken = [event.tokens for event in events if isinstance(event, Delta)]
    thought = [event.tokens for event in events if isinstance(event, ReasoningDelta)]
    assert min(spoken) >= 0
    assert sum(thought) == answer.reasoning_tokens
    assert sum(spoken) + sum(thought) == answer.completion_tokens
    assert [e.completion_tokens for e in events if isinstance(e, Finished)] == [answer.completion_tokens]


@given(answers)
def test_its_events_come_in_the_order_of_any_answer(answer: Answer) -> None:
    order = [type(event) for event in events_of(answer)]
    thoughts = [ReasoningDelta] if answer.reasoning else []
    assert order == [Started, *thoughts, *[Delta] * (len(order) - len(thoughts) - 2), Finished]
    assert {event.choice for event in events_of(answer) if not isinstance(event, Usage | Queued)} == {0}


@given(answers)
def test_nothing_was_computed_for_it(answer: Answer) -> None:
    started = next(iter(events_of(answer)))
    assert started == Started(
        0, answer.prompt_tokens, answer.prompt_tokens, 0.0, thinking=answer.thinking, model=answer.model
    )


@pytest.mark.parametrize("length", [0, 1, PIECE_CHARACTERS - 1, PIECE_CHARACTERS, PIECE_CHARACTERS + 1, 1000])
def test_a_long_text_comes_in_pieces_none_of_them_empty(length: int) -> None:
    answer = Answer("\u00e9" * length, "", "small", 9, 300, 0, thinking=False)
    pieces = [event.text for event in events_of(answer) if isinstance(event, Delta)]
    assert [len(piece) for piece in pieces[:-1]] == [PIECE_CHARACTERS] * (len(pieces) - 1)
    assert len(pieces[-1]) > 0 or length == 0
    assert len(pieces) == max(1, -(-length // PIECE_CHARACTERS))


def test_an_empty_text_is_an_answer_too() -> None:
    empty = Answer("", "", "small", 9, 1, 0, thinking=False)
    assert list(events_of(empty)) == [Started(0, 9, 9, 0.0, model="small"), Delta(0, "", 1), Finished(0, "stop", 1)]


def test_an_answer_may_be_replayed_again_and_again() -> None:
    assert list(events_of(PLAIN)) == list(events_of(PLAIN)) == list(events_of(unpacked(packed(PLAIN))))


# From a fresh answer to the client of a later one

STARTED = Started(0, 9, 4, 0.25)
FRESH: dict[str, list[Event]] = {
    "plain": [STARTED, Delta(0, "Par", 1), Delta(0, "is.", 2), Finished(0, "stop", 3)],
    "tokens without text": [STARTED, Delta(0, "", 1), Delta(0, "Paris.", 2), Delta(0, "", 1), Finished(0, "stop", 5)],
    "nothing said": [STARTED, Finished(0, "stop", 1)],
    "an empty text": [STARTED, Delta(0, "", 1), Finished(0, "stop", 1)],
    "thoughts": [
        STARTED,
        ReasoningDelta(0, "Hm", 1),
        ReasoningDelta(0, ".", 2),
        Delta(0, "Paris.", 3),
        Finished(0, "stop", 6),
    ],
    "begun in thoughts": [
        Started(0, 9, 4, 0.25, thinking=True),
        ReasoningDelta(0, "Hm.", 3),
        Delta(0, "Paris.", 3),
        Finished(0, "stop", 6),
    ],
    "thoughts without words": [
        Started(0, 9, 4, 0.25, thinking=True),
        ReasoningDelta(0, "", 2),
        Delta(0, "Paris.", 3),
        Finished(0, "stop", 5),
    ],
    "thoughts and nothing said": [STARTED, ReasoningDelta(0, "Hm.", 3), Finished(0, "stop", 4)],
    "a provider": [
        Started(0, 9, 0, 0.0, model="big"),
        Delta(0, "Paris.", 3),
        Usage(11, 2, 7, 0, 0.01),
        Finished(0, "stop", 3),
    ],
    "a provider's thoughts": [
        Started(0, 9, 0, 0.0, model="big"),
        ReasoningDelta(0, "Hm.", 3),
        Delta(0, "Paris.", 3),
        Usage(11, 2, 47, 40, None),
        Finished(0, "stop", 6),
    ],
    "a provider's thoughts that it hides": [
        Started(0, 9, 0, 0.0, model="big"),
        Delta(0, "Paris.", 3),
        Usage(11, 2, 47, 40, 0.01),
        Finished(0, "stop", 3),
    ],
    "half a character": [STARTED, Delta(0, "\ud83d", 1), Delta(0, "\ude00 ok", 2), Finished(0, "stop", 3)],
    "a long text": [STARTED, *[Delta(0, f"{i}, ", 2) for i in range(200)], Finished(0, "stop", 401)],
}


def body(events: list[Event]) -> dict[str, Any]:
    return ChatSerializer(REQUEST, created=0, model="m").whole(events)


def replayed(events: list[Event]) -> list[Event]:
    return list(events_of(unpacked(packed(answer_of(events, "small")))))


@pytest.mark.parametrize("which", FRESH)
def test_a_client_is_told_the_same_twice(which: str) -> None:
    assert body(replayed(FRESH[which]))["choices"] == body(FRESH[which])["choices"]


@pytest.mark.parametrize("which", FRESH)
def test_its_usage_is_that_of_the_first_but_for_what_was_computed(which: str) -> None:
    first, later = (body(events)["usage"] for events in (FRESH[which], replayed(FRESH[which])))
    for name in ("prompt_tokens", "completion_tokens", "total_tokens", "completion_tokens_details"):
        assert later[name] == first[name]
    assert later["prompt_tokens_details"] == {"cached_tokens": first["prompt_tokens"]}


@pytest.mark.parametrize("which", [which for which in FRESH if which != "half a character"])
def test_a_stream_of_it_is_whole(which: str) -> None:
    serializer = ChatSerializer(REQUEST, created=0, model="m")
    frames = b"".join(map(serializer.frames, replayed(FRESH[which]))).decode().split("\n\n")
    chunks = [json.loads(frame.removeprefix("data: ")) for frame in frames if frame]
    deltas = [chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"]]
    assert "".join(deltas) == text_of(FRESH[which])
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"]["completion_tokens"] == body(FRESH[which])["usage"]["completion_tokens"]


def test_an_answer_is_the_model_s_that_gave_it() -> None:
    assert answer_of(FRESH["plain"], "small").model == "small"
    assert answer_of(FRESH["a provider"], "small").model == "big"


def test_what_a_provider_counted_goes_before_what_was_seen() -> None:
    found = answer_of(FRESH["a provider's thoughts"], "small")
    assert (found.prompt_tokens, found.completion_tokens, found.reasoning_tokens) == (11, 47, 40)
    own = answer_of(FRESH["thoughts"], "small")
    assert (own.prompt_tokens, own.completion_tokens, own.reasoning_tokens) == (9, 6, 3)
