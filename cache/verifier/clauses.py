"""Clauses of a text: those that say nothing go, and those that deny do it in one way. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from cache.verifier.lexicon import Lexicon
from cache.verifier.scan import Piece, stems_of
from cache.verifier.stems import stem

_WITHIN: Final = 6  # words between "keep" and the "from …ing" that belongs to it
_HINDERING: Final = frozenset(map(stem, ("keep", "stop", "prevent", "block", "hinder", "avoid")))
_DENYING: Final = frozenset(map(stem, ("avoid", "prevent", "except", "exclude", "excluding", "lack", "lacking")))
_HAVING: Final = tuple(map(stem, ("contain", "have", "include", "with", "use", "need", "require")))
_FAILING: Final = frozenset((stem(word), "to") for word in ("fail", "failing", "unable", "yet"))
_BARRING: Final = frozenset(map(stem, ("prohibited", "banned", "forbidden", "barred", "prevented", "discouraged")))
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
    if not lexicon.words["marks"] & set(words):
        return False
    excuses = bool(_ASKING & set(words))
    if "?" in clause[-1].value and not excuses:
        return False
    return all(word in lexicon.words["chatter"] or (excuses and word == "not") for word in words)


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
    found = _unhindered(found)
    words = stems_of(found)
    made: list[Piece] = []
    place = 0
    while place < len(found):
        used, said = _plainly(found, words, place)
        made += said
        place += used
    return made


def _unhindered(found: list[Piece]) -> list[Piece]:
    """ "Keep … from …ing" with a "not" in the place of "from"."""
    words = stems_of(found)
    made, gone = list(found), set[int]()
    for place, word in enumerate(words):
        if word in _HINDERING:
            end = min(place + 2 + _WITHIN, len(words) - 1)
            origin = next((i for i in range(place + 1, end) if words[i] == "from"), None)
            if origin is not None and _is_gerund(found, origin + 1):
                made[origin] = _NOT
                gone.add(place)
    return [piece for place, piece in enumerate(made) if place not in gone]


def _plainly(found: Sequence[Piece], words: Sequence[str], place: int) -> tuple[int, list[Piece]]:
    """How many pieces are read there, and what they say."""
    word, following = words[place], words[place + 1] if place + 1 < len(words) else ""
    used, said = 1, [found[place]]
    if word in _DENYING or (word == "outsid" and following):
        said = [_NOT]
    elif (word, following) in _FAILING:
        used, said = 2, [_NOT]
    elif (word in _HAVING and following == "no") or (word in _HAVING[:3] and words[place - 1 : place] == ["not"]):
        said = []  # "containing no", "not containing"
    elif word in _BARRING and following == "from" and _is_gerund(found, place + 2):
        used = 2
    elif (word, following) == ("allow", "to") and words[0] == "be":
        used, said = 2, []  # "Am I allowed to …"
    elif (length := _sees_to(words, place)) and "not" in words[place : place + length + _WITHIN]:
        used, said = length, []
    return used, said


def _is_gerund(found: Sequence[Piece], place: int) -> bool:
    return place < len(found) and found[place].value.endswith("ing")


def _sees_to(words: Sequence[str], place: int) -> int:
    """How many words "make sure" and the like have there; 0 for none."""
    return next((len(phrase) for phrase in _SEEING_TO if tuple(words[place : place + len(phrase)]) == phrase), 0)
