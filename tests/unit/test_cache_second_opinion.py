"""When a language model's yes or no is believed, and what the cache makes of it."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cache.budget import SECOND_OPINION, Checks, level_of, stand
from cache.second_opinion import Worth, certainty, mark_of, open_pairs, read_worth, worth, write_worth
from cache.verifier.verdict import Verifier

FEWEST = 40


def said(**probabilities: float) -> list[tuple[str, float]]:
    return [(word, math.log(probability)) for word, probability in probabilities.items()]


def test_certainty_is_the_share_of_yes_in_all_its_spellings() -> None:
    assert certainty([*said(Yes=0.5, no=0.1), (" yes", math.log(0.1)), ("NO.", math.log(0.1))]) == pytest.approx(0.75)
    assert certainty(said(yes=0.3)) == 1.0


@pytest.mark.parametrize("tokens", [[], said(The=0.9, yes=0.05, no=0.05), said(maybe=1.0)])
def test_who_says_something_else_has_no_opinion(tokens: list[tuple[str, float]]) -> None:
    assert certainty(tokens) is None


def test_a_model_is_believed_above_every_trap_that_it_took_for_one() -> None:
    opinions = [(0.9, True), (0.8, True), (0.4, True), (0.5, False), (None, False), (None, True)]
    measured = worth(opinions)
    assert (measured.threshold, measured.found, measured.pairs, measured.traps) == (0.8, 2, 4, 2)
    assert measured.upper_bound == pytest.approx(1 - 0.05**0.5)


@given(st.lists(st.tuples(st.none() | st.floats(0, 1), st.booleans())))
def test_whatever_it_says_no_trap_is_at_the_threshold(opinions: list[tuple[float | None, bool]]) -> None:
    measured = worth(opinions)
    if measured.threshold is not None:
        assert all(sure is None or sure < measured.threshold for sure, hit in opinions if not hit)
        assert measured.found == sum(sure is not None and sure >= measured.threshold for sure, hit in opinions if hit)


@pytest.mark.parametrize(
    "opinions",
    [
        [],
        [(1.0, True)] * 9,  # nothing says that it would not say so of a trap
        [(0.9, False)] * 9,
        [(0.9, True), (0.9, False)],
        [(0.9, True), *[(0.1, True)] * 9, (0.5, False)],  # too few to be worth the asking
    ],
)
def test_a_model_that_cannot_tell_is_not_asked(opinions: list[tuple[float | None, bool]]) -> None:
    assert worth(opinions).threshold is None


def test_what_was_measured_is_found_again_for_the_very_file(tmp_path: Path) -> None:
    path = tmp_path / "state" / "calibration.json"
    measured, other = Worth(0.8, 5, 9, 9, 0.28), Worth(None, 0, 9, 9, 0.28)
    write_worth(path, mark_of("m", 1), measured)
    write_worth(path, mark_of("n", 1), other)
    assert (read_worth(path, mark_of("m", 1)), read_worth(path, mark_of("n", 1))) == (measured, other)
    assert read_worth(path, mark_of("m", 2)) is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", '{"second_opinion": 7}', '{"second_opinion": {"m@1": {"found": 1}}}']
)
def test_a_file_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(text)
    assert read_worth(path, "m@1") is None
    write_worth(path, "m@1", Worth(0.8, 5, 9, 9, 0.28))
    assert read_worth(path, "m@1") is not None
    assert json.loads(path.read_text())


def test_the_pairs_to_measure_with_are_such_as_the_rules_leave_open() -> None:
    pairs, verifier = open_pairs(), Verifier()
    left = [pair for pair in pairs if not verifier.verdict(pair.a, pair.b, 0.9).guards]
    assert len(left) >= 0.9 * len(pairs)
    assert min(sum(pair.hit for pair in left), sum(not pair.hit for pair in left)) >= FEWEST


def test_its_hits_are_a_class_of_their_own_that_has_to_be_proven_first() -> None:
    assert level_of(SECOND_OPINION) == SECOND_OPINION
    for rest in ({}, {0.97: Checks(999, 0), 0.9: Checks(999, 0), 0.7: Checks(999, 0)}, {0.97: Checks(0, 9)}):
        assert not stand(rest, 0.01, 0.9).serves(SECOND_OPINION)
        assert not stand({**rest, SECOND_OPINION: Checks(99, 0)}, 0.01, 0.9).serves(SECOND_OPINION)
        proven = stand({**rest, SECOND_OPINION: Checks(299, 0)}, 0.01, 0.9)
        assert proven.serves(SECOND_OPINION)
        assert proven.threshold == stand(rest, 0.01, 0.9).threshold
        assert not proven.serves(0.6)
