"""A text without its courtesies. Pure."""

import re
from typing import Final

from cache.verifier.clauses import is_chatter
from cache.verifier.lexicon import Lexicon
from cache.verifier.scan import Piece, pieces, stems_of

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
        if length == 1 and words[place] in lexicon.words["greeting"] and kept:
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
