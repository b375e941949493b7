"""What a text is made of, once it is read."""

from dataclasses import dataclass
from typing import Literal

from cache.verifier.lexicon import Phrase

Sort = Literal[
    "content", "number", "date", "literal", "negation", "quantifier", "modal", "strong", "weak", "join", "break"
]


@dataclass(frozen=True, slots=True)
class Term:
    sort: Sort
    value: str
    groups: frozenset[int] = frozenset()  # of the lexicon: with whom it shares a meaning
    phrase: Phrase = ()
    surface: str = ""  # as it was written, in lower case
    is_name: bool = False
