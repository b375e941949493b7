"""What is to be done with a text that comes with the request, in one form for its many names. Pure.

Only for two requests that have that text in common to the letter: elsewhere "find" and "translate" are not alike.
"""

from typing import Final

from cache.verifier.lexicon import Lexicon
from cache.verifier.scan import Piece
from cache.verifier.stems import stem

_GIVE: Final = Piece("word", "give")
_TRAILING: Final = frozenset(("from", "out", "in", "of", "across", "for", "to"))
_FOLLOWING: Final = frozenset(("out", "up", "all", "every", "each"))


def plainly_told(found: list[Piece], lexicon: Lexicon) -> list[Piece]:
    """ "Extract the date", "pull out the date" and "give the date" in one form; "translate into French", "put it into
    French" and "give it in French"; without what points at the text: "according to the log above"."""
    words = [stem(piece.value) if piece.kind == "word" else "" for piece in found]
    made: list[Piece] = []
    place = 0
    while place < len(found):
        word = words[place]
        if length := lexicon.pointers.at(words, place):
            place += length
            continue
        if word in _TRAILING and _ends_there(found, place):
            place += 1
            continue
        if word in lexicon.words["getting"]:
            made.append(_GIVE)
            place += 1 + (place + 1 < len(words) and words[place + 1] in _FOLLOWING)
            continue
        if word in lexicon.words["faults"]:
            made.append(Piece("word", "error"))
        elif word in lexicon.words["mending"]:
            made.append(Piece("word", "fix"))
        elif word not in lexicon.words["sorts"]:
            made.append(found[place])
        place += 1
    return made


def _ends_there(found: list[Piece], place: int) -> bool:
    return all(piece.kind == "break" for piece in found[place + 1 : place + 2])
