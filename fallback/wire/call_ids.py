"""Ids of tool calls, which every side makes in its own form and expects back.

Pure. Towards a provider any id becomes one that all of them take; of what comes back an id is kept when it is usable
and new in its answer, for the client will send it back to whoever answers next.
"""

import hashlib
import re
from typing import Final

# Anthropic takes letters, digits, _ and -; OpenAI 40 characters at most.
_TAKEN_BY_ALL: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")


def outward(call_id: str) -> str:
    if _TAKEN_BY_ALL.fullmatch(call_id):
        return call_id
    return "call_" + hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:24]


class Inward:
    """For the calls of one choice."""

    def __init__(self, unique: str) -> None:
        """`unique` is of this answer: what new ids are made of."""
        self._unique = unique
        self._given: set[str] = set()

    def id(self, call_id: object) -> str:
        usable = isinstance(call_id, str) and _TAKEN_BY_ALL.fullmatch(call_id) and call_id not in self._given
        seed = f"{self._unique}/{len(self._given)}"
        given = str(call_id) if usable else "call_" + hashlib.sha256(seed.encode()).hexdigest()[:24]
        self._given.add(given)
        return given
