"""Bytes cut anywhere become the text that the whole would."""

from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from runtimes.engine.detokenizer import Detokenizer

# Arbitrary bytes, and texts with one byte broken: the second finds more of the decoder's states.
DAMAGED = st.builds(
    lambda text, i, byte: bytes([*text.encode()[:i], byte, *text.encode()[i:]]),
    st.text(st.sampled_from("aé€🙂"), max_size=8),
    st.integers(0, 20),
    st.integers(0, 255),
)


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(min(i, len(data)) for i in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=24) | DAMAGED, st.lists(st.integers(0, 24), max_size=24))
@example(b"\xed\xa0\x80", [1, 2])  # a surrogate, which UTF-8 does not allow
@example(b"\xf0\x9f\x99", [1, 2])
@example(b"\xf4\x90\x80\x80", [1])
def test_pieces_make_the_text_of_the_whole(data: bytes, cuts: list[int]) -> None:
    detokenizer = Detokenizer()
    text = "".join(detokenizer.feed(piece) for piece in cut(data, cuts)) + detokenizer.flush()
    assert text == data.decode(errors="replace")


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=20))
def test_valid_text_never_shows_a_replacement_on_the_way(text: str) -> None:
    detokenizer = Detokenizer()
    shown = ""
    for byte in text.encode():
        shown += detokenizer.feed(bytes([byte]))
        assert text.startswith(shown)
    assert shown == text
    assert detokenizer.flush() == ""


def test_a_character_waits_for_its_last_byte() -> None:
    detokenizer = Detokenizer()
    assert [detokenizer.feed(bytes([byte])) for byte in "🙂".encode()] == ["", "", "", "🙂"]


def test_a_control_token_brings_nothing_and_breaks_nothing() -> None:
    detokenizer = Detokenizer()
    assert detokenizer.feed(b"\xc3") + detokenizer.feed(b"") + detokenizer.feed(b"\xa9") == "é"


@pytest.mark.parametrize("unfinished", [b"\xc3", b"\xe2\x82", b"\xf0\x9f\x99"])
def test_a_character_that_is_never_finished_becomes_one_replacement(unfinished: bytes) -> None:
    detokenizer = Detokenizer()
    assert detokenizer.feed(unfinished) == ""
    assert detokenizer.flush() == "�"
