"""Whether a fresh answer says the same as a stored one. Pure. None: nobody can tell, and nothing is counted."""

import json
import re
from typing import Any, Final

FEW_WORDS: Final = 8
# Of long texts: so many of the words of each in the other speak for the same answer, so few for another.
SAME_SHARE: Final = 0.7
_WORD: Final = re.compile(r"\w+(?:[.,]\d+)*")


def same_answer(stored: str, fresh: str) -> bool | None:
    one, other = _document(stored), _document(fresh)
    if one is not None or other is not None:
        return one == other if one is not None and other is not None else None
    words, others = _words(stored), _words(fresh)
    if words == others:
        return True
    if max(len(words), len(others)) <= FEW_WORDS:
        return False
    if _numbers(words) != _numbers(others):
        return None
    common = len(set(words) & set(others))
    return True if common >= SAME_SHARE * max(len(set(words)), len(set(others))) else None


def _document(text: str) -> Any:
    """A JSON object or array, with strings without regard to case and outer blanks; None for any other text."""
    text = text.strip().removeprefix("```json").removeprefix("```").removesuffix("```").strip()
    if not text.startswith(("{", "[")):
        return None
    try:
        return _folded(json.loads(text))
    except ValueError:
        return None


def _folded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _folded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_folded(entry) for entry in value]
    return value.strip().casefold() if isinstance(value, str) else value


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _numbers(words: list[str]) -> set[str]:
    return {word for word in words if word[0].isdigit()}
