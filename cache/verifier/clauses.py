"""Clauses of a text: those that say nothing go, and those that deny do it in one way. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from cache.verifier.lexicon import Lexicon
from cache.verifier.scan import Piece
from cache.verifier.stems import stem

_WITHIN: Final = 6  # words between "keep" and the "from …ing" that belongs to it
_HINDERING: Final = frozenset(map(stem, ("keep", "stop", "prevent", "block", "hinder", "avoid")))
_DENYING: Final = frozenset(map(stem, ("avoid", "prevent", "except", "exclude", "excluding", "lack", "lacking")))
_HAVING: Final = tuple(map(stem, ("contain", "have", "include", "with", "use", "need", "require")))
_FAILING: Final = frozenset((stem(word), "to") for word in ("fail", "failing", "unable"))
_SEEING_TO: Final = (("make", "sure"), ("make", "it", "so"), ("ensur",), ("see", "to", "it"))
_JOINING: Final = frozenset(("but", "and", "so"))
_ASKING: Final = frozenset(map(stem, ("help", "question", "ask", "trouble", "bother", "mind", "favor", "favour")))
_NOT: Final = Piece("word", "not")


def without_chatter(found: list[Piece], lexicon: Lexicon) -> list[Piece]:
    """Without clauses of which every word belongs to a courtesy ("hope you have a great day"), where any is left, and
    without the "but" that follows one."""
    kept: list[Piece] = []
    for clause in _clauses(found):
        if is_chatter(clause, lexicon):
            continue
        joined = not kept and clause[0].value in _JOINING and len(clause) > 1
        kept += clause[1:] if joined else clause
    return kept if any(piece.kind != "break" for piece in kept) else found


def is_chatter(clause: Sequence[Piece], lexicon: Lexicon) -> bool:
    """Whether all of its words belong to a courtesy. One that asks must say that it is one."""
    words = [stem(piece.value) for piece in clause if piece.kind != "break"]
    if not words or any(piece.kind not in ("word", "break") for piece in clause):
        return False
    asks = "?" in clause[-1].value and not _ASKING & set(words)
    return not asks and all(word in lexicon.words["chatter"] for word in words)


def _clauses(found: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Each with the break that ends it."""
    clause: list[Piece] = []
    for piece in found:
        clause.append(piece)
        if piece.kind == "break":
            yield clause
            clause = []
    if clause:
        yield clause


def plainly_negated(found: list[Piece]) -> list[Piece]:
    """ "Keep it from going brown", "make sure that it does not go brown" as "it not going brown"."""
    words = [stem(piece.value) if piece.kind == "word" else "" for piece in found]
    gone: set[int] = set()
    for place, word in enumerate(words):
        if word in _HINDERING and (origin := _origin(found, words, place)):
            gone.add(place)
            found = [*found[:origin], _NOT, *found[origin + 1 :]]
        elif word in _DENYING:
            found = [*found[:place], _NOT, *found[place + 1 :]]
        elif word in _HAVING and words[place + 1 : place + 2] == ["no"]:
            gone.add(place)
        elif word in _HAVING[:3] and words[place - 1 : place] == ["not"]:
            gone.add(place)  # "not containing"
        elif tuple(words[place : place + 2]) in _FAILING:
            found = [*found[:place], _NOT, *found[place + 1 :]]
            gone.add(place + 1)
        elif word == "allow" and words[place + 1 : place + 2] == ["to"] and words[0] == "be":
            gone |= {place, place + 1}  # "Am I allowed to …"
        elif word == "outsid" and place + 1 < len(words) and words[place + 1]:
            found = [*found[:place], _NOT, *found[place + 1 :]]
        elif (length := _sees_to(words, place)) and "not" in words[place : place + length + _WITHIN]:
            gone |= set(range(place, place + length))
    return [piece for place, piece in enumerate(found) if place not in gone]


def _origin(found: Sequence[Piece], words: Sequence[str], place: int) -> int:
    """Where the "from" of "keep … from …ing" is; 0 for none."""
    end = min(place + 2 + _WITHIN, len(words) - 1)
    origin = next((i for i in range(place + 1, end) if words[i] == "from"), 0)
    return origin if origin and found[origin + 1].value.endswith("ing") else 0


def _sees_to(words: Sequence[str], place: int) -> int:
    """How many words "make sure" and the like have there; 0 for none."""
    return next((len(phrase) for phrase in _SEEING_TO if tuple(words[place : place + len(phrase)]) == phrase), 0)
