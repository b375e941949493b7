"""Slips of the keyboard. Pure."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from spellchecker import SpellChecker

SHORTEST: Final = 3  # letters of a word that is corrected

COMMON: Final = 150  # how often such a word is met
SHORTEST_RARE: Final = 5
TWO_SLIPS_FROM: Final = 8

IsWord = Callable[[str], bool]  # tells a word of the language, in lower case, from a slip


@functools.cache
def english() -> Mapping[str, int]:
    """160,000 words in lower case, the forms of each apart, and how often each is met; 50 is seldom."""
    words: dict[str, int] = SpellChecker("en").word_frequency.dictionary
    return words


def corrected(word: str, meant: Iterable[str]) -> str | None:
    """The only one of some words that a slip or two make of it; None: there is none, or there are several.

    A letter for another is a slip of a common word only: rare ones that differ so are two words.
    """
    if len(word) < SHORTEST:
        return None
    slips = 2 if len(word) >= TWO_SLIPS_FROM else 1
    near = {
        other
        for other in meant
        if other[:1] == word[0]
        and 0 < distance(word, other) <= slips
        and (sorted(word) == sorted(other) or len(word) != len(other) or english().get(other, 0) >= COMMON)
    }
    return near.pop() if len(near) == 1 else None


def is_mistyped(word: str, other: str) -> bool:
    """Whether only two neighbours are exchanged, or one letter is doubled: other slips make another rare word."""
    if min(len(word), len(other)) < SHORTEST_RARE:
        return False
    if len(word) == len(other):
        places = [i for i, (x, y) in enumerate(zip(word, other, strict=True)) if x != y]
        return len(places) == 2 and places[1] == places[0] + 1 and distance(word, other) == 1
    longer, shorter = (word, other) if len(word) > len(other) else (other, word)
    return any(longer[i] == longer[i - 1] and longer[:i] + longer[i + 1 :] == shorter for i in range(1, len(longer)))


def distance(a: str, b: str) -> int:
    """Edits of one letter, and exchanges of two neighbours, from one word to the other (optimal string alignment)."""
    if abs(len(a) - len(b)) > 2:
        return 3
    before: Sequence[int] = ()
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row = row, [i]
        for j, y in enumerate(b, 1):
            best = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                best = min(best, before[j - 2] + 1)
            row.append(best)
        before = last
    return row[-1]
