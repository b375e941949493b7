"""Whether a fresh answer says the same as a stored one. Pure. None: nobody can tell, and nothing is counted."""

import json
import re
import unicodedata
from typing import Any, Final

FEW_WORDS: Final = 8
_BEFORE: Final = "\"'([*`\u2018\u201c"  # a word, and say nothing
_BEHIND: Final = ".,;:!?\"')]*`\u2019\u201d\u3001\u3002\uff01\uff1f"
_BULLET: Final = re.compile(r"^[ \t]*[-*\u2022](?:[ \t]+|$)", re.MULTILINE)
_STRING: Final = re.compile(r'"(?:[^"\\\\]|\\\\.)*"')
_THOUSANDS: Final = re.compile(r"(?<=\d),(?=\d{3}\b)")


def same_answer(stored: str, fresh: str) -> bool | None:
    """Of JSON the value counts, of other short texts the words and their order. Of long ones nothing is counted: were
    only the equal ones, every wrong one would go unseen.

    Two that differ may say the same when they have the same words, or one is part of the other.
    """
    one, other = _document(stored), _document(fresh)
    if one is not None or other is not None:
        return _same_document(one, other)
    words, others = _words(stored), _words(fresh)
    if max(len(words), len(others)) > FEW_WORDS:
        return None
    if words == others:
        return True if words or stored.strip() == fresh.strip() else None
    longer, shorter = (words, others) if len(words) > len(others) else (others, words)
    if shorter and (_contains(longer, shorter) or sorted(longer) == sorted(shorter)):
        return None
    return False


def _same_document(one: str | None, other: str | None) -> bool | None:
    if one is None or other is None:
        return None
    prose = any(len(text.split()) > FEW_WORDS for document in (one, other) for text in _STRING.findall(document))
    return True if one == other else None if prose else False


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
