"""What a request is about, told from what is to be done with it. Pure."""

import re
from itertools import islice, takewhile
from typing import Final

from cache.verifier.courtesy import without_polite
from cache.verifier.forms import form_at
from cache.verifier.lexicon import Lexicon
from cache.verifier.scan import Piece, pieces, stems_of
from cache.verifier.stems import stem

MATERIAL_WORDS: Final = 2
_MATERIAL: Final = re.compile(r":[ \t]+(?=\S)|:?[ \t]*\n\s*(?=\S)")
_SENTENCE: Final = re.compile(r"(?<=[.?!])\s+(?=\S)")
_POINTING: Final = frozenset(
    ("this", "the", "these", "those", "that", "following", "below", "above", "attached", "given", "provided", "my")
)
_THERE: Final = frozenset(("above", "below", "underneath", "following"))
_GENERAL: Final = frozenset(map(stem, ("text", "passage", "input", "snippet", "excerpt", "following")))
_LEADING_TO: Final = frozenset(("from", "in", "of", "across", "within", "on"))
_BEGINNING: Final = 80  # characters that have an instruction's first words
_MOST_LABELS: Final = 2  # in front of an instruction, each with a colon


def parted(text: str, lexicon: Lexicon) -> tuple[str, str | None]:
    """The instruction, and the material that it is about: behind a colon or a line's end."""
    places = islice(_MATERIAL.finditer(text), _MOST_LABELS + 1)
    match = next((m for m in places if not only_labels(text[: m.start()], lexicon)), None)
    if match is None and _transforms(text, lexicon):
        match = _SENTENCE.search(text)
    if match is None or len(text[match.end() :].split()) < MATERIAL_WORDS:
        return text, None
    material = _laid_out(text[match.end() :])
    if len(material) > 1 and material[0] == material[-1] and material[0] in "\"'`":
        material = material[1:-1]
    return text[: match.start()], material.strip(" .")


def _laid_out(text: str) -> str:
    """Its lines, where their beginnings say something, as those of code do; else its words."""
    lines = [line.rstrip() for line in text.strip("\n").splitlines()]
    return "\n".join(lines) if any(line[:1] in " \t" for line in lines[1:] if line) else " ".join(text.split())


def _transforms(text: str, lexicon: Lexicon) -> bool:
    """Whether it begins with a word for what is to be made of a text."""
    first = takewhile(lambda piece: piece.kind != "break", without_polite(pieces(text[:_BEGINNING]), lexicon))
    words = (stem(piece.value) for piece in first if piece.kind == "word")
    return any(word in lexicon.words["transforms"] for word in islice(words, 4))


def instructs(text: str, lexicon: Lexicon) -> bool:
    """Whether it begins as a question or an order does."""
    found = without_polite(pieces(text), lexicon)
    words = stems_of(found)
    first = next((i for i, piece in enumerate(found) if piece.kind != "break"), len(found))
    orders = lexicon.words["transforms"] | lexicon.words["makes"] | lexicon.words["getting"]
    return form_at(words, first, lexicon)[0] is not None or bool(orders & set(words[first : first + 4]))


def only_labels(text: str, lexicon: Lexicon) -> bool:
    """Whether what stands in front of a colon is no instruction: "Python 3", "Hi, quick question"."""
    words = [piece.value for piece in without_polite(pieces(text), lexicon) if piece.kind in ("word", "literal")]
    classes = [lexicon.words[name] for name in ("label", "empty", "chatter")]
    return all(any(stem(word) in known for known in classes) for word in words)


def without_pointers(found: list[Piece], lexicon: Lexicon) -> list[Piece]:
    """Without what only points at the material: "from the text below", "this SQL query"."""
    kept: list[Piece] = []
    for place, piece in enumerate(found):
        word = stem(piece.value) if piece.kind == "word" else ""
        points = bool(kept) and kept[-1].kind == "word" and kept[-1].value in _POINTING
        loosely = points and kept[-1].value in ("the", "my")  # "the letter" may be what is to be written
        there = place + 1 < len(found) and found[place + 1].value in _THERE
        if loosely and not (there or word in _GENERAL or (len(kept) > 1 and kept[-2].value in _LEADING_TO)):
            points = False
        if points and word in lexicon.words["label"]:
            continue
        if points and word in lexicon.words["material"]:
            kept.pop()
            if kept and kept[-1].value in _LEADING_TO:
                kept.pop()
            continue
        kept.append(piece)
    return kept
