"""Evidence for a kind of step in the words of an instruction. The words are in `lexicon.toml`."""

import re
import tomllib
from pathlib import Path
from typing import Final, get_args

from appliance.protocol import StepKind

LEXICON: Final = Path(__file__).with_name("lexicon.toml")


class Lexicon:
    def __init__(self, path: Path = LEXICON) -> None:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        self._groups: list[tuple[StepKind, float, re.Pattern[str]]] = [
            (step, group["weight"], re.compile("|".join(group["any"]), re.IGNORECASE))
            for step in get_args(StepKind)
            for group in document[step]
        ]

    def evidence(self, text: str) -> dict[StepKind, float]:
        """For each step that something in the text speaks for: how strongly. Each group counts once."""
        found: dict[StepKind, float] = {}
        for step, weight, words in self._groups:
            if words.search(text):
                found[step] = found.get(step, 0.0) + weight
        return found
