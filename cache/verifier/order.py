"""Who does what to whom: whether two texts of the same terms say them in the same roles. Pure.

Word order may change without a change of roles: a clause moves to the front, the members of a list change places,
"the capital of France" becomes "France's capital". Every other change is one of roles.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, product
from typing import Final

from cache.verifier.forms import ASKS
from cache.verifier.term import Term

_SAID: Final = frozenset(("content", "number", "date", "literal", "negation", "quantifier"))
_LISTED: Final = _SAID - {"negation"}
_LONGEST_SUBJECT: Final = 4
_DENYING: Final = frozenset(("not", "no", "without"))


def same_roles(a: Sequence[Term], b: Sequence[Term], *, symmetric: bool) -> bool:
    """`symmetric`: the question is one about things side by side ("compare …"), whatever their order."""
    forms = chain(
        ((a, b), (_asking_first(a), _asking_first(b))),
        ((form, b) for form in chain(_inverted(a), _actives(a))),
        ((a, form) for form in chain(_inverted(b), _actives(b))),
    )
    return any(_same(one, other, symmetric=symmetric) for one, other in forms)


def _actives(terms: Sequence[Term]) -> Iterator[list[Term]]:
    """ "a bond is bought by a bank" as "a bank buy a bond"; none where nothing is done by anyone."""
    by = next((i for i, term in enumerate(terms) if term.sort == "weak" and term.value == "by"), None)
    if by is None:
        return
    start = next((i + 1 for i in range(by - 1, -1, -1) if terms[i].sort in ("break", "join")), 0)
    said = [i for i in range(start, by) if terms[i].sort in _SAID]
    for bounds in (("break",), ("break", "weak", "strong")):
        end = next((i for i in range(by + 1, len(terms)) if terms[i].sort in bounds), len(terms))
        if len(said) > 1 and end > by + 1:
            before, verb, behind = terms[start : said[-1]], terms[said[-1]], terms[said[-1] + 1 : by]
            yield [*terms[:start], *terms[by + 1 : end], verb, *before, *behind, *terms[end:]]


def _inverted(terms: Sequence[Term]) -> Iterator[list[Term]]:
    """ "Why won't my old car start" as "why will my old car not start", however long the subject is; none where nothing
    is denied like that."""
    asks = next((i for i, term in enumerate(terms) if term.sort == "break" and term.value == ASKS), None)
    if asks is None:
        return
    place = next((i for i in range(asks + 1, len(terms)) if terms[i].sort != "modal"), len(terms))
    if place == len(terms) or terms[place].sort != "negation":
        return
    for end in range(place + 2, min(place + 2 + _LONGEST_SUBJECT, len(terms))):
        if terms[end - 1].sort != "content" or terms[end].sort not in _SAID:
            return
        yield [*terms[:place], *terms[place + 1 : end], terms[place], *terms[end:]]


def _asking_first(terms: Sequence[Term]) -> list[Term]:
    """With the clause that asks in front of what leads up to it."""
    asks = next((i for i, term in enumerate(terms) if term.sort == "break" and term.value == ASKS), 0)
    end = next((i for i in range(asks + 1, len(terms)) if terms[i].sort == "break"), len(terms))
    return [*terms[asks:end], Term("break", "."), *terms[:asks], Term("break", "."), *terms[end:]]


def _same(a: Sequence[Term], b: Sequence[Term], *, symmetric: bool) -> bool:
    joined = any(term.sort == "join" and term.value != "," for term in (*a, *b))
    if not joined and all(sum(term.sort == "date" for term in terms) == 1 for terms in (a, b)):  # then it has one role
        a, b = ([term for term in terms if term.sort != "date"] for terms in (a, b))
    if _alike(a, b, symmetric=symmetric):
        return True
    a, b = list(_listed(a)), list(_listed(b))
    forms = product((a, _denials_first(a)), (b, _denials_first(b)))
    return any(_alike(one, other, symmetric=symmetric) for one, other in forms)


def _alike(a: Sequence[Term], b: Sequence[Term], *, symmetric: bool) -> bool:
    if _values(a) == _values(b) or _chunks(a) == _chunks(b):
        return True
    if symmetric and _segments(a) == _segments(b):
        return True
    return any(
        _values(_compounds(a, joins, whole=whole)) == _values(_compounds(b, joins, whole=whole))
        for joins, whole in ((("of",), False), (("of", "for", "in", "on"), False), (("of",), True))
    )


def _values(terms: Sequence[Term]) -> list[str]:
    return [term.value for term in terms if term.sort in _SAID]


def _listed(terms: Sequence[Term]) -> Iterator[Term]:
    """Members of a list with an "and" or "or", one term each, in alphabetical order and without what joins them."""
    place = 0
    while place < len(terms):
        end = _member(terms, place)
        members, joined = [terms[place:end]], False
        while terms[place].sort in _SAID and end < len(terms):
            follows = end
            while follows < len(terms) and terms[follows].sort == "join":
                follows += 1
            if follows == end or follows == len(terms) or terms[follows].sort not in _LISTED:
                break
            joined = joined or any(term.value != "," for term in terms[end:follows])
            end_of_member = _member(terms, follows)
            members.append(terms[follows:end_of_member])
            end = end_of_member
        if joined and _may_change_places(terms, place):
            for member in sorted(members, key=_values):
                yield from member
            place = end
        else:
            yield terms[place]
            place += 1


def _may_change_places(terms: Sequence[Term], place: int) -> bool:
    """Not what an adjective before it may belong to ("fried rice and chicken"), nor steps ("how to wash and dry")."""
    before = terms[place - 1] if place else None
    if before is None or before.value == ASKS:
        return before is not None and before.surface not in ("howto", "wish")
    if before.sort == "content":  # a verb, if it comes first
        return place < 2 or terms[place - 2].value in (ASKS, "that")
    return True


def _denials_first(given: Sequence[Term]) -> list[Term]:
    """ "invoices not paid" as "unpaid invoices"."""
    terms = list(given)
    for i in range(1, len(terms)):
        denies = terms[i].value.startswith("not ") or bool(_DENYING & set(terms[i].phrase[:1]))
        if terms[i].sort == "content" and denies:
            before = next(
                (j for j in range(i - 1, -1, -1) if terms[j].sort != "weak" or terms[j].value not in ("", "that")), i
            )
            if terms[before].sort == "content":
                terms[before], terms[i] = terms[i], terms[before]
    return terms


def _member(terms: Sequence[Term], place: int) -> int:
    """Where a list's member that begins there ends: after a word, or after a name of several."""
    end = place + 1
    while end < len(terms) and terms[end - 1].is_name and terms[end].is_name:
        end += 1
    return end


def _chunks(terms: Sequence[Term]) -> dict[str, list[tuple[tuple[str, ...], ...]]]:
    """A text in pieces at its prepositions and commas, by the preposition that leads them ("" for none), in order.

    Only pieces with different prepositions may change places: "from A to B" is "to B from A", but what is asked of A
    and B "in A … in B" is another thing in B and A. What no preposition leads is one piece, wherever it is cut; of
    another, the members that an "and" joins may change places.
    """
    plain: list[str] = []
    found: dict[str, list[tuple[tuple[str, ...], ...]]] = {}
    members: list[list[str]] = [[]]
    lead = ""
    for term in (*terms, Term("break", "")):
        leads = term.sort in ("strong", "weak") and term.value != "that"
        if leads and members == [["not"]]:
            lead = term.value  # "not on Friday"
        elif leads or term.sort == "break" or term.value in (",", "that"):
            if lead and any(members):
                found.setdefault(lead, []).append(tuple(sorted(map(tuple, members))))
            else:
                plain += [word for member in members for word in member]
            lead, members = (term.value if leads else ""), [[]]
        elif term.surface == "without":
            if lead and any(members):
                found.setdefault(lead, []).append(tuple(sorted(map(tuple, members))))
            else:
                plain += [word for member in members for word in member]
            lead, members = "without", [[term.value]]
        elif term.sort == "join" and members[-1]:
            members.append([])
        elif term.sort in _SAID:
            members[-1].append(term.value)
    return {**found, "": [(tuple(plain),)]}


def _segments(terms: Sequence[Term]) -> Counter[tuple[str, ...]]:
    found: Counter[tuple[str, ...]] = Counter()
    segment: list[str] = []
    for term in (*terms, Term("join", "and")):
        if term.sort in ("join", "weak") or term.value in ("versus", "between", "from", "than"):
            found[tuple(segment)] += bool(segment)
            segment = []
        elif term.sort in _SAID:
            segment.append(term.value)
    return +found


def _compounds(terms: Sequence[Term], joins: tuple[str, ...], *, whole: bool) -> list[Term]:
    """ "capital of France" as "France capital": what follows the preposition goes before the word that precedes it, or
    before all that do ("default port of Redis")."""
    made = list(terms)
    for place in range(len(made) - 1, 0, -1):
        if made[place].sort != "weak" or made[place].value not in joins or made[place - 1].sort not in _SAID:
            continue
        end, begin = place + 1, place - 1
        while end < len(made) and made[end].sort in _SAID:
            end += 1
        while whole and begin > 0 and made[begin - 1].sort in _SAID:
            begin -= 1
        if end > place + 1:
            made[begin:end] = [*made[place + 1 : end], *made[begin:place]]
    return made
