"""Whether the answer to one text would do for another: the guards first, then the judge. Pure.

Unsure means no.
"""

import math
import re
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Final

from cache.verifier.alignment import Pair, align
from cache.verifier.guards import GUARDS, is_of_words, left_content
from cache.verifier.lexicon import Lexicon, Phrases, load
from cache.verifier.material import instructs, only_labels
from cache.verifier.reading import Reading, read
from cache.verifier.spelling import english
from cache.verifier.stems import stem

LONGEST_WORDS: Final = 400  # of an instruction; a longer one is compared as it stands
MOST_EXPONENT: Final = 700.0  # that a float has room for
SURE: Final = 0.97  # no other reading makes it surer
FEWEST_WORDS: Final = 2  # of material that two texts share
MOST_WORDS: Final = 400  # of texts that are searched for it
ENGLISH_LETTERS: Final = 0.9  # share of words without a letter that English lacks
_CLAUSE: Final = re.compile(r"[,.:;?!\n]+\s*")
_EMPTY_LABEL: Final = re.compile(r"^[ \t]*\w+:[ \t]*$|(?<=\n)[ \t]*\w+:[ \t]*(?=\n)")
_POINTING: Final = re.compile(r"\b(?:this|these|following|below|above)\b", re.IGNORECASE)
_BEGINS: Final = frozenset("\"'`\n")
_ENDS: Final = frozenset(".:?!;\"')\n")


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
        short_a, short_b = without_common_material(a, b, self._lexicon)
        had = short_a != a
        verdicts: list[Verdict] = []
        for lexicon in self._lexicons:
            verdicts.append(self._by(lexicon, short_a, short_b, similarity, has_material=had))
            if verdicts[-1].score >= SURE:
                break
        return max(verdicts, key=lambda verdict: (verdict.score, -len(verdict.guards)))

    def _by(self, lexicon: Lexicon, a: str, b: str, similarity: float, *, has_material: bool) -> Verdict:
        first = read(a, b, lexicon, self._is_word, has_material=has_material)
        second = read(b, a, lexicon, self._is_word, has_material=has_material)
        if _same_words(first, second, lexicon):
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


def without_common_material(a: str, b: str, lexicon: Lexicon) -> tuple[str, str]:
    """Both without the longest text that they share to the letter, wherever it stands in each: what they are about,
    whatever they want done with it.

    It begins and ends in both where a sentence or a line does. What remains of both says what to do, and it does not.
    """
    one, other = _words(a), _words(b)
    if min(len(one), len(other)) <= FEWEST_WORDS or max(len(one), len(other)) > MOST_WORDS:
        return a, b
    begin_a, begin_b, size = SequenceMatcher(None, one, other, autojunk=False).find_longest_match()
    bounds = [i for i in range(size + 1) if _is_bound(one, begin_a + i) and _is_bound(other, begin_b + i)]
    if not bounds or bounds[-1] - bounds[0] < FEWEST_WORDS:
        return a, b
    shared = " ".join(one[begin_a + bounds[0] : begin_a + bounds[-1]])
    rest_a, rest_b = (
        " ".join([*words[: begin + bounds[0]], *words[begin + bounds[-1] :]]).strip()
        for words, begin in ((one, begin_a), (other, begin_b))
    )
    rest_a, rest_b = (_EMPTY_LABEL.sub("", rest).strip() for rest in (rest_a, rest_b))
    if only_labels(shared, lexicon):
        return a, b
    points = all(_POINTING.search(rest) for rest in (rest_a, rest_b))
    tells = all(any(instructs(clause, lexicon) for clause in _CLAUSE.split(rest)) for rest in (rest_a, rest_b))
    return (rest_a, rest_b) if points or (tells and not instructs(shared, lexicon)) else (a, b)


def _words(text: str) -> list[str]:
    """And the ends of its lines."""
    return re.findall(r"\S+|\n", text)


def _is_bound(words: list[str], place: int) -> bool:
    return place in (0, len(words)) or words[place - 1][-1] in _ENDS or words[place][0] in _BEGINS


def _same_words(a: Reading, b: Reading, lexicon: Lexicon) -> bool:
    """Slips apart, where they are none of what is asked about."""
    same = a.words == b.words and a.material == b.material and a.marks == b.marks
    same = same and (a.names == b.names or not (a.begins_large and b.begins_large))
    return same and (a.raw == b.raw or not (is_of_words(a, lexicon) or is_of_words(b, lexicon)))


def judge(pair: Pair, lexicon: Lexicon, similarity: float) -> float:
    """From the words that have no counterpart, and the similarity.

    Its weights were set by hand: a word on each side that the other lacks rules a hit out; one that a single side has
    keeps the score below 0.9, and below 0.7 where the cosine is less than 0.76.
    """
    left_a, left_b = left_content(pair, lexicon)
    both = min(len(left_a), len(left_b))
    more = max(len(left_a), len(left_b)) - both
    score = 4.0 + 4.0 * (similarity - 0.8) - 6.0 * both - 3.0 * more
    return 1 / (1 + math.exp(min(-score, MOST_EXPONENT)))
