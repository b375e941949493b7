"""Money that may be spent, by day and month, overall and by key. Pure but for the clock that is passed in.

Before a call the worst that it can cost is set aside; afterwards what it did cost takes that place. So any number of
calls at once cannot spend more than there is. Days and months are UTC's.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

Period = Literal["day", "month"]
EVERYONE = ""  # the account that every call counts in beside its key's own


class BudgetExceeded(Exception):
    """The call could cost more than is left."""

    def __init__(self, period: Period, owner: str, limit_usd: float, resets_in_s: int) -> None:
        whose = "of this key" if owner else "of the appliance"
        super().__init__(
            f"The {period}'s frontier budget {whose}, {limit_usd:g} USD, could be exceeded by this request."
        )
        self.resets_in_s = resets_in_s


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """USD; None: no limit."""

    day_usd: float | None = None
    month_usd: float | None = None
    key_day_usd: float | None = None
    key_month_usd: float | None = None

    @property
    def any(self) -> bool:
        return any(limit is not None for limit in (self.day_usd, self.month_usd, self.key_day_usd, self.key_month_usd))


@dataclass(slots=True)
class Reservation:
    accounts: tuple[tuple[str, Period, str], ...]
    usd: float
    is_open: bool = True


@dataclass(slots=True)
class Budget:
    limits: BudgetLimits
    now: Callable[[], datetime]  # an aware time
    _spent: defaultdict[tuple[str, Period, str], float] = field(default_factory=lambda: defaultdict(float))
    _reserved: defaultdict[tuple[str, Period, str], float] = field(default_factory=lambda: defaultdict(float))
    _open: defaultdict[tuple[str, Period, str], int] = field(default_factory=lambda: defaultdict(int))  # reservations

    def spent_before(self, key: str, at: datetime, usd: float) -> None:
        """What an earlier run of the daemon spent."""
        for account in _accounts(key, at):
            self._spent[account] += usd

    def reserve(self, key: str, worst_usd: float) -> Reservation:
        """Sets money aside for a call of `key`. Raises `BudgetExceeded`."""
        now = self.now()
        accounts = _accounts(key, now)
        for account in accounts:
            owner, period, _ = account
            limit = self._limit(owner, period)
            if limit is not None and self._spent[account] + self._reserved[account] + worst_usd > limit:
                raise BudgetExceeded(period, owner, limit, _resets_in_s(period, now))
        for account in accounts:
            self._open[account] += 1
            self._reserved[account] += worst_usd
        return Reservation(accounts, worst_usd)

    def settle(self, reservation: Reservation, usd: float) -> None:
        """Gives back what was set aside, and notes what was spent. Once only; the day is that of the reservation."""
        if not reservation.is_open:
            return
        reservation.is_open = False
        for account in reservation.accounts:
            self._open[account] -= 1
            # Sums of fractions do not come out even: what is left of one is no debt.
            self._reserved[account] = max(0.0, self._reserved[account] - reservation.usd)
            if not self._open[account]:  # or rounding would keep something for ever
                del self._open[account], self._reserved[account]
            self._spent[account] += usd

    def spent_usd(self, period: Period, key: str = EVERYONE) -> float:
        return self._spent[(key, period, _name(period, self.now()))]

    def reserved_usd(self) -> float:
        return self._reserved.get((EVERYONE, "day", _name("day", self.now())), 0.0)

    def _limit(self, owner: str, period: Period) -> float | None:
        limits = self.limits
        if owner == EVERYONE:
            return limits.day_usd if period == "day" else limits.month_usd
        return limits.key_day_usd if period == "day" else limits.key_month_usd


def _accounts(key: str, at: datetime) -> tuple[tuple[str, Period, str], ...]:
    periods: tuple[Period, ...] = ("day", "month")
    return tuple((owner, period, _name(period, at)) for owner in (EVERYONE, key) for period in periods)


def _name(period: Period, at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d" if period == "day" else "%Y-%m")


def _resets_in_s(period: Period, now: datetime) -> int:
    now = now.astimezone(UTC)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "day":
        return max(1, 86_400 - int((now - midnight).total_seconds()))
    month = now.month % 12 + 1
    next_month = midnight.replace(year=now.year + (month == 1), month=month, day=1)
    return max(1, int((next_month - now).total_seconds()))
