"""Whether a fresh answer says the same as a stored one. Pure. None: nobody can tell, and nothing is counted."""

import json
import re
import unicodedata
from typing import Any, Final

FEW_WORDS: Final = 8
_BEFORE: Final = "\"'([*`\u2018\u201c"  # a word, and say nothing
_BEHIND: Final = ".,;:!?\"')]*`\u2019\u201d\u3001\u3002\uff01\uff1f"
_BULLET: Final = re.compile(r"^[ \t]*[-*\u2022][ \t]+", re.MULTILINE)
_THOUSANDS: Final = re.compile(r"(?<=\d),(?=\d{3}\b)")


def same_answer(stored: str, fresh: str) -> bool | None:
    """Of JSON the value counts, of other texts the words and their order.

    Two long texts that differ may say the same or not; so may two short ones of the same words, or one in the other.
    """
    one, other = _document(stored), _document(fresh)
    if one is not None or other is not None:
        return one == other if one is not None and other is not None else None
    words, others = _words(stored), _words(fresh)
    if words == others:
        return True if words or stored.strip() == fresh.strip() else None
    longer, shorter = (words, others) if len(words) > len(others) else (others, words)
    if shorter and (len(longer) > FEW_WORDS or _contains(longer, shorter) or sorted(longer) == sorted(shorter)):
        return None
    return False


def _contains(longer: list[str], shorter: list[str]) -> bool:
    starts = range(len(longer) - len(shorter) + 1)
    return any(longer[i : i + len(shorter)] == shorter for i in starts)


def _document(text: str) -> str | None:
    """A JSON object or array in one form: strings without regard to case and outer blanks. None for any other text."""
    text = text.strip().removeprefix("```json").removeprefix("```").removesuffix("```").strip()
    if not text.startswith(("{", "[")):
        return None
    try:
        return json.dumps(_folded(json.loads(text)), sort_keys=True)
    except (ValueError, RecursionError):
        return None


def _folded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _folded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_folded(entry) for entry in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return unicodedata.normalize("NFKC", value).strip().casefold() if isinstance(value, str) else value


def _words(text: str) -> list[str]:
    text = _THOUSANDS.sub("", unicodedata.normalize("NFKC", text).casefold())
    text = _BULLET.sub("", text)
    return [said.lstrip(_BEFORE).rstrip(_BEHIND) or said for said in text.split()]
