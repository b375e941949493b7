"""Evidence for a kind of step in the words of an instruction. The words are in `lexicon.toml`.

Most patterns have a piece of plain text in them without which they cannot match. That is looked for first: the searches
alone took 0.7 ms of each decision, which takes 0.5 now.
"""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

from appliance.protocol import StepKind

LEXICON: Final = Path(__file__).with_name("lexicon.toml")
SHORTEST_NEEDED: Final = 3

_GROUP: Final = re.compile(r"\((?:[^()\\]|\\.)*\)[?*]?(?:\{[^}]*\})?")  # an innermost one
_CLASS: Final = re.compile(r"\[(?:[^\]\\]|\\.)+\][?*+]?(?:\{[^}]*\})?")
_OPTIONAL: Final = re.compile(r"(?:\\.|.)(?:[?*]|\{[^}]*\})")
_SPECIAL: Final = re.compile(r"\\.|[.^$+|]|\0")


@dataclass(frozen=True, slots=True)
class _Pattern:
    needed: str  # in lower case; "" for one that may match without any
    expression: re.Pattern[str]

    def found(self, text: str, lowered: str) -> bool:
        return self.needed in lowered and self.expression.search(text) is not None


class Lexicon:
    def __init__(self, path: Path = LEXICON) -> None:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        self._groups: list[tuple[StepKind, float, tuple[_Pattern, ...]]] = [
            (step, group["weight"], tuple(map(_compiled, group["any"])))
            for step in get_args(StepKind)
            for group in document[step]
        ]

    def evidence(self, text: str) -> dict[StepKind, float]:
        """For each step that something in the text speaks for: how strongly. Each group counts once."""
        found: dict[StepKind, float] = {}
        lowered = text.lower()
        for step, weight, patterns in self._groups:
            if any(pattern.found(text, lowered) for pattern in patterns):
                found[step] = found.get(step, 0.0) + weight
        return found


def _compiled(pattern: str) -> _Pattern:
    return _Pattern(needed_text(pattern), re.compile(pattern, re.IGNORECASE))


def needed_text(pattern: str) -> str:
    """The longest piece of plain text that whatever matches the pattern holds, in lower case; "" if there is none."""
    before = None
    while before != pattern:
        before, pattern = pattern, _GROUP.sub("\0", pattern)
    for form in (_CLASS, _OPTIONAL):
        pattern = form.sub("\0", pattern)
    if "|" in pattern:
        return ""
    longest = max(_SPECIAL.split(pattern), key=len)
    return longest.lower() if len(longest) >= SHORTEST_NEEDED else ""
