"""What a text asks, taken apart: its question form, its terms in order, and what must be the same to the letter."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from typing import Final, Literal

from cache.verifier.clauses import is_chatter, plainly_negated, without_chatter
from cache.verifier.lexicon import Lexicon, Phrase
from cache.verifier.quantities import UNITS, spelt
from cache.verifier.scan import Piece, pieces
from cache.verifier.spelling import IsWord, corrected, is_mistyped
from cache.verifier.stems import stem
from cache.verifier.tasks import plainly_told

Sort = Literal[
    "content", "number", "date", "literal", "negation", "quantifier", "modal", "strong", "weak", "join", "break"
]

ASKS: Final = "asks"  # stands in a text where a question's form stood
MATERIAL_WORDS: Final = 2
_LABEL: Final = re.compile(
    r"^\s*(?:task|question|instruction|instructions|query|q|user|request|prompt|ask|todo|input|goal|message)\s*[:>-]\s*(?=\S)",
    re.IGNORECASE,
)
_MATERIAL: Final = re.compile(r":[ \t]+(?=\S)|:?[ \t]*\n\s*(?=\S)")
_NOT: Final = frozenset(("not", "no", "without", "nor", "non"))
_POINTING: Final = frozenset(
    ("this", "the", "these", "those", "that", "following", "below", "above", "attached", "given", "provided", "my")
)
_LONGEST_COURTESY: Final = 10
_SENTENCE: Final = re.compile(r"(?<=[.?!])\s+(?=\S)")
_SENTENCES: Final = re.compile(r"[^.?!\n]*[.?!\n]+\s*|[^.?!\n]+$")
_IF_SO: Final = re.compile(r"[,.;?!]?\s*(?:(?:and )?if so,? how|,? and how)\s*\?$", re.IGNORECASE)
_BEGINNING: Final = 80  # characters that have an instruction's first words
_LEADING_TO: Final = frozenset(("from", "in", "of", "across", "within", "on"))
_MOST_LABELS: Final = 2  # in front of an instruction, each with a colon
_RELATIVE: Final = frozenset(("that", "which", "who", "whose"))
_DIFFERING: Final = frozenset(
    ("difference", "differenc", "differ", "differ from", "different from", "differenc between")
)
_COMPARING: Final = frozenset(("from", "versus", "to"))
_LEADING_UP: Final = (
    "if",
    "when",
    "while",
    "since",
    "because",
    "given",
    "assuming",
    "after",
    "before",
    "once",
    "to",
    "as",
)
_STATING: Final = (["i", "have"], ["we", "have"], ["i", "am"], ["we", "are"], ["i", "do"], ["i", "be"], ["we", "be"])
_SEPARATED_BY: Final = 5  # words between a verb and its particle


@dataclass(frozen=True, slots=True)
class Term:
    sort: Sort
    value: str
    groups: frozenset[int] = frozenset()  # of the lexicon: with whom it shares a meaning
    phrase: Phrase = ()
    surface: str = ""  # as it was written, in lower case
    is_name: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    frame: str | None  # the form of the question
    terms: tuple[Term, ...]
    material: str | None  # what follows the instruction, verbatim
    words: tuple[str, ...]  # all of the instruction, for an exact comparison
    raw: tuple[str, ...]  # its words as they are written, slips and most courtesies too

    def of(self, *sorts: Sort) -> tuple[Term, ...]:
        return tuple(term for term in self.terms if term.sort in sorts)


def read(text: str, beside: str, lexicon: Lexicon, is_word: IsWord, *, has_material: bool = False) -> Reading:
    """`beside`: the text that it is compared with, whose words tell what a slip was meant to be.

    `has_material`: what it is about was there too, and has been taken away.
    """
    text = _LABEL.sub("", _without_courtesies(text.strip(), lexicon), count=1)
    instruction, material = _parted(text, lexicon)
    if has_material and material is not None and instructs(material, lexicon):
        instruction, material = text, None  # "Answer yes or no: is the text above right?"
    others = {piece.value for piece in pieces(beside) if piece.kind == "word"}
    given = pieces(instruction)
    found = [_spelt_out(piece, others, lexicon, is_word) for piece in given]
    words = tuple(piece.value for piece in found if piece.kind != "break")
    found = plainly_negated(without_chatter(_without(found, lexicon), lexicon))
    if has_material or material is not None:
        found = _without_pointers(found, lexicon)
    if has_material:
        found = plainly_told(found, lexicon)
    frame, found = _framed(found, lexicon)
    raw = tuple(piece.value for piece in without_chatter(_begun(given, lexicon), lexicon) if piece.kind != "break")
    material = "" if material is None and has_material else material
    frame, terms = _compared(frame, tuple(_terms(_numbered(found, lexicon), lexicon)))
    if has_material and frame == "yes_no" and any(term.value == "or" for term in terms):
        frame = "what"  # "Is it A or B?"
    return Reading(frame, terms, material, words, raw)


def _compared(frame: str | None, terms: tuple[Term, ...]) -> tuple[str | None, tuple[Term, ...]]:
    """ "How does A differ from B" and "explain the difference of A and B" in one form, without these words."""
    told = any(term.value in _DIFFERING for term in terms)
    if not told or frame not in (None, "what", "how_is", "explain", "define", "compare"):
        return frame, terms
    return "compare", tuple(
        replace(term, sort="join", value="and") if term.value in _COMPARING else term
        for term in terms
        if term.value not in _DIFFERING and term.value != "between"
    )


def _without_courtesies(text: str, lexicon: Lexicon) -> str:
    """Without whole sentences that are nothing else, where another is left."""
    text = _IF_SO.sub("?", text)
    sentences = _SENTENCES.findall(text)
    kept = [sentence for sentence in sentences if not is_chatter(pieces(sentence), lexicon)]
    return "".join(kept).strip() if len(kept) < len(sentences) and any(map(str.strip, kept)) else text


def _spelt_out(piece: Piece, others: set[str], lexicon: Lexicon, is_word: IsWord) -> Piece:
    """Without a slip, in a word that the other text has or that every text is made of."""
    if piece.kind != "word" or piece.value in lexicon.common or is_word(piece.value):
        return piece
    word = piece.value
    known = [other for other in others if is_word(other)]
    meant = corrected(word, known) or corrected(word, lexicon.common)
    if meant is None and word not in others:  # of two rare words one may be the other, badly typed
        meant = min((other for other in others if other < word and is_mistyped(word, other)), default=None)
    return piece if meant is None else replace(piece, value=meant)


def _parted(text: str, lexicon: Lexicon) -> tuple[str, str | None]:
    """The instruction, and the material that it is about: behind a colon or a line's end."""
    places = islice(_MATERIAL.finditer(text), _MOST_LABELS + 1)
    match = next((m for m in places if not _only_labels(text[: m.start()], lexicon)), None)
    if match is None and _transforms(text, lexicon):
        match = _SENTENCE.search(text)
    if match is None or len(text[match.end() :].split()) < MATERIAL_WORDS:
        return text, None
    material = " ".join(text[match.end() :].split())
    if len(material) > 1 and material[0] == material[-1] and material[0] in "\"'`":
        material = material[1:-1]
    return text[: match.start()], material.strip(" .")


def _transforms(text: str, lexicon: Lexicon) -> bool:
    """Whether it begins with a word for what is to be made of a text."""
    first = takewhile(lambda piece: piece.kind != "break", _without(pieces(text[:_BEGINNING]), lexicon))
    words = (stem(piece.value) for piece in first if piece.kind == "word")
    return any(word in lexicon.words["transforms"] for word in islice(words, 4))


def instructs(text: str, lexicon: Lexicon) -> bool:
    """Whether it begins as a question or an order does."""
    found = _without(pieces(text), lexicon)
    words = _stems(found)
    first = next((i for i, piece in enumerate(found) if piece.kind != "break"), len(found))
    orders = lexicon.words["transforms"] | lexicon.words["makes"] | lexicon.words["getting"]
    return _frame_at(words, first, lexicon)[0] is not None or bool(orders & set(words[first : first + 4]))


def _only_labels(text: str, lexicon: Lexicon) -> bool:
    """Whether what stands in front of a colon is no instruction: "Python 3", "Hi, quick question"."""
    words = [piece.value for piece in _without(pieces(text), lexicon) if piece.kind in ("word", "literal")]
    classes = [lexicon.words[name] for name in ("label", "empty", "chatter")]
    return all(any(stem(word) in known for known in classes) for word in words)


def _without(found: list[Piece], lexicon: Lexicon) -> list[Piece]:
    """Polite words go; a greeting only where a clause begins with it, and one word to somebody only in front of all."""
    words, kept, place = _stems(found), [], 0
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


def _begun(found: list[Piece], lexicon: Lexicon) -> list[Piece]:
    """Without the polite words in front."""
    words, place = _stems(found), 0
    while place < len(found) and (length := lexicon.polite.at(words, place) or (found[place].kind == "break")):
        place += length
    return found[place:]


def _stems(found: list[Piece]) -> list[str]:
    """Of words; "" for all else."""
    return [stem(piece.value) if piece.kind == "word" else "" for piece in found]


def _without_pointers(found: list[Piece], lexicon: Lexicon) -> list[Piece]:
    """Without what only points at the material: "from the text below", "this SQL query"."""
    kept: list[Piece] = []
    for piece in found:
        word = stem(piece.value) if piece.kind == "word" else ""
        points = bool(kept) and kept[-1].kind == "word" and kept[-1].value in _POINTING
        if points and word in lexicon.words["label"]:
            continue
        if points and word in lexicon.words["material"]:
            kept.pop()
            if kept and kept[-1].value in _LEADING_TO:
                kept.pop()
            continue
        kept.append(piece)
    return kept


def _framed(found: list[Piece], lexicon: Lexicon) -> tuple[str | None, list[Piece]]:
    """The form of the question, and the text with `ASKS` in its place.

    It stands at the beginning or behind a courtesy, or behind a comma or a sentence that leads up to it. Of several
    with nothing but courtesy between them the last counts: "could you let me know how long …".
    """
    start = next((i for i, piece in enumerate(found) if piece.kind != "break"), len(found))
    words = _stems(found)
    leads_up = words[start : start + 1] in ([word] for word in _LEADING_UP) or words[start : start + 2] in _STATING
    at_first = [] if leads_up else [start, *_after_courtesy(words, start, lexicon)]
    for begin in (*at_first, *_after_breaks(found), start, *_after_courtesy(words, start, lexicon)):
        frame, end = _frame_at(words, begin, lexicon)
        while frame in ("what", "yes_no"):  # "let me know …", "would you be able to …"
            places = (end - 1, end, *_after_courtesy(words, end, lexicon))
            nested = (_frame_at(words, place, lexicon) for place in places)
            further = next((f for f in nested if f[0] not in (None, "yes_no") and f[1] > end), None)
            if further is None:
                break
            frame, end = further
        if frame == "how_is" and all(piece.kind == "break" for piece in found[end:]):
            frame = "howto"  # "X, how?"
        if frame is not None:
            return frame, [*found[:begin], Piece("break", ASKS), *found[end:]]
    return None, found


def _frame_at(words: list[str], place: int, lexicon: Lexicon) -> tuple[str | None, int]:
    """The form that begins at a place, and where it ends."""
    length = lexicon.frame_phrases.at(words, place)
    return (lexicon.frames[tuple(words[place : place + length])] if length else None), place + length


def _after_courtesy(words: list[str], start: int, lexicon: Lexicon) -> Iterator[int]:
    """Places with nothing but courtesy in front of them."""
    for i in range(start, min(start + _LONGEST_COURTESY, len(words) - 1)):
        if not any(words[i] in lexicon.words[name] for name in ("courteous", "empty", "modal", "weak")) and words[i]:
            return
        yield i + 1


def _after_breaks(found: list[Piece]) -> Iterator[int]:
    for i, piece in enumerate(found[:-1]):
        if piece.kind == "break" and piece.value[0] in ",.;!\n\u2013\u2014-":
            yield i + 1
            if i + 2 < len(found) and found[i + 2].value in ("what", "which", "whom", "whose"):
                yield i + 2  # "…, at what temperature"


def _numbered(found: list[Piece], lexicon: Lexicon) -> list[Piece]:
    """Numbers in words become numbers, but not in phrases such as "two-factor authentication"."""
    stems, made, place = _stems(found), [], 0
    while place < len(found):
        if length := lexicon.phrases.at(stems, place):
            made += found[place : place + length]
            place += length
            continue
        words = [p.value if p.kind in ("word", "number") else "" for p in found[place : place + 8]]
        used, value = spelt(words)
        if used and not (used == 1 and found[place].kind == "number"):
            alone = used == 1 and words[0] == "one" and not _counts(found, place)
            if not alone:
                made.append(Piece("number", value))
            place += used
        elif made and made[-1].kind == "number" and found[place].value in UNITS:
            made.append(Piece("word", UNITS[found[place].value]))
            place += 1
        else:
            made.append(found[place])
            place += 1
    return made


def _counts(found: list[Piece], place: int) -> bool:
    """Whether a "one" is a number: "in one sentence", not "which one is"."""
    before = found[place - 1].value if place else ""
    following = found[place + 1] if place + 1 < len(found) else None
    return (
        following is not None
        and following.kind == "word"
        and before not in ("which", "this", "that", "the", "any", "another")
    )


def _terms(found: list[Piece], lexicon: Lexicon) -> Iterator[Term]:
    stems = _stems(found)
    taken: set[int] = set()
    for place, piece in enumerate(found):
        if place in taken:
            continue
        if piece.kind != "word":
            sort: Sort = piece.kind
            yield Term("join" if piece.value == "," else sort, piece.value)
            continue
        length = lexicon.phrases.at(stems, place)
        if length and not taken & set(range(place, place + length)):
            phrase = tuple(stems[place : place + length])
            taken |= set(range(place, place + length))
        elif (particle := _particle(found, stems, place, lexicon)) and particle not in taken:
            phrase = (stems[place], stems[particle])
            taken.add(particle)
        else:
            phrase = (stems[place],)
        term = _term(phrase, piece, lexicon)
        if term is not None:
            yield term


def _particle(found: list[Piece], stems: list[str], place: int, lexicon: Lexicon) -> int | None:
    """Where the rest of "turn … on" is."""
    for other in range(place + 2, min(place + 2 + _SEPARATED_BY, len(found))):
        if found[other].kind == "break":
            return None
        if (stems[place], stems[other]) in lexicon.separable:
            return other
    return None


def _term(phrase: Phrase, piece: Piece, lexicon: Lexicon) -> Term | None:
    sort = _sort(phrase, piece, lexicon)
    if sort is None:
        return None
    if piece.value in _RELATIVE:
        return Term("weak", "that")
    value = {"negation": "not", "modal": piece.value}.get(sort if piece.value in _NOT or sort == "modal" else "")
    surface = piece.value if len(phrase) == 1 else " ".join(phrase)
    groups = lexicon.groups.get(phrase, frozenset())
    return Term(sort, value or " ".join(phrase), groups, phrase, surface, piece.is_name)


def _sort(phrase: Phrase, piece: Piece, lexicon: Lexicon) -> Sort | None:
    """None: it says nothing."""
    word = " ".join(phrase)
    if len(phrase) > 1:
        return "quantifier" if word in lexicon.words["quantifier"] else "content"
    if word in ("and", "or", "versus"):
        return "join"
    if piece.value in _NOT:
        return "negation"
    if piece.value in lexicon.words["modal"]:
        return "modal"
    sorts: tuple[Sort, ...] = ("negation", "quantifier", "strong", "weak")
    known: Sort = next((sort for sort in sorts if word in lexicon.words[sort]), "content")
    if known == "content" and piece.value in _RELATIVE:
        return "weak"
    return None if known == "content" and (word == "'s" or word in lexicon.words["empty"]) else known
