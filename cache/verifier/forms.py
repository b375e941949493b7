"""The form of a question: "how do I", "what is the difference between", "is it". Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from cache.verifier.lexicon import Lexicon
from cache.verifier.scan import Piece, stems_of
from cache.verifier.term import Term

ASKS: Final = "asks"  # stands in a text where a question's form stood
_LONGEST_COURTESY: Final = 10
_DIFFERING: Final = frozenset(
    ("difference", "differenc", "differ", "differ from", "different from", "differenc between")
)
_COMPARABLE: Final = (None, "what", "how_is", "explain", "define", "compare")
_COMPARING: Final = frozenset(("from", "versus", "to"))
_NOUNS_TOO: Final = frozenset(
    (
        "return",
        "stat",
        "state",
        "output",
        "print",
        "share",
        "shar",
        "nam",
        "name",
        "display",
        "show",
        "count",
        "need",
        "want",
        "say",
    )
)
_DETERMINING: Final = frozenset(
    (
        "the", "a", "an", "me", "us", "all", "every", "each", "any", "some", "your", "my", "its", "this",
        "thes", "these", "only", "just", "one", "two", "three", "four", "five", "six", "ten", "if", "whether",
        "how", "what", "which", "",
    )
)  # fmt: skip
_ARTICLES: Final = frozenset(("the", "a", "an"))
_ASKING_LAST: Final = frozenset(("what", "which", "how", "who", "whom", "when", "where"))
_LEADING_UP: Final = frozenset(
    ("if", "when", "while", "since", "because", "given", "assuming", "after", "before", "once", "to", "as")
)  # fmt: skip
_STATING: Final = (["i", "have"], ["we", "have"], ["i", "be"], ["we", "be"], ["i", "do"])


def framed(found: list[Piece], lexicon: Lexicon) -> tuple[str | None, list[Piece]]:
    """The form of the question, and the text with `ASKS` in its place.

    It stands at the beginning or behind a courtesy, or behind a comma or a sentence that leads up to it. Of several
    with nothing but courtesy between them the last counts: "could you let me know how long …".
    """
    start = next((i for i, piece in enumerate(found) if piece.kind != "break"), len(found))
    words = stems_of(found)
    leads_up = bool(_LEADING_UP & set(words[start : start + 1])) or words[start : start + 2] in _STATING
    at_first = [] if leads_up else [start, *_after_courtesy(words, start, lexicon)]
    for begin in (*at_first, *_after_breaks(found), start, *_after_courtesy(words, start, lexicon)):
        frame, end = form_at(words, begin, lexicon)
        while frame in ("what", "yes_no", "how_is"):  # "let me know …", "would you be able to …", "tell me how much …"
            places = (end - 1,) if frame == "how_is" else (end - 1, end, *_after_courtesy(words, end, lexicon))
            nested = (form_at(words, place, lexicon) for place in places)
            further = next((f for f in nested if f[0] not in (None, "yes_no") and f[1] > end), None)
            if further is None:
                break
            frame, end = further
        if frame == "how_is" and all(piece.kind == "break" for piece in found[end:]):
            frame = "howto"  # "X, how?"
        if frame == "yes_no" and begin > start and not _says_something(words[end:], lexicon):
            continue  # "…, isn't it?"
        if frame is not None:
            return frame, [*found[:begin], Piece("break", ASKS), *found[end:]]
    return _asked_last(found, words, lexicon)


def _says_something(words: list[str], lexicon: Lexicon) -> bool:
    return any(
        word and not any(word in lexicon.words[name] for name in ("empty", "negation", "modal", "other_person"))
        for word in words
    )


def _asked_last(found: list[Piece], words: list[str], lexicon: Lexicon) -> tuple[str | None, list[Piece]]:
    """ "The module requires which version?"."""
    if found and "?" in found[-1].value:
        for place in range(1, len(found) - 1):
            frame, end = form_at(words, place, lexicon)
            if frame is not None and found[place].value in _ASKING_LAST:
                return frame, [*found[:place], Piece("break", ASKS), *found[end:]]
    return None, found


def form_at(words: list[str], place: int, lexicon: Lexicon) -> tuple[str | None, int]:
    """The form that begins at a place, and where it ends."""
    length = lexicon.frame_phrases.at(words, place)
    owned = words[place + 2 : place + 3] == ["'s"]  # "name France's capital"
    if length == 1 and words[place] in _NOUNS_TOO and not (owned or _DETERMINING & set(words[place + 1 : place + 2])):
        length = 0  # "return flights"
    return (lexicon.frames[tuple(words[place : place + length])] if length else None), place + length


def _after_courtesy(words: list[str], start: int, lexicon: Lexicon) -> Iterator[int]:
    """Places with nothing but courtesy in front of them."""
    for i in range(start, min(start + _LONGEST_COURTESY, len(words) - 1)):
        if not any(words[i] in lexicon.words[name] for name in ("courteous", "empty", "modal", "weak")) and words[i]:
            return
        if words[i] in _ARTICLES:
            return  # "the return on investment" orders nothing
        yield i + 1


def _after_breaks(found: list[Piece]) -> Iterator[int]:
    for i, piece in enumerate(found[:-1]):
        if piece.kind == "break" and piece.value[0] in ",.;!\n\u2013\u2014-":
            yield i + 1
            if i + 2 < len(found) and found[i + 2].value in ("what", "which", "whom", "whose"):
                yield i + 2  # "…, at what temperature"


def settled(form: str | None, terms: tuple[Term, ...], lexicon: Lexicon) -> tuple[str | None, tuple[Term, ...]]:
    """One form for several ways to ask the same: "how does A differ from B" and "the difference of A and B", "how high
    is it" and "what is the height of it", "who wrote it" and "the writer of it"."""
    if any(term.value in _DIFFERING for term in terms) and form in _COMPARABLE:
        return "compare", tuple(
            replace(term, sort="join", value="and") if term.value in _COMPARING else term
            for term in terms
            if term.value not in _DIFFERING and term.value != "between"
        )
    head = _head(terms)
    if head is None:
        return form, terms
    rest = (*terms[:head], *terms[head + 1 :])
    value = terms[head].value
    if form == "how_is" and value in lexicon.measures:
        return lexicon.measures[value], rest
    followed = head + 1 < len(terms) and terms[head + 1].value == "of"
    if form in (None, "what", "define") and value in lexicon.measured and (followed or form is None):
        return lexicon.measured[value], rest
    if form in (None, "what", "who") and followed and value in lexicon.doers:
        done = replace(terms[head], value=lexicon.doers[value], phrase=(lexicon.doers[value],), groups=frozenset())
        return "who", (*terms[:head], done, *terms[head + 2 :])
    return form, terms


def _head(terms: Sequence[Term]) -> int | None:
    """Where the first word behind the question's form is."""
    asks = next((i for i, term in enumerate(terms) if term.value == ASKS), -1)
    head = next((i for i in range(asks + 1, len(terms)) if terms[i].sort not in ("break", "modal")), None)
    return head if head is not None and terms[head].sort in ("content", "quantifier") else None
