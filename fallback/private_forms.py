"""How what is private looks: keys and passwords, mail addresses, telephone and card numbers. Pure.

It finds what has a form: a help against slips, no proof that nothing private goes out. Names have no form. Every search
takes time in proportion to the text, whatever the text is.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final

from appliance.protocol import Private

Span = tuple[int, int]
Find = Callable[[str], Iterator[Span]]

_NAME_OF_SECRET: Final = (
    r"[\w-]{0,32}?(?:api[_-]?key|secret(?:[_-]?access)?(?:[_-]?key)?|access[_-]?key|passw(?:or)?d|pwd|token)"  # noqa: S105
)
# Each begins where nothing of its own kind stands before, or a long run would be searched from every place in it.
_SECRET: Final = re.compile(
    r"-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,32}PRIVATE KEY-----|\Z)"
    r"|(?<![\w-])eyJ[\w-]{8,4096}\.[\w-]{8,4096}\.[\w-]{8,4096}"  # a JSON web token
    r"|(?<![\w-])(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,512}"
    r"|(?<![\w-])(?:ghp|gho|ghu|ghs|ghr|github_pat|glpat|xox[abprs]|hf|npm|pypi)[-_][\w-]{16,512}"
    r"|(?<!\w)(?:AKIA|ASIA)[A-Z0-9]{16}(?!\w)"
    r"|(?<![\w-])AIza[\w-]{35}"
    r"|://[^\s/:@]{1,64}:(?P<login>[^\s/@]{1,128})@"
    r"|(?i:(?<!\w)bearer\s{1,3})(?P<bearer>[\w.~+/=-]{16,4096})"
    rf"|(?i:(?<![\w-]){_NAME_OF_SECRET}[\"']?\s{{0,3}}[:=]\s{{0,3}}[\"']?)(?P<value>[^\s\"',;]{{6,512}})",
    re.DOTALL,
)
_PARTS: Final = ("login", "bearer", "value")  # what of a find is the secret itself
_SECRET_NAME: Final = re.compile(_NAME_OF_SECRET, re.IGNORECASE)
_EMAIL: Final = re.compile(r"(?<![\w.%+-])[\w.%+-]{1,64}@(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}(?!\w)")
_DIGITS: Final = re.compile(r"(?<![\w.-])\d+(?:[ -]?\d+)*(?!\w)")
_PHONE: Final = re.compile(
    r"(?<![\w.])\+\d(?:[ ./()-]{0,2}\d){7,14}(?!\w)"
    r"|(?<![\w./-])0\d{2,5}[ /-]\d{4,9}(?![\w-])"
    r"|(?<![\w.])(?:\(\d{1,4}\)[ .-]?)?\d{2,4}(?:[ .-]\d{2,4}){1,4}(?![\w-]|\.\d)"
)
_NO_PHONE: Final = re.compile(r"\d{4}-\d{2}-\d{2}|\d{1,2}[.-]\d{1,2}[.-]\d{4}|\d{1,3}(?:\.\d{1,3}){3}")  # dates, hosts
_SHORTEST_CARD: Final = 13
_LONGEST_RUN: Final = 64  # digits: more are no list of cards


def finds(kinds: frozenset[Private]) -> Iterator[tuple[Private, Find]]:
    """In the order in which they are to be looked for: a key may hold digits that look like a card's, and a card's look
    like a telephone's."""
    ordered: tuple[tuple[Private, Find], ...] = (
        ("secret", _secrets),
        ("email", _emails),
        ("card", _cards),
        ("phone", _phones),
    )
    return ((kind, find) for kind, find in ordered if kind in kinds)


def is_secret_name(name: str) -> bool:
    """Whether what bears this name is none of others' business."""
    return _SECRET_NAME.fullmatch(name) is not None


def _secrets(text: str) -> Iterator[Span]:
    for found in _SECRET.finditer(text):
        part = next((part for part in _PARTS if found[part] is not None), 0)
        yield found.span(part)


def _emails(text: str) -> Iterator[Span]:
    return (found.span() for found in _EMAIL.finditer(text))


def _cards(text: str) -> Iterator[Span]:
    """Runs of digit groups in which some groups in a row pass the check of a card's number; other numbers may stand
    beside it, such as its date or its code."""
    for run in _DIGITS.finditer(text):
        if not _SHORTEST_CARD <= len(run[0]) <= _LONGEST_RUN:
            continue
        groups = [found.span() for found in re.finditer(r"\d+", run[0])]
        i = 0
        while i < len(groups):
            ends = [j for j in range(len(groups) - 1, i - 1, -1) if _is_card(run[0][groups[i][0] : groups[j][1]])]
            if ends:
                yield run.start() + groups[i][0], run.start() + groups[ends[0]][1]
                i = ends[0]
            i += 1


def _phones(text: str) -> Iterator[Span]:
    for found in _PHONE.finditer(text):
        if 7 <= sum(c.isdigit() for c in found[0]) <= 15 and not _NO_PHONE.fullmatch(found[0]):
            yield found.span()


def _is_card(text: str) -> bool:
    """Luhn's check, which nine of ten numbers that are no card fail."""
    digits = [int(c) for c in text if c.isdigit()]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    return 13 <= len(digits) <= 19 and (sum(doubled) + sum(digits[-1::-2])) % 10 == 0
