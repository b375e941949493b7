"""Words that deny something, and the same said with a "not": "unpaid" and "not paid", "sugar-free" and "without sugar".

Pure. What is given is changed: the terms that mean the same get one name.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from cache.verifier.reading import Term
from cache.verifier.stems import stem

_LEAST_ROOT: Final = 3
_FORMS: Final = ("ed", "able", "ible", "en", "id", "own", "old", "ead", "ent")  # of a word that says a state
# What they undo was done: "uninstalled" is not "not installed".
_UNDOING: Final = frozenset(("install", "subscrib", "load", "do", "follow", "publish", "archiv", "friend", "register"))


def pair_denials(one: list[Term], left_one: list[int], other: list[Term], left_other: list[int]) -> None:
    """Of `one` words that deny something which `other` says with a "not", where both are left over."""
    for i in list(left_one):
        found = _denied(one, i, other, left_other)
        if found is None:
            continue
        name, gone, negation, said = found
        one[i] = replace(one[i], sort="content", value=name)
        other[negation] = replace(other[negation], sort="weak", value="")
        other[said] = replace(other[said], value=name)
        left_one.remove(i)
        for j in (negation, said):
            if j in left_other:
                left_other.remove(j)
        if gone is not None:
            one[gone] = replace(one[gone], sort="weak", value="")


def _denied(
    one: Sequence[Term], i: int, other: Sequence[Term], left_other: Sequence[int]
) -> tuple[str, int | None, int, int] | None:
    """The name of what is denied; of `one` the place that says it beside `i`; of `other` the places that do."""
    for negation in left_other:
        if other[negation].sort != "negation" or other[negation].value != "not":
            continue
        said = next((j for j in range(negation + 1, len(other)) if other[j].sort != "weak"), None)
        if said is None or other[said].sort != "content":
            continue
        name = f"not {other[said].value}"
        if said in left_other and _is_denial(one[i].surface, other[said].value):
            return name, None, negation, said
        if one[i].surface == "free" and i and one[i - 1].value == other[said].value:
            return name, i - 1, negation, said
    return None


def _is_denial(word: str, value: str) -> bool:
    """Whether it says what "not" and a stem say."""
    if word.endswith("less"):
        root = word.removesuffix("less")
    elif word.startswith(("un", "non")) and word.endswith(_FORMS):
        root = word.removeprefix("un") if word.startswith("un") else word.removeprefix("non")
    else:
        return False
    root = stem(root.strip(" -"))
    return len(root) >= _LEAST_ROOT and root == value and root not in _UNDOING
