"""Keeps branches that may be shed away from a machine that has no room for them. Pure: times are passed in.

closed     every class is taken
open       sheddable requests are refused, and running ones are ended while saturation lasts
half-open  sheddable requests are taken as probes as far as there is room at once; none of them waits

The owner may hold it open or closed.
"""

from dataclasses import dataclass, field
from typing import Final, Literal

from appliance.admission.saturation import Cause, Saturation

State = Literal["closed", "open", "half-open"]
Reason = Cause | Literal["recovered", "room-for-all", "owner"]


@dataclass(frozen=True, slots=True)
class Rules:
    trip_at: float = 1.0
    recover_at: float = 0.8
    window_s: float = 0.2
    trip_windows: int = 3  # in a row; with longer ones it is not open within 2 s of a rise
    recover_windows: int = 5
    probe_windows: int = 15  # without a refusal, until there is room for all
    dwell_s: float = 5.0  # it stays open for at least so long
    soon_s: float = 60.0  # when it has to open again within that time, it stays open for
    long_dwell_s: float = 60.0  # so that it does not open and close all the time; but no longer when there were
    quiet_windows: int = 20  # in a row, of
    quiet_share: float = 0.6  # of what lets it recover: the load is gone, and not waiting outside


@dataclass(frozen=True, slots=True)
class Transition:
    at_s: float
    before: State
    after: State
    reason: Reason
    saturation: float


@dataclass(slots=True)
class Breaker:
    rules: Rules = field(default_factory=Rules)
    state: State = "closed"
    held: Literal["open", "closed"] | None = None  # by the owner
    since_s: float = 0.0
    _window_s: float | None = None  # when the present one began
    _sum: float = 0.0
    _samples: int = 0
    _high: int = 0  # windows in a row
    _low: int = 0
    _quiet: int = 0
    _refused: bool = False  # a probe, in the present window or one of those in a row
    _dwell_s: float = 0.0
    _left_open_s: float | None = None  # when it was open last
    _cause: Cause = "queue-wait"  # of the newest sample that was too high

    def observe(self, saturation: Saturation, now_s: float) -> Transition | None:
        """A sample. What follows from it, if anything does."""
        if self._window_s is None:
            self._window_s = now_s
        self._sum += saturation.value
        if saturation.value >= self.rules.trip_at and saturation.cause is not None:
            self._cause = saturation.cause
        self._samples += 1
        if now_s - self._window_s < self.rules.window_s:
            return None
        mean = self._sum / self._samples
        self._window_s, self._sum, self._samples = now_s, 0.0, 0
        self._high = self._high + 1 if mean >= self.rules.trip_at else 0
        self._low = self._low + 1 if mean <= self.rules.recover_at else 0
        self._quiet = self._quiet + 1 if mean <= self.rules.recover_at * self.rules.quiet_share else 0
        return None if self.held is not None else self._judge(mean, now_s)

    def refused(self) -> None:
        """A sheddable request found no room: there is more demand than the machine can take."""
        self._refused = True

    def hold(self, state: Literal["open", "closed"] | None, now_s: float) -> Transition | None:
        """The owner's word; None: it goes by saturation again, from closed."""
        self.held = state
        self._high = self._low = 0
        return self._change(state or "closed", "owner", 0.0, now_s)

    def reopens_in_s(self, now_s: float) -> float:
        """The least time until sheddable requests are taken again."""
        return max(0.0, self.since_s + self._dwell_s - now_s) if self.state == "open" else 0.0

    def _judge(self, mean: float, now_s: float) -> Transition | None:
        rules = self.rules
        if self.state == "open":
            long_enough = now_s - self.since_s >= self._dwell_s or self._quiet >= rules.quiet_windows
            if self._low >= rules.recover_windows and long_enough:
                self._left_open_s = now_s
                return self._change("half-open", "recovered", mean, now_s)
            return None
        if self._high >= rules.trip_windows * (2 if self.state == "half-open" else 1):
            soon = self._left_open_s is not None and now_s - self._left_open_s < rules.soon_s
            self._dwell_s = max(rules.dwell_s, rules.long_dwell_s) if soon else rules.dwell_s
            return self._change("open", self._cause, mean, now_s)
        if self.state == "half-open":
            if self._refused:
                self._refused, self._low = False, 0
            elif self._low >= rules.probe_windows:
                return self._change("closed", "room-for-all", mean, now_s)
        return None

    def _change(self, state: State, reason: Reason, saturation: float, now_s: float) -> Transition | None:
        if state == self.state:
            return None
        transition = Transition(now_s, self.state, state, reason, saturation)
        self.state, self.since_s = state, now_s
        self._high = self._low = self._quiet = 0
        self._refused = False
        return transition


MOST_REMEMBERED: Final = 50  # transitions, for whoever looks later
