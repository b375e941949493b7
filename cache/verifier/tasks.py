"""What is to be done with a text that comes with the request, in one form for its many names. Pure.

Only for two requests that have that text in common to the letter: elsewhere "find" and "translate" are not alike.
"""

from typing import Final

from cache.verifier.lexicon import Lexicon
from cache.verifier.scan import Piece, stems_of

_GIVE: Final = Piece("word", "give")
_TRAILING: Final = frozenset(("from", "out", "in", "of", "across", "for", "to"))  # where what they lead to is gone
_INTO: Final = frozenset(("into", "to", "in", "as"))
_WITHIN: Final = 8
_FOLLOWING: Final = frozenset(("out", "up", "all", "every", "each"))  # behind "pull", "list"


def plainly_told(found: list[Piece], lexicon: Lexicon) -> list[Piece]:
    """ "Extract the date", "pull out the date" and "give the date" in one form; "translate into French", "put it into
    French" and "give it in French"; without what points at the text: "according to the log above"."""
    found = _without_pointers(found, lexicon)
    words = stems_of(found)
    made: list[Piece] = []
    for place, word in enumerate(words):
        if word in lexicon.words["getting"] or (word in lexicon.words["remaking"] and _names_a_form(words, place)):
            made.append(_GIVE)
        elif word in lexicon.words["composing"]:
            made.append(Piece("word", "write"))
        elif word in lexicon.words["faults"]:
            made.append(Piece("word", "error"))
        elif word in lexicon.words["mending"]:
            made.append(Piece("word", "fix"))
        elif word not in lexicon.words["sorts"] and not _says_nothing(found, words, place, lexicon):
            made.append(found[place])
    return made


def _without_pointers(found: list[Piece], lexicon: Lexicon) -> list[Piece]:
    words, kept, place = stems_of(found), list[Piece](), 0
    while place < len(found):
        length = lexicon.pointers.at(words, place)
        if not length:
            kept.append(found[place])
        place += length or 1
    return kept


def _names_a_form(words: list[str], place: int) -> bool:
    """Whether it says into what: "into French", "as a list"."""
    return bool(_INTO & set(words[place + 1 : place + 1 + _WITHIN]))


def _says_nothing(found: list[Piece], words: list[str], place: int, lexicon: Lexicon) -> bool:
    before = place - 1
    while before > 0 and words[before] in _FOLLOWING:
        before -= 1
    if words[place] in _FOLLOWING and before >= 0 and words[before] in lexicon.words["getting"]:
        return True
    ends = all(piece.kind == "break" for piece in found[place + 1 : place + 2])
    return words[place] in _TRAILING and ends
