"""Finds stop strings in text that arrives in pieces, and holds back what may still become one."""

from dataclasses import dataclass


def _failure_table(pattern: str) -> list[int]:
    """Knuth, Morris and Pratt: for each prefix, the longest proper prefix that is also its suffix."""
    table = [0] * len(pattern)
    k = 0
    for i in range(1, len(pattern)):
        while k and pattern[i] != pattern[k]:
            k = table[k - 1]
        if pattern[i] == pattern[k]:
            k += 1
        table[i] = k
    return table


@dataclass(slots=True)
class _Pattern:
    text: str
    failures: list[int]
    matched: int = 0  # how many of its first characters end the text so far

    def advance(self, character: str) -> bool:
        while self.matched and self.text[self.matched] != character:
            self.matched = self.failures[self.matched - 1]
        if self.text[self.matched] == character:
            self.matched += 1
        return self.matched == len(self.text)


class StopMatcher:
    """Feed text, get the text that is safe to show. After a match nothing more may be fed.

    Once `until` has come, nothing stops any more.
    """

    def __init__(self, stops: tuple[str, ...], until: str | None = None) -> None:
        self._patterns = [_Pattern(stop, _failure_table(stop)) for stop in stops]
        self._until = _Pattern(until, _failure_table(until)) if until else None
        self._held = ""
        self.stopped_by: str | None = None

    def feed(self, text: str) -> str:
        """Returns the characters that can no longer be part of a stop string; all before it once one is found."""
        if not self._patterns:
            return text
        buffer = self._held + text
        for i, character in enumerate(text, start=len(self._held) + 1):
            if self._until is not None and self._until.advance(character):
                self._patterns, self._held = [], ""
                return buffer
            ended = [pattern.text for pattern in self._patterns if pattern.advance(character)]
            if ended:
                self.stopped_by = max(ended, key=len)  # the one that began first
                self._held = ""
                return buffer[: i - len(self.stopped_by)]
        keep = max(pattern.matched for pattern in self._patterns)
        self._held = buffer[len(buffer) - keep :]
        return buffer[: len(buffer) - keep]

    def flush(self) -> str:
        """What was held back, when no more text will come."""
        held, self._held = self._held, ""
        return held
