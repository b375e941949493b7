"""A text without its courtesies. Pure."""

import re
from typing import Final

from cache.verifier.clauses import is_chatter
from cache.verifier.lexicon import Lexicon
from cache.verifier.scan import Piece, pieces, stems_of
from cache.verifier.stems import stem

_ALWAYS: Final = frozenset(map(stem, ("please", "kindly", "pls", "basically")))
_HELLO: Final = frozenset(("hi", "hello", "hey", "so", "ok", "okay"))
_SENTENCES: Final = re.compile(r"[^.?!\n]*[.?!\n]+\s*|[^.?!\n]+$")
_IF_SO: Final = re.compile(r"[,.;?!]?\s*(?:(?:and )?if so,? how|,? and how)\s*\?$", re.IGNORECASE)


def without_courtesies(text: str, lexicon: Lexicon) -> str:
    """Without whole sentences that are nothing else, where another is left."""
    text = _IF_SO.sub("?", text)
    sentences = _SENTENCES.findall(text)
    kept = [sentence for sentence in sentences if not is_chatter(pieces(sentence), lexicon)]
    return "".join(kept).strip() if len(kept) < len(sentences) and any(map(str.strip, kept)) else text


def without_polite(found: list[Piece], lexicon: Lexicon) -> list[Piece]:
    """Polite words go; a greeting only where a clause begins with it, and one word to somebody only in front of all."""
    words, place = stems_of(found), 0
    kept: list[Piece] = []
    while place < len(found):
        length = lexicon.polite.at(words, place)
        if length and not _is_apart(found, words, place, length, first=not kept):
            length = 0
        if length:
            place += length
        else:
            kept.append(found[place])
            place += 1
    return kept


def begun(found: list[Piece], lexicon: Lexicon) -> list[Piece]:
    """Without the polite words in front."""
    words, place = stems_of(found), 0
    while place < len(found) and (length := lexicon.polite.at(words, place) or (found[place].kind == "break")):
        place += length
    return found[place:]


def _is_apart(found: list[Piece], words: list[str], place: int, length: int, *, first: bool) -> bool:
    """Whether a polite phrase is one there: in front of all, or where a clause begins or ends, if it is not a word like
    any other ("a thank you note", "team names")."""
    ends = place + length == len(found) or found[place + length].kind == "break"
    begins = first or found[place - 1].kind == "break"
    if length == 1:
        return words[place] in _ALWAYS or (ends and begins) or (first and words[place] in _HELLO)
    return begins or ends
