"""Whether the answer to one text would do for another: the guards first, then the judge. Pure.

Unsure means no.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

from cache.verifier.alignment import Pair, align
from cache.verifier.guards import GUARDS, left_content
from cache.verifier.lexicon import Lexicon, Phrases, load
from cache.verifier.reading import Reading, read
from cache.verifier.spelling import english
from cache.verifier.stems import stem

LONGEST_WORDS: Final = 400  # of an instruction; a longer one is compared as it stands
COMMON_WORDS: Final = 6
ENGLISH_LETTERS: Final = 0.9  # share of words without a letter that English lacks
_ENDS: Final = frozenset(".:?!;\"')")


@dataclass(frozen=True, slots=True)
class Verdict:
    guards: tuple[str, ...]  # that refused
    judge: float  # 0 to 1: how sure it is that the same answer would do

    @property
    def score(self) -> float:
        return 0.0 if self.guards else self.judge


class Verifier:
    def __init__(self, lexicon: Lexicon | None = None) -> None:
        self._lexicon = load() if lexicon is None else lexicon
        self._english = english()
        # Phrases that only one of two texts has hide the words that both have.
        self._lexicons = (self._lexicon, replace(self._lexicon, phrases=Phrases(()), separable={}))

    def _is_word(self, word: str) -> bool:
        """Whether it is no slip."""
        return word in self._english or self._lexicon.is_known(stem(word))

    def verdict(self, a: str, b: str, similarity: float) -> Verdict:
        """`similarity`: the cosine of their embeddings."""
        short_a, short_b = without_common_material(a, b)
        had = short_a != a
        verdicts = [self._by(lexicon, short_a, short_b, similarity, has_material=had) for lexicon in self._lexicons]
        return max(verdicts, key=lambda verdict: (verdict.score, -len(verdict.guards)))

    def _by(self, lexicon: Lexicon, a: str, b: str, similarity: float, *, has_material: bool) -> Verdict:
        first = read(a, b, lexicon, self._is_word, has_material=has_material)
        second = read(b, a, lexicon, self._is_word, has_material=has_material)
        if _same_words(first, second):
            return Verdict((), 1.0)
        if max(len(first.words), len(second.words)) > LONGEST_WORDS:
            return Verdict(("length",), 0.0)
        if not (_is_english(first, lexicon) and _is_english(second, lexicon)):
            return Verdict(("language",), 0.0)
        pair = align(first, second)
        refused = tuple(name for name, guard in GUARDS.items() if guard(pair, lexicon))
        return Verdict(refused, judge(pair, lexicon, similarity))


def _is_english(reading: Reading, lexicon: Lexicon) -> bool:
    """Whether most of its letters could be, and the words that hold it together are not another language's."""
    words = [word for word in reading.words if word.isalpha()]
    if sum(word.isascii() for word in words) < ENGLISH_LETTERS * len(words):
        return False
    foreign = sum(word in lexicon.foreign for word in words)
    return foreign == 0 or foreign < sum(word in lexicon.common for word in words)


def without_common_material(a: str, b: str) -> tuple[str, str]:
    """Both without the text that stands, the same to the letter, at the end of both or at the beginning: what they are
    about, whatever they want done with it."""
    one, other = a.split(), b.split()
    end = _in_common(one[::-1], other[::-1])
    if end >= COMMON_WORDS and _ends_before(one, end) and _ends_before(other, end):
        return " ".join(one[:-end]), " ".join(other[:-end])
    begin = _in_common(one, other)
    while begin >= COMMON_WORDS and one[begin - 1][-1] not in _ENDS:
        begin -= 1
    if begin >= COMMON_WORDS and begin < min(len(one), len(other)):
        return " ".join(one[begin:]), " ".join(other[begin:])
    return a, b


def _in_common(one: list[str], other: list[str]) -> int:
    return next((i for i, (x, y) in enumerate(zip(one, other, strict=False)) if x != y), min(len(one), len(other)))


def _ends_before(words: list[str], end: int) -> bool:
    """Whether an instruction stands before the last words, and comes to its end there."""
    return len(words) > end and words[-end - 1][-1] in _ENDS


def _same_words(a: Reading, b: Reading) -> bool:
    return a.words == b.words and a.material == b.material


def judge(pair: Pair, lexicon: Lexicon, similarity: float) -> float:
    """From the words that have no counterpart, and the similarity.

    Its weights were set by hand: a word on each side that the other lacks rules a hit out; one that a single side has
    keeps the score below 0.9, and below 0.7 where the cosine is less than 0.76.
    """
    left_a, left_b = left_content(pair, lexicon)
    both = min(len(left_a), len(left_b))
    more = max(len(left_a), len(left_b)) - both
    score = 4.0 + 4.0 * (similarity - 0.8) - 6.0 * both - 3.0 * more
    return 1 / (1 + math.exp(-score))
