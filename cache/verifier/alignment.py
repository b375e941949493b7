"""Two readings side by side: which terms of one are in the other, and which are left over. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from cache.verifier.denial import pair_denials
from cache.verifier.reading import Reading
from cache.verifier.stems import stem
from cache.verifier.term import Sort, Term


@dataclass(frozen=True, slots=True)
class Pair:
    """Of each side the terms that have a counterpart, or need none, in order, and those that lack one. Where two mean
    the same, the second has the first's name."""

    a: Reading
    b: Reading
    kept_a: tuple[Term, ...]
    kept_b: tuple[Term, ...]
    left_a: tuple[Term, ...]
    left_b: tuple[Term, ...]

    def left(self, *sorts: Sort) -> tuple[Term, ...]:
        return tuple(term for term in (*self.left_a, *self.left_b) if term.sort in sorts)


_ALIGNED: Final = ("content", "number", "date", "literal", "negation", "quantifier", "modal", "strong")


def align(a: Reading, b: Reading) -> Pair:
    left_a = [i for i, term in enumerate(a.terms) if term.sort in _ALIGNED]
    left_b = [i for i, term in enumerate(b.terms) if term.sort in _ALIGNED]
    terms_a, terms_b = list(a.terms), list(b.terms)
    for same in (_equal, _synonymous):
        for i in list(left_a):
            match = next((j for j in left_b if same(a.terms[i], b.terms[j])), None)
            if match is not None:
                left_a.remove(i)
                left_b.remove(match)
                terms_b[match] = replace(b.terms[match], value=a.terms[i].value)
    _pair_possible(a, left_a, b, left_b, terms_b)
    _pair_possible(b, left_b, a, left_a, terms_a)
    pair_denials(terms_a, left_a, terms_b, left_b)
    pair_denials(terms_b, left_b, terms_a, left_a)
    _pair_initials(terms_a, left_a, terms_b, left_b)
    _pair_initials(terms_b, left_b, terms_a, left_a)
    return Pair(
        a,
        b,
        tuple(term for i, term in enumerate(terms_a) if i not in left_a),
        tuple(term for i, term in enumerate(terms_b) if i not in left_b),
        tuple(a.terms[i] for i in left_a),
        tuple(b.terms[i] for i in left_b),
    )


def _pair_possible(one: Reading, left_one: list[int], other: Reading, left_other: list[int], terms: list[Term]) -> None:
    """ "returnable" and "can be returned": the latter, of which `terms` are changed, has the former's name."""
    if "can" not in other.raw:
        return
    for i in list(left_one):
        word = one.terms[i].surface
        if not word.endswith(("able", "ible")):
            continue
        roots = {stem(word[:-4]), stem(f"{word[:-4]}e")}
        match = next((j for j in left_other if other.terms[j].value in roots), None)
        if match is not None:
            left_one.remove(i)
            left_other.remove(match)
            terms[match] = replace(terms[match], value=one.terms[i].value)


def _equal(one: Term, other: Term) -> bool:
    return one.value == other.value and (one.sort == other.sort or "content" in (one.sort, other.sort))


def _synonymous(one: Term, other: Term) -> bool:
    return bool(one.groups & other.groups)


def _pair_initials(short: Sequence[Term], left_short: list[int], full: list[Term], left_full: list[int]) -> None:
    """ "GDPR" and "General Data Protection Regulation": the words give way to their initials, where nothing else in the
    text stands for either. Changes the last three."""
    for i in list(left_short):
        letters = short[i].surface
        if short[i].sort != "content" or not 2 <= len(letters) <= 6 or not letters.isalpha():
            continue
        for begin in left_full:
            run = _initialled(full, begin, letters)
            if run and all(j in left_full or full[j].sort == "weak" for j in run):
                left_short.remove(i)
                for j in run:
                    if j in left_full:
                        left_full.remove(j)
                    full[j] = replace(full[j], sort="weak", value="")
                full[run[0]] = replace(short[i])
                break


def _initialled(terms: Sequence[Term], begin: int, letters: str) -> list[int]:
    """The places of a run of words with these initials that begins there, prepositions with or without theirs; else
    none."""
    run = [begin]
    if terms[begin].surface[:1] != letters[0]:
        return []
    for place in range(begin + 1, len(terms)):
        if len(run) == len(letters):
            break
        if terms[place].surface[:1] == letters[len(run)]:
            run.append(place)
        elif terms[place].sort != "weak":
            break
    return run if len(run) == len(letters) else []
