"""Stop strings in text that arrives in pieces, against a search of the whole text."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtimes.engine.stop_matcher import StopMatcher

TEXT = st.text("ab€", max_size=30)
STOPS = st.lists(st.text("ab€", min_size=1, max_size=5), max_size=4).map(tuple)


def naive(text: str, stops: tuple[str, ...]) -> tuple[str, str | None]:
    """What is shown of the whole text, and the stop that ended it: the first to be complete, then the longest."""
    for end in range(len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            longest = max(found, key=len)
            return text[: end - len(longest)], longest
    return text, None


def pieces(text: str, cuts: list[int]) -> list[str]:
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


@settings(max_examples=500, deadline=None)
@given(TEXT, STOPS, st.lists(st.integers(0, 30), max_size=8))
def test_pieces_show_what_a_search_of_the_whole_text_would(text: str, stops: tuple[str, ...], cuts: list[int]) -> None:
    expected, stopped_by = naive(text, stops)
    matcher = StopMatcher(stops)
    shown = ""
    for piece in pieces(text, cuts):
        shown += matcher.feed(piece)
        assert expected.startswith(shown), "something was shown that is part of a stop string"
        if matcher.stopped_by is not None:
            break
    else:
        shown += matcher.flush()
    assert (shown, matcher.stopped_by) == (expected, stopped_by)


@settings(max_examples=300, deadline=None)
@given(TEXT, STOPS)
def test_no_more_is_held_back_than_may_become_a_stop(text: str, stops: tuple[str, ...]) -> None:
    matcher = StopMatcher(stops)
    shown = ""
    for end, character in enumerate(text, start=1):
        shown += matcher.feed(character)
        if matcher.stopped_by is not None:
            return
        held = text[len(shown) : end]
        assert not held or any(stop.startswith(held) for stop in stops)


def test_without_stops_everything_is_shown_at_once() -> None:
    matcher = StopMatcher(())
    assert matcher.feed("anything") == "anything"
    assert matcher.flush() == ""


@pytest.mark.parametrize(
    ("stops", "fed", "shown"),
    [
        (("\n\n",), ["one\n", "two\n", "\nthree"], "one\ntwo"),
        (("aab",), ["aa", "a", "ab"], "aa"),
        (("abcd", "bc"), ["ab", "cd"], "a"),
        (("bc", "abc"), ["xab", "c"], "x"),
        (("</s>",), ["</", "p></s", ">"], "</p>"),
        (("🙂",), ["ok ", "🙂", " no"], "ok "),
    ],
)
def test_stops_across_pieces(stops: tuple[str, ...], fed: list[str], shown: str) -> None:
    matcher = StopMatcher(stops)
    out = ""
    for piece in fed:
        out += matcher.feed(piece)
        if matcher.stopped_by is not None:
            break
    assert matcher.stopped_by in stops
    assert out == shown


def test_what_was_held_back_is_shown_when_the_text_ends() -> None:
    matcher = StopMatcher(("END",))
    assert matcher.feed("the EN") == "the "
    assert matcher.flush() == "EN"
    assert matcher.flush() == ""


def test_a_long_text_full_of_beginnings_takes_linear_time() -> None:
    """Held-back text must not be searched again with each piece: a repeated beginning would cost quadratic time."""
    advanced = 0
    matcher = StopMatcher(("a" * 2_000 + "b",))
    for _ in range(6_000):
        advanced += len(matcher.feed("a"))
    assert advanced == 4_000


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_from_a_mark_on_nothing_stops(size: int) -> None:
    def shown(text: str, *stops: str) -> str:
        matcher, told = StopMatcher(stops, until="<call>"), ""
        for start in range(0, len(text), size):
            told += matcher.feed(text[start : start + size])
            if matcher.stopped_by is not None:
                return told
        return told + matcher.flush()

    assert shown("a;b<call>;", ";") == "a"
    assert shown("ab<call>;{;}", ";", "}") == "ab<call>;{;}"
    assert shown("ab<call>;", "call>") == "ab<call>;"  # both end there: the mark began first
    assert shown("ab<call", "<call>x") == "ab<call"
    assert shown("ab<call>x", "b<call>x") == "ab<call>x"
    assert shown("ab<", "<") == "ab"
