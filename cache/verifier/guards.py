"""Why a stored answer must not be given to another text. Each guard looks for one kind of difference. Pure."""

from collections.abc import Callable, Iterator
from itertools import pairwise, product
from typing import Final

from cache.verifier.alignment import Pair
from cache.verifier.lexicon import Lexicon
from cache.verifier.order import same_roles
from cache.verifier.prepositions import same_prepositions
from cache.verifier.reading import Reading
from cache.verifier.term import Term

Guard = Callable[[Pair, Lexicon], bool]

# Forms of a question that ask for the same.
_SAME_QUESTION: Final = {
    frozenset(forms)
    for forms in (
        (None, "what"), ("what", "define"), ("define", "explain"), ("when", "when_time"), ("when", "when_day"),
        ("when", "when_year"),
    )
}  # fmt: skip
_PREFIXES: Final = frozenset(
    ("un", "dis", "de", "in", "im", "ir", "il", "non", "re", "mis", "anti", "over", "under", "pre", "post")
)  # fmt: skip
_SYMMETRIC: Final = frozenset(("difference", "differ", "similarity", "distance", "common", "versus"))
_BEFORE_GERUNDS: Final = frozenset(
    (
        "of", "for", "by", "when", "while", "before", "after", "from", "without", "not", "to", "in", "on",
        "with", "is", "are", "am", "be", "been", "was", "were", "i", "you", "we", "they", "it", "avoid",
        "start", "stop", "keep", "like", "mind", "about", "than", "and", "or", "if", "since", "until", "at",
        "as", "go", "try", "worth", "person", "people", "someone", "who", "that",
    )
)  # fmt: skip
_SHORT: Final = frozenset(
    ("a", "an", "the", "is", "are", "it", "of", "in", "on", "to", "for", "do", "does", "i", "my", "me", "we", "you",
     "how", "what", "which", "can", "could", "would", "this", "that", "these", "there", "here", "'s")
)  # fmt: skip
_ONE_SIDED: Final = frozenset(("than", "more", "less", "better", "worse", "from", "to", "into", "over"))


def polarity(pair: Pair, _: Lexicon) -> bool:
    return bool(pair.left("negation"))


def antonym(pair: Pair, lexicon: Lexicon) -> bool:
    return any(
        frozenset((x.phrase, y.phrase)) in lexicon.opposites
        or _prefixed(x.value, y.value)
        or _prefixed(y.value, x.value)
        for x in pair.left_a
        for y in pair.left_b
        if x.phrase and y.phrase
    )


def sibling(pair: Pair, lexicon: Lexicon) -> bool:
    return any(
        frozenset((x.phrase, y.phrase)) in lexicon.siblings
        for x in pair.left_a
        for y in pair.left_b
        if x.phrase and y.phrase
    )


def number(pair: Pair, _: Lexicon) -> bool:
    return bool(pair.left("number"))


def date(pair: Pair, _: Lexicon) -> bool:
    return bool(pair.left("date"))


def entity(pair: Pair, _: Lexicon) -> bool:
    if any(term.is_name for term in pair.left("content")):
        return True
    careful = pair.a.begins_large and pair.b.begins_large  # then a capital letter says something
    return careful and any(x.is_name != y.is_name and _is_plural(x.surface, y.surface) for x, y in _matched(pair))


def _is_plural(one: str, other: str) -> bool:
    return one in (other, f"{other}s") or other == f"{one}s"


def roles(pair: Pair, _: Lexicon) -> bool:
    by = [any(term.value == "by" for term in reading.of("weak")) for reading in (pair.a, pair.b)]
    if by[0] != by[1] and _values_in_order(pair):
        return True  # "A replaced B", "A was replaced by B"
    symmetric = all(reading.frame == "compare" or _is_symmetric(reading) for reading in (pair.a, pair.b))
    return not same_roles(pair.kept_a, pair.kept_b, symmetric=symmetric)


def _values_in_order(pair: Pair) -> bool:
    """Whether both say the same words in the same order, what is left over apart."""
    one, other = ([term.value for term in kept if term.sort == "content"] for kept in (pair.kept_a, pair.kept_b))
    return one == other


def join(pair: Pair, _: Lexicon) -> bool:
    """ "A and B" is neither "A or B" nor "A B"."""
    joins = [{term.value for term in reading.of("join")} - {",", "versus"} for reading in (pair.a, pair.b)]
    return joins[0] != joins[1] and pair.a.frame != "compare"


def quantifier(pair: Pair, _: Lexicon) -> bool:
    return bool(pair.left("quantifier"))


def literal(pair: Pair, _: Lexicon) -> bool:
    return bool(pair.left("literal"))


def material(pair: Pair, _: Lexicon) -> bool:
    return pair.a.material != pair.b.material


def wording(pair: Pair, lexicon: Lexicon) -> bool:
    """What is asked about words themselves: no other form of one, and no other word, will do."""
    if pair.a.material is not None or not (is_of_words(pair.a, lexicon) or is_of_words(pair.b, lexicon)):
        return False
    if any(term.sort == "literal" for term in pair.a.terms) and not pair.left("literal"):
        return False
    return bool((set(pair.a.raw) ^ set(pair.b.raw)) - _SHORT)


def is_of_words(reading: Reading, lexicon: Lexicon) -> bool:
    """Whether it may ask about words: how they are spelt, what they are called, what they are elsewhere."""
    return any(lexicon.of_words.at(list(reading.raw), place) for place in range(len(reading.raw)))


def form(pair: Pair, _: Lexicon) -> bool:
    """Where a question has hardly a word that says something, those that say little make it another one; and what one
    does is not what is made of it: "training" and "a train"."""
    if pair.a.orders_one != pair.b.orders_one and {pair.a.frame, pair.b.frame} <= {"what", "wish"}:
        return True  # "Tell me a joke", "What is a joke?"
    if pair.a.material is None and min(_weight(pair.a), _weight(pair.b)) <= 1:
        return pair.a.rest != pair.b.rest or not _same_surfaces(pair)
    return any(_is_another_noun(x, y, pair) for x, y in _matched(pair))


def _weight(reading: Reading) -> int:
    return len(reading.of("content", "number", "date", "literal"))


def _matched(pair: Pair) -> Iterator[tuple[Term, Term]]:
    """Terms of one name."""
    others = {term.value: term for term in pair.kept_b if term.sort == "content"}
    for term in pair.kept_a:
        if term.sort == "content" and term.value in others:
            yield term, others[term.value]


def _same_surfaces(pair: Pair) -> bool:
    return all(x.surface == y.surface or x.phrase != y.phrase for x, y in _matched(pair))


def _is_another_noun(x: Term, y: Term, pair: Pair) -> bool:
    """ "frosting" and "frost"; also "Robin Williams" and "Robin William"."""
    if x.phrase != y.phrase or x.surface == y.surface:
        return False
    if x.is_name and y.is_name:
        return True
    for one, other, reading in ((x, y, pair.a), (y, x, pair.b)):
        if one.surface.endswith("ing") and not other.surface.endswith(("ing", "ed")):
            place = reading.raw.index(one.surface) if one.surface in reading.raw else 0
            return place > 0 and reading.raw[place - 1] not in _BEFORE_GERUNDS
    return False


def notation(pair: Pair, _: Lexicon) -> bool:
    """What marks between numbers and names say: brackets, "5!"."""
    return pair.a.marks != pair.b.marks


def constraint(pair: Pair, lexicon: Lexicon) -> bool:
    return any(len(t.phrase) == 1 and t.value in lexicon.words["constraint"] for t in pair.left("content"))


def modality(pair: Pair, lexicon: Lexicon) -> bool:
    return (
        (pair.a.frame == pair.b.frame and _mode(pair.a) != _mode(pair.b))
        or _tenses(pair.a) * _tenses(pair.b) < 0
        or bool({t.value for t in pair.left("modal")} - _TENSES)
        or any(t.value in lexicon.words["other_person"] for t in pair.left("content"))
    )


def relation(pair: Pair, _: Lexicon) -> bool:
    """Prepositions and the like that are in one only; "stop to" is not "stop"."""
    aims = [
        {first for first, second in pairwise(reading.raw) if second == "to"} & _AIMING for reading in (pair.a, pair.b)
    ]
    return bool(pair.left("strong")) or aims[0] != aims[1] or not _same_prepositions(pair)


def _same_prepositions(pair: Pair) -> bool:
    terse = any(reading.frame is None and not reading.of("weak") for reading in (pair.a, pair.b))  # words for a search
    return terse or pair.a.material is not None or same_prepositions(pair.kept_a, pair.kept_b)


def question(pair: Pair, lexicon: Lexicon) -> bool:
    a, b = (_wished(reading, other, lexicon) for reading, other in ((pair.a, pair.b), (pair.b, pair.a)))
    if (
        a == b
        or frozenset((a, b)) in _SAME_QUESTION
        or _names_what_it_asks(pair.a, b)
        or _names_what_it_asks(pair.b, a)
    ):
        return False
    orders = any(reading.frame is None and _DETERMINING & set(reading.raw) for reading in (pair.a, pair.b))
    return {a, b} != {None, "howto"} or orders or _makes(pair.a, lexicon) or _makes(pair.b, lexicon)


_DETERMINING: Final = frozenset(("a", "an", "the", "my", "your", "this", "these", "me", "it"))
_ABLE: Final = frozenset(("can", "could", "may", "able"))
_DUTIES: Final = frozenset(
    ("must", "required", "mandatory", "obligatory", "obliged", "compulsory", "necessary", "ought")
)
_TO_BE_DONE: Final = frozenset(product(("have", "has", "had", "need", "needs", "needed", "got"), ("to",)))
# Of forms of a question: words that say the same in a text without one.
_NAMING: Final = {
    "when": frozenset(("time", "date", "day", "year", "month", "deadline")),
    "where": frozenset(("place", "location", "address", "whereabouts")),
    "how_many": frozenset(("number", "count")),
    "how_much": frozenset(("amount", "price", "cost")),
    "how_long": frozenset(("duration",)),
}


def _wished(reading: Reading, other: Reading, lexicon: Lexicon) -> str | None:
    """ "I need to do it" asks how to do it where the other text does, unless it may want something made."""
    if reading.frame != "wish":
        return reading.frame
    first = next(iter(reading.of("content")), None)
    composes = first is not None and first.value in lexicon.words["composes"]
    return "howto" if other.frame == "howto" and not composes else "what"


def _names_what_it_asks(reading: Reading, form: str | None) -> bool:
    """ "Best time to visit Rome" asks when."""
    return reading.frame in (None, "what") and bool(_NAMING.get(form or "", frozenset()) & set(reading.raw))


_PAST: Final = frozenset(("did", "was", "were", "had"))
_PRESENT: Final = frozenset(("does", "is", "are", "do", "has", "have"))
_AIMING: Final = frozenset(form for word in ("stop", "remember", "forget", "regret") for form in (word, f"{word}s"))
_TENSES: Final = frozenset(("did", "was", "were"))  # which the form of a verb may say as well


def _mode(reading: Reading) -> str:
    """Of a question with a yes or no, or with a measure: whether it is about what must be, can be, or is."""
    form, words = reading.frame or "", set(reading.raw)
    if form == "yes_no" and (_DUTIES & words or _TO_BE_DONE & set(pairwise(reading.raw))):
        return "must"
    measures = form == "yes_no" or (form.startswith("how_") and form != "how_is") or form == "who"
    return "can" if measures and _ABLE & words else ""


def _tenses(reading: Reading) -> int:
    """1: of the past only, -1: of the present only, 0: neither or both."""
    words = set(reading.words)
    return bool(words & _PAST) - bool(words & _PRESENT)


GUARDS: Final[dict[str, Guard]] = {
    "polarity": polarity, "antonym": antonym, "sibling": sibling, "number": number, "date": date, "entity": entity,
    "roles": roles, "quantifier": quantifier, "join": join, "literal": literal, "material": material,
    "constraint": constraint, "modality": modality, "wording": wording, "form": form, "relation": relation,
    "question": question, "notation": notation,
}  # fmt: skip


def _prefixed(longer: str, word: str) -> bool:
    return len(word) > 2 and longer != word and longer.endswith(word) and longer.removesuffix(word) in _PREFIXES


def _makes(reading: Reading, lexicon: Lexicon) -> bool:
    """Whether it may want something made from something, so that "how" is another question."""
    first = next(iter(reading.of("content", "literal", "number")), None)
    return (
        first is None
        or first.sort != "content"
        or first.value in lexicon.words["makes"]
        or reading.material is not None
    )


def _is_symmetric(reading: Reading) -> bool:
    """Whether it is about things side by side, whatever their order."""
    if _ONE_SIDED & set(reading.words):
        return False
    return any(_SYMMETRIC & set(term.phrase or (term.value,)) for term in reading.terms)


def left_content(pair: Pair, lexicon: Lexicon) -> tuple[list[Term], list[Term]]:
    """What either side says more, courtesies apart."""

    def said(left: tuple[Term, ...]) -> list[Term]:
        return [t for t in left if t.sort == "content" and t.value not in lexicon.words["courteous"]]

    return said(pair.left_a), said(pair.left_b)
