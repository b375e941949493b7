"""Keeps requests from a provider that does not answer. One for each provider. Pure: time is passed in.

closed     every request may go
open       none, until a time, or until the key has changed
half-open  one, whose end decides
"""

from dataclasses import dataclass
from typing import Literal

FAILURES_TO_OPEN = 5  # in a row: fewer are a bad moment
FIRST_OPEN_S = 5.0
LONGEST_OPEN_S = 300.0
WITHOUT_RETRY_AFTER_S = 1.0  # of a 429 that does not say
LONGEST_COOLING_S = 3600.0

BreakerState = Literal["closed", "open", "half-open"]


@dataclass(slots=True)
class ProviderBreaker:
    _failures: int = 0
    _opened: int = 0  # times in a row
    _until_s: float | None = None  # open until then
    _refused_key: str | None = None  # open for as long as this is the key
    _probing: bool = False
    _in_flight: int = 0
    _late: int = 0  # of those in flight that went before it opened: their ends are no news

    def state(self, now_s: float, key: str) -> BreakerState:
        """`key` is the fingerprint of the one that would be used."""
        if self._refused_key is not None:
            return "open" if key == self._refused_key else "half-open"
        if self._until_s is None:
            return "closed"
        return "open" if now_s < self._until_s else "half-open"

    def admit(self, now_s: float, key: str) -> bool:
        """Whether a request may go now. Each that goes must be followed by exactly one of the five below."""
        state = self.state(now_s, key)
        if state == "open" or (state == "half-open" and self._probing):
            return False
        self._probing = state == "half-open"
        self._in_flight += 1
        return True

    def opens_in_s(self, now_s: float) -> float | None:
        """When the next request may go; None: when the key has changed, or now."""
        return None if self._until_s is None or self._refused_key is not None else max(0.0, self._until_s - now_s)

    def succeeded(self) -> None:
        self._ended()
        self._failures = self._opened = 0
        self._until_s = self._refused_key = None
        self._probing = False

    def failed(self, now_s: float) -> None:
        """It did not answer, or not in full."""
        was_probe = self._probing
        if self._ended():
            return
        self._failures += 1
        self._refused_key = None  # it was asked, so the key is another one now
        if was_probe or self._failures >= FAILURES_TO_OPEN:
            self._open(now_s, min(LONGEST_OPEN_S, FIRST_OPEN_S * 2 ** min(self._opened, 16)))
            self._opened += 1

    def limited(self, now_s: float, retry_after_s: float | None) -> None:
        """It asked for a pause (429)."""
        self._ended()
        self._refused_key = None
        pause_s = WITHOUT_RETRY_AFTER_S if retry_after_s is None else min(retry_after_s, LONGEST_COOLING_S)
        self._open(now_s, pause_s)

    def refused_key(self, key: str) -> None:
        """It does not take the key (401, 403)."""
        self._ended()
        self._refused_key = key
        self._late = self._in_flight

    def not_counted(self) -> None:
        """The request was at fault, or its client left: nothing is known of the provider."""
        self._ended()

    def _ended(self) -> bool:
        """Notes the end of a request; whether it is one of those that went before the breaker opened."""
        self._in_flight -= 1
        if self._late:
            self._late -= 1
            return True
        self._probing = False
        return False

    def _open(self, now_s: float, for_s: float) -> None:
        self._until_s = max(self._until_s or 0.0, now_s + for_s)
        self._failures = 0
        self._late = self._in_flight - self._probing
