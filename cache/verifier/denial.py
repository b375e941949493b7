"""Words that deny something, and the same said with a "not": "unpaid" and "not paid", "sugar-free" and "without sugar".

Pure. What is given is changed: the terms that mean the same get one name.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from cache.verifier.stems import stem
from cache.verifier.term import Term

_LEAST_ROOT: Final = 3
# Whose "un" undoes what was done: "uninstalled" is not "not installed".
_UNDOING: Final = frozenset(
    map(
        stem,
        (
            "install",
            "subscribe",
            "load",
            "do",
            "follow",
            "publish",
            "archive",
            "friend",
            "register",
            "lock",
            "pack",
            "tie",
            "zip",
            "fold",
            "plug",
            "screw",
            "wrap",
            "freeze",
            "mute",
            "pin",
            "block",
            "check",
            "select",
            "hide",
            "link",
            "mount",
            "veil",
            "cover",
            "dress",
            "wind",
            "roll",
            "seal",
            "hook",
            "bind",
            "ban",
            "mark",
            "leash",
            "learn",
            "furl",
            "earth",
        ),
    )
)
# Which "in", "im", "il", "ir" or "dis" denies.
_IN: Final = frozenset(
    ("possible", "legal", "regular", "complete", "correct", "valid", "active", "accurate", "adequate", "eligible",
     "edible", "visible", "voluntary", "mature", "moral", "polite", "proper", "perfect", "patient", "practical",
     "logical", "legible", "literate", "rational", "relevant", "responsible", "reversible", "secure", "sensitive",
     "sufficient", "consistent", "dependent", "direct", "finite", "formal", "frequent", "soluble", "tolerant",
     "capable", "compatible", "convenient", "curable", "definite", "expensive", "significant", "effective",
     "efficient", "elastic", "accessible", "mutable", "divisible", "replaceable", "resistible", "probable",
     "precise", "personal", "mobile", "measurable")
)  # fmt: skip


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
    elif word.startswith("non"):
        root = word.removeprefix("non").strip(" -")
    elif word.startswith("un"):
        root = word.removeprefix("un")
    else:
        root = word[2:] if word[2:] in _IN else ""
    root = stem(root)
    return len(root) >= _LEAST_ROOT and root == value and not (word.startswith("un") and root in _UNDOING)
