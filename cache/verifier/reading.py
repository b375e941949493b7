"""What a text asks, taken apart: its question form, its terms in order, and what must be the same to the letter."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cache.verifier.clauses import plainly_negated, without_chatter
from cache.verifier.courtesy import begun, without_courtesies, without_polite
from cache.verifier.forms import ASKS, framed, settled
from cache.verifier.lexicon import Lexicon, Phrase
from cache.verifier.material import instructs, parted, without_pointers
from cache.verifier.quantities import MULTIPLES, UNITS, multiplied, spelt
from cache.verifier.scan import Piece, pieces, stems_of
from cache.verifier.spelling import IsWord, corrected, is_mistyped
from cache.verifier.tasks import plainly_told
from cache.verifier.term import Sort, Term

_LABEL: Final = re.compile(
    r"^\s*(?:step(?: \d+)?|task|question|instruction|instructions|query|q|user|request|prompt|ask|todo|input|goal"
    r"|message)\s*[:>-]\s*(?=\S)",
    re.IGNORECASE,
)
_NOT: Final = frozenset(("not", "no", "without", "nor", "non"))
_ARTICLES: Final = frozenset(("a", "an", "the", "is", "are", "am", "be", "it", "of"))
_ALONE: Final = re.compile(r"(?<=\s)(?:[^\w\s,&\u2013\u2014-]+)(?=\s)")
_ORDERING_ONE: Final = re.compile(
    r"^\W*(?:please |can you |could you )*(?:(?:tell|give|name|show|get|send|find)(?: me| us)?"
    r"|i (?:need|want|would like)|(?:i am |i'm )?looking for) (?:an?|some|another)\b",
    re.IGNORECASE,
)
_FORMULA: Final = re.compile(r"[\w)] ?[-+*/^%] ?[\d(a-z]\b|\d!|[)(] ?[-+*/^]|\(\w\)")
_MARKS: Final = re.compile(r"[()\[\]{}!^]|(?<=\d) ?-(?= ?\d)|\b\w\b")
_DETERMINERS: Final = frozenset(
    (
        "a",
        "an",
        "the",
        "my",
        "your",
        "our",
        "his",
        "her",
        "its",
        "their",
        "this",
        "that",
        "these",
        "those",
        "each",
        "every",
    )
)
_WHICH: Final = frozenset(("when", "where", "what", "who", "whom", "which", "if", "whether"))
_RELATIVE: Final = frozenset(("that", "which", "who", "whose"))
_SEPARATED_BY: Final = 5  # words between a verb and its particle


@dataclass(frozen=True, slots=True)
class Reading:
    frame: str | None  # the form of the question
    terms: tuple[Term, ...]
    material: str | None  # what follows the instruction, verbatim
    words: tuple[str, ...]  # all of the instruction, for an exact comparison
    raw: tuple[str, ...]  # its words as they are written, slips and most courtesies too
    marks: str  # brackets and the like, where there is something to calculate or to parse
    begins_large: bool
    names: frozenset[str]  # words that begin with a capital letter where others do not
    orders_one: bool  # "Give me a …"
    rest: frozenset[str]  # of those behind courtesies and the question's form, the ones that say little

    def of(self, *sorts: Sort) -> tuple[Term, ...]:
        return tuple(term for term in self.terms if term.sort in sorts)


def read(text: str, beside: str, lexicon: Lexicon, is_word: IsWord, *, has_material: bool = False) -> Reading:
    """`beside`: the text that it is compared with, whose words tell what a slip was meant to be.

    `has_material`: what it is about was there too, and has been taken away.
    """
    text = _LABEL.sub("", without_courtesies(text.strip(), lexicon), count=1)
    instruction, material = parted(text, lexicon)
    if has_material and material is not None and instructs(material, lexicon):
        instruction, material = text, None  # "Answer yes or no: is the text above right?"
    others = {piece.value: piece.is_name for piece in pieces(beside) if piece.kind == "word"}
    given = pieces(instruction)
    found = [_spelt_out(piece, others, lexicon, is_word) for piece in given]
    words = tuple(piece.value for piece in found if piece.kind != "break")
    found = plainly_negated(without_chatter(without_polite(without_chatter(found, lexicon), lexicon), lexicon))
    if has_material or material is not None:
        found = without_pointers(found, lexicon)
    if has_material:
        found = plainly_told(found, lexicon)
    frame, found = framed(found, lexicon)
    raw = tuple(piece.value for piece in without_chatter(begun(given, lexicon), lexicon) if piece.kind != "break")
    material = "" if material is None and has_material else material
    rest = frozenset(piece.value for piece in found if piece.kind == "word" and _says_little(piece, lexicon))
    frame, terms = settled(frame, tuple(_terms(_numbered(found, lexicon), lexicon)), lexicon)
    if has_material and frame == "yes_no" and any(term.value == "or" for term in terms):
        frame = "what"  # "Is it A or B?"
    terms = tuple(replace(term, surface=frame or "") if term.value == ASKS else term for term in terms)
    marks = "".join(_MARKS.findall(instruction)) if _FORMULA.search(instruction) else ""
    marks += " ".join(_ALONE.findall(instruction))
    names = frozenset(piece.value for piece in given if piece.is_name)
    orders = bool(_ORDERING_ONE.search(instruction))
    return Reading(
        frame,
        terms,
        material,
        words,
        raw,
        marks,
        instruction[:1].isupper() and not instruction.isupper(),
        names,
        orders,
        rest,
    )


def _says_little(piece: Piece, lexicon: Lexicon) -> bool:
    return any(piece.value in lexicon.form[name] for name in ("empty", "weak")) and piece.value not in _ARTICLES


def _spelt_out(piece: Piece, others: Mapping[str, bool], lexicon: Lexicon, is_word: IsWord) -> Piece:
    """Without a slip, in a word that the other text has or that every text is made of.

    `others`: the words of the other text, and whether each is a name; a name is a slip of a name only.
    """
    if piece.kind != "word" or piece.value in lexicon.common or is_word(piece.value):
        return piece
    word = piece.value
    known = [other for other, is_name in others.items() if is_word(other) and (is_name or not piece.is_name)]
    meant = corrected(word, known) or corrected(word, lexicon.common)
    if meant is None and word not in others:  # of two rare words one may be the other, badly typed
        meant = min((other for other in others if other < word and is_mistyped(word, other)), default=None)
    return piece if meant is None else replace(piece, value=meant)


def _numbered(found: list[Piece], lexicon: Lexicon) -> list[Piece]:
    """Numbers in words become numbers, but not in phrases such as "two-factor authentication"."""
    stems, place = stems_of(found), 0
    made: list[Piece] = []
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
        elif made and made[-1].kind == "number" and found[place].value in MULTIPLES:
            made[-1] = Piece("number", multiplied(made[-1].value, found[place].value))
            place += 1
        elif made and made[-1].kind == "number" and _is_unit(found, place):
            made.append(Piece("word", UNITS[found[place].value]))
            place += 1
        else:
            made.append(found[place])
            place += 1
    return made


def _is_unit(found: list[Piece], place: int) -> bool:
    """Whether a word behind a number is one; "in" is a preposition where another word follows."""
    is_preposition = found[place].value == "in" and any(piece.kind == "word" for piece in found[place + 1 : place + 2])
    return found[place].value in UNITS and not is_preposition


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
    stems = stems_of(found)
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
            places: Sequence[int] = range(place, place + length)
        elif (particle := _particle(found, stems, place, lexicon)) and particle not in taken:
            places = (place, particle)
        else:
            places = (place,)
        taken |= set(places)
        phrase = tuple(stems[i] for i in places)
        written = " ".join(found[i].value for i in places)
        term = _term(
            phrase,
            piece,
            lexicon,
            infinitive=not _is_noun(found, place + 1),
            leads=stems[place + 1 : place + 2] == ["to"],
        )
        if term is not None:
            yield term if len(places) == 1 else replace(term, surface=written)


def _is_noun(found: list[Piece], place: int) -> bool:
    return place < len(found) and (
        found[place].value in _DETERMINERS or found[place].is_name or found[place].kind != "word"
    )


def _particle(found: list[Piece], stems: list[str], place: int, lexicon: Lexicon) -> int | None:
    """Where the rest of "turn … on" is."""
    for other in range(place + 2, min(place + 2 + _SEPARATED_BY, len(found))):
        if found[other].kind == "break":
            return None
        if (stems[place], stems[other]) in lexicon.separable:
            return other
    return None


def _term(phrase: Phrase, piece: Piece, lexicon: Lexicon, *, infinitive: bool, leads: bool) -> Term | None:
    """`infinitive`: a "to" there leads to a verb; `leads`: a "to" follows."""
    sort = _sort(phrase, piece, lexicon, leads=leads)
    if sort is None:
        return None
    if sort == "weak" and piece.value == "to" and infinitive:
        return Term("weak", "")
    if sort == "weak" and piece.value in _RELATIVE:
        return Term("weak", "that")
    value = {"negation": "not", "modal": piece.value}.get(sort if piece.value in _NOT or sort == "modal" else "")
    groups = lexicon.groups.get(phrase, frozenset())
    return Term(sort, value or " ".join(phrase), groups, phrase, piece.value, piece.is_name)


def _sort(phrase: Phrase, piece: Piece, lexicon: Lexicon, *, leads: bool) -> Sort | None:
    """None: it says nothing."""
    if len(phrase) > 1:
        return "quantifier" if " ".join(phrase) in lexicon.words["quantifier"] else "content"
    if piece.value in ("and", "or", "versus"):
        return "join"
    if piece.value in _NOT:
        return "negation"
    if piece.is_title:
        return "content"  # "vitamin A", "a GET request"
    return "strong" if leads and piece.value in _WHICH else _sort_by_form(piece.value, lexicon)


def _sort_by_form(word: str, lexicon: Lexicon) -> Sort | None:
    sorts: tuple[Sort, ...] = ("modal", "negation", "quantifier", "strong", "weak")
    known: Sort = next((sort for sort in sorts if word in lexicon.form[sort]), "content")
    if known == "content" and word in _RELATIVE:
        return "weak"
    return None if known == "content" and (word == "'s" or word in lexicon.form["empty"]) else known
