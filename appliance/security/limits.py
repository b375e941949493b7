"""How much one principal may ask: requests a minute and requests at a time. Pure; the clock is passed in.

Knows no HTTP. State is kept for each principal that is at work or has spent of its allowance, and for no other, so
that memory is bounded by the number of keys in use.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from appliance.errors import RateLimitExceeded
from appliance.security.auth import Principal

SWEEP_ABOVE = 1024  # entries; fewer are not worth looking through
EPSILON = 1e-9  # of a token: what rounding may lose between two requests


@dataclass(slots=True)
class Bucket:
    """A token bucket that holds one minute's allowance at most and starts full."""

    per_minute: int
    tokens: float
    refilled_at_s: float

    def refill(self, per_minute: int, now_s: float) -> None:
        """Brings the bucket to `now_s`, and to the limit in force now."""
        gained = max(0.0, now_s - self.refilled_at_s) * per_minute / 60
        self.per_minute = per_minute
        self.tokens = min(float(per_minute), self.tokens + gained)
        self.refilled_at_s = now_s

    def wait_s(self) -> float:
        """Seconds until a token is there; 0 when one is."""
        return 0.0 if self.tokens >= 1 - EPSILON else (1 - self.tokens) * 60 / self.per_minute


@dataclass(slots=True)
class _Usage:
    running: int = 0
    bucket: Bucket | None = None

    def is_idle(self, now_s: float) -> bool:
        """Whether forgetting it changes nothing."""
        if self.running:
            return False
        if self.bucket is None:
            return True
        self.bucket.refill(self.bucket.per_minute, now_s)
        return self.bucket.tokens >= self.bucket.per_minute


class Lease:
    """A place among a principal's concurrent requests. Released once, however often it is asked to."""

    __slots__ = ("_usage",)

    def __init__(self, usage: _Usage | None) -> None:
        self._usage = usage
        if usage is not None:
            usage.running += 1

    def release(self) -> None:
        if self._usage is not None:
            self._usage.running -= 1
            self._usage = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class Limiter:
    def __init__(self, clock: Callable[[], float], requests_per_minute: int | None, max_concurrent: int | None) -> None:
        """`clock` is monotonic, in seconds. The limits are for a principal that has none of its own."""
        self._clock = clock
        self._usages: dict[str, _Usage] = {}
        self._sweep_above = SWEEP_ABOVE
        self.set_defaults(requests_per_minute, max_concurrent)

    def set_defaults(self, requests_per_minute: int | None, max_concurrent: int | None) -> None:
        """Takes effect with the next request; None: no limit."""
        self._requests_per_minute = requests_per_minute
        self._max_concurrent = max_concurrent

    def admit(self, principal: Principal, *, generates: bool) -> Lease:
        """Counts one request. Raises `RateLimitExceeded` with the whole seconds after which it may be tried again.

        Only a request that `generates` takes a place among the concurrent ones; hold its lease until it has ended.
        """
        per_minute = principal.requests_per_minute or self._requests_per_minute
        concurrent = (principal.max_concurrent or self._max_concurrent) if generates else None
        if per_minute is None and concurrent is None:
            return Lease(None)
        usage = self._usage(principal.id)
        if concurrent is not None and usage.running >= concurrent:
            raise RateLimitExceeded(
                f"The caller {principal.name!r} may run {concurrent} requests at a time: wait for one to end.",
                retry_after_s=1,  # nobody knows when one ends
            )
        if per_minute is None:
            usage.bucket = None
        else:
            self._take_token(usage, principal, per_minute)
        return Lease(None if concurrent is None else usage)

    def running(self, principal_id: str) -> int:
        """How many leases the principal holds."""
        usage = self._usages.get(principal_id)
        return 0 if usage is None else usage.running

    def __len__(self) -> int:
        """How many principals are remembered."""
        return len(self._usages)

    def _take_token(self, usage: _Usage, principal: Principal, per_minute: int) -> None:
        now_s = self._clock()
        if usage.bucket is None:
            usage.bucket = Bucket(per_minute, float(per_minute), now_s)
        usage.bucket.refill(per_minute, now_s)
        wait_s = usage.bucket.wait_s()
        if wait_s > 0:
            raise RateLimitExceeded(
                f"The caller {principal.name!r} may send {per_minute} requests a minute: "
                f"the next one is due in {wait_s:.1f} s.",
                retry_after_s=max(1, math.ceil(wait_s - EPSILON)),
            )
        usage.bucket.tokens = max(0.0, usage.bucket.tokens - 1)

    def _usage(self, principal_id: str) -> _Usage:
        usage = self._usages.get(principal_id)
        if usage is None:
            if len(self._usages) >= self._sweep_above:
                self._sweep()
            usage = self._usages[principal_id] = _Usage()
        return usage

    def _sweep(self) -> None:
        now_s = self._clock()
        self._usages = {id_: usage for id_, usage in self._usages.items() if not usage.is_idle(now_s)}
        self._sweep_above = max(SWEEP_ABOVE, 2 * len(self._usages))
