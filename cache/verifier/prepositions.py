"""How the words of a text hang together: which preposition leads to which. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from cache.verifier.term import Term

# Of each, one stands for another in nearly every request.
_CLASSES: Final = (
    ("in", "on", "at", "within", "upon"),
    ("to", "into", "onto"),
    ("with", "using", "via", "through"),
    ("about", "regarding", "concerning"),
    ("if", "when", "while"),
)
_CLASS: Final = {word: words[0] for words in _CLASSES for word in words}
_LOOSE: Final = frozenset(("of", "that", ""))  # "the capital of France" is "France's capital"
_SAID: Final = frozenset(("content", "number", "date", "literal"))


def same_prepositions(a: Sequence[Term], b: Sequence[Term]) -> bool:
    """Whether what both say is led to by the same prepositions; where its order differs, one may have become a compound
    ("a budget of $500", "a $500 budget")."""
    led_a, led_b = dict(_led(a)), dict(_led(b))
    words_a, words_b = ([term.value for term in terms if term.sort in _SAID] for terms in (a, b))
    if any(led_a[word] != led_b[word] for word in led_a.keys() & led_b.keys()):
        return False
    dates = {term.value for term in a if term.sort == "date"}  # "on Monday" or "Monday"
    return words_a != words_b or led_a.keys() ^ led_b.keys() <= dates


def _led(terms: Sequence[Term]) -> Iterator[tuple[str, str]]:
    """Each word behind a preposition, and the class of that; one with no word behind it belongs to the one before."""
    said = ""
    for term, following in zip(terms, (*terms[1:], Term("break", "")), strict=True):
        if term.sort in _SAID:
            said = term.value
        elif term.sort == "weak" and term.value not in _LOOSE:
            led = following.value if following.sort in _SAID else f"{said}…"
            if following.sort in _SAID or following.sort in ("break", "weak"):
                yield led, _CLASS.get(term.value, term.value)
