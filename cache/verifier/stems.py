"""The part that the forms of a word have in common: number and tense go. Pure.

It is no word: only two stems can be compared. A rule that would make one of two words of different meaning is not here.
"""

import functools
import tomllib
from pathlib import Path
from typing import Final

_FORMS: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_IRREGULAR: Final[dict[str, str]] = {form: base for base, forms in _FORMS["irregular"].items() for form in forms}
_WHOLE: Final = frozenset(_FORMS["whole"])
_VOWELS: Final = frozenset("aeiouy")
_SHORTEST: Final = 3
_SHORTEST_ADVERB: Final = 6


@functools.lru_cache(8192)
def stem(word: str) -> str:
    """Of a word in lower case."""
    if word in _IRREGULAR:
        return stem(_IRREGULAR[word]) if _IRREGULAR[word] != word else word
    if word in _WHOLE or len(word) <= _SHORTEST or not word.isascii():
        return word
    if word.endswith("ly") and len(word) >= _SHORTEST_ADVERB:
        word = _adjective(word)
    if word.endswith("ings"):
        return word[:-1]
    for ending in ("ing", "ed"):
        if word.endswith(ending):
            return _of_a_verb(word.removesuffix(ending), word)
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "xes", "zes", "ches", "shes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    return _without_e(word)


def _adjective(adverb: str) -> str:
    for ending, other in (("ically", "ic"), ("ily", "y"), ("ably", "able"), ("ibly", "ible")):
        if adverb.endswith(ending):
            return adverb.removesuffix(ending) + other
    return adverb.removesuffix("ly")


def _of_a_verb(rest: str, word: str) -> str:
    if len(rest) < 2 or not _VOWELS & set(rest):
        return word
    if rest.endswith("i"):  # "tried"
        return rest[:-1] + "y"
    if len(rest) > _SHORTEST and rest[-1] == rest[-2] and rest[-1] not in "lsz":
        return rest[:-1]
    if len(rest) <= _SHORTEST:
        doubled = len(rest) == _SHORTEST and rest[-1] not in _VOWELS and rest[-2] not in _VOWELS
        return rest if doubled or rest[-1] in "wxy" else rest + "e"
    return _without_e(rest)


def _without_e(word: str) -> str:
    return word[:-1] if word.endswith("e") and len(word) > 4 else word
