"""A provider's events are the same however its bytes are cut; what is too much, or no text, is refused."""

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback.wire import MalformedAnswer, sse
from fallback.wire.sse import EventStream

Event = tuple[str, str]


def read(pieces: Iterable[bytes]) -> list[Event]:
    stream = EventStream()
    return [event for piece in pieces for event in stream.feed(piece)]


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted(min(place, len(data)) for place in places), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@pytest.fixture
def small_bound(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 1000)
    return 1000


def test_an_event_is_its_name_and_its_data() -> None:
    assert read([b'event: message_start\ndata: {"a": 1}\n\n']) == [("message_start", '{"a": 1}')]
    assert read([b"data: [DONE]\n\n"]) == [("", "[DONE]")]


def test_a_name_is_of_its_own_event_alone() -> None:
    assert read([b"event: ping\ndata: 1\n\ndata: 2\n\n"]) == [("ping", "1"), ("", "2")]
    assert read([b"event: lost\n\ndata: 1\n\n"]) == [("", "1")]  # without data there is no event


def test_one_space_after_the_colon_belongs_to_the_form_and_no_more() -> None:
    assert read([b"data:a\n\n", b"data: b\n\n", b"data:  c \n\n"]) == [("", "a"), ("", "b"), ("", " c ")]


def test_lines_of_data_are_joined_and_an_empty_one_counts() -> None:
    assert read([b"data: a\ndata\ndata:\ndata: b\n\n"]) == [("", "a\n\n\nb")]


@pytest.mark.parametrize(
    "noise", [b": OPENROUTER PROCESSING\n\n", b":\n\n", b"id: 7\nretry: 100\n\n", b"\n\n", b"x\n\n"]
)
def test_comments_and_unknown_fields_are_no_events(noise: bytes) -> None:
    assert read([noise, b"data: a\n", noise[: noise.index(b"\n")], b"\ndata: b\n\n", noise])[-1][1].endswith("b")
    assert read([noise, noise]) == []


def test_what_has_not_ended_is_not_handed_on() -> None:
    assert read([b"data: a\n\ndata: half\n"]) == [("", "a")]
    assert read([b"data: a\n\ndata: half"]) == [("", "a")]


def test_separators_of_unicode_are_no_line_breaks() -> None:
    text = "a\u2028b\u0085c\u000bd"
    assert read([f"data: {text}\n\n".encode()]) == [("", text)]


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=12)


@given(
    events=st.lists(st.tuples(st.sampled_from(("", "ping", "delta")), st.lists(texts, min_size=1, max_size=3))),
    ending=st.sampled_from((b"\n", b"\r\n")),
    places=st.lists(st.integers(0, 200), max_size=20),
)
def test_bytes_may_be_cut_anywhere(events: list[tuple[str, list[str]]], ending: bytes, places: list[int]) -> None:
    written = b""
    for name, lines in events:
        written += b"event: " + name.encode() + ending if name else b""
        written += b"".join(b"data: " + line.encode() + ending for line in lines) + ending
    expected = [(name, "\n".join(lines)) for name, lines in events]
    assert read(cut(written, places)) == expected
    assert read(written[i : i + 1] for i in range(len(written))) == expected


def test_lines_may_end_in_carriage_returns_alone() -> None:
    assert read([b"data: a\r\rdata: b\r", b"\r", b"data: c\r\r\n"]) == [("", "a"), ("", "b"), ("", "c")]


def test_an_event_that_carriage_returns_end_is_handed_on_though_nothing_follows_it() -> None:
    assert read([b"data: a\r\rdata: [DONE]\r\r"]) == [("", "a"), ("", "[DONE]")]


def test_a_byte_order_mark_in_front_is_not_read() -> None:
    assert read([b"\xef\xbb\xbfdata: a\n\ndata: b\n\n"]) == [("", "a"), ("", "b")]


@pytest.mark.parametrize("wrong", [b"data: \xff\n\n", b"data: \xc3\n\n", b"event: \xed\xa0\x80\ndata: a\n\n"])
def test_what_is_no_utf_8_is_refused(wrong: bytes) -> None:
    with pytest.raises(MalformedAnswer, match="UTF-8"):
        read([wrong])


def test_a_character_may_be_cut_in_two() -> None:
    data = "data: 🙂\n\n".encode()
    assert read([data[:8], data[8:]]) == [("", "🙂")]


def test_a_line_that_does_not_end_is_refused_when_it_is_too_long(small_bound: int) -> None:
    with pytest.raises(MalformedAnswer, match="larger than"):
        read([b"data: ", *(b"x" * 100 for _ in range(small_bound // 100 + 1))])


def test_an_event_of_too_many_lines_is_refused(small_bound: int) -> None:
    with pytest.raises(MalformedAnswer, match="larger than"):
        read([b"data: " + b"x" * 100 + b"\n"] * (small_bound // 100 + 1))


def test_an_event_of_too_many_empty_lines_is_refused_as_well(small_bound: int) -> None:
    with pytest.raises(MalformedAnswer, match="larger than"):
        read([b"data:\n" * 100] * (small_bound // 100 + 1))  # each line is a line break of the data


def test_too_much_is_refused_in_one_piece_as_in_many(small_bound: int) -> None:
    with pytest.raises(MalformedAnswer, match="larger than"):
        read([b"data: " + b"x" * 2 * small_bound + b"\n\n"])


def test_the_bound_is_of_one_event_not_of_the_stream(small_bound: int) -> None:
    event = b"data: " + b"x" * (small_bound // 2) + b"\n\n"
    assert len(read([event] * 20)) == 20
    assert len(read([event * 20])) == 20
