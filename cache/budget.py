"""The share of wrong hits, measured, and where the threshold has to be for it to stay within the owner's budget.

Scores are counted in classes. Of each class some would-be hits are answered afresh and compared: `n` were checked,
`wrong` of them wrong, and the Clopper-Pearson upper bound says how large the class's true share may be. Where every
class that is served is within the budget, so is what they have in common. The bound holds for one look at the counts:
looked at after every check, a class whose true share is at the budget is taken for proven at some time in one case of
five, and loses that again. Pure: it knows counts, no clock.
"""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

CONFIDENCE: Final = 0.95
# A check belongs to the highest of these that its score reaches.
LEVELS: Final = (0.5, 0.7, 0.9, 0.97)
SECOND_OPINION: Final = (
    0.875  # the score, and a class of its own, of what rules leave open and a language model does not
)
_STEPS: Final = 60  # of a bisection: to the last bit
_NEGLIGIBLE: Final = 1e-17

State = Literal["cold", "proven", "off"]


@dataclass(frozen=True, slots=True)
class Checks:
    """Of one class of scores."""

    right: int = 0
    wrong: int = 0

    def plus(self, *, right: bool) -> "Checks":
        return Checks(self.right + right, self.wrong + (not right))


@dataclass(frozen=True, slots=True)
class Stand:
    """What may be served now, and what is known of it."""

    state: State
    threshold: float | None  # that a score must reach; None: nothing is served
    checked: int  # of the classes that are served; for "off", of all
    wrong: int
    rate: float | None  # measured; None: nothing was checked
    upper_bound: float  # of the true rate
    trusts_opinions: bool  # whether the class of second opinions is proven, and so served

    def serves(self, score: float) -> bool:
        if score == SECOND_OPINION:
            return self.trusts_opinions
        return self.threshold is not None and score >= self.threshold


def stand(checks: Mapping[float, Checks], budget: float, cold_level: float) -> Stand:
    """From the best class down, as far as each is proven, or had no wrong hit so far and is not below `cold_level`."""
    served: list[float] = []
    proven = True
    for level in reversed(LEVELS):
        known = checks.get(level, Checks())
        is_proven = _bound(known) <= budget
        if not is_proven and (known.wrong or level < cold_level):
            break
        proven = proven and is_proven
        served.append(level)
    counted = [checks.get(level, Checks()) for level in (served or LEVELS)]
    wrong = sum(known.wrong for known in counted)
    checked = wrong + sum(known.right for known in counted)
    state: State = "off" if not served else "proven" if proven else "cold"
    return Stand(
        state,
        min(served, default=None),
        checked,
        wrong,
        wrong / checked if checked else None,
        max(map(_bound, counted)),
        _bound(checks.get(SECOND_OPINION, Checks())) <= budget,
    )


def enough(budget: float) -> int:
    """How many checks without a wrong one prove that the budget holds."""
    return math.ceil(math.log(1 - CONFIDENCE) / math.log(1 - budget)) if 0 < budget < 1 else 0


def level_of(score: float) -> float | None:
    """The class of a score; None: it is below all of them."""
    if score == SECOND_OPINION:
        return SECOND_OPINION
    return max((level for level in LEVELS if score >= level), default=None)


@functools.lru_cache(4096)
def upper_bound(wrong: int, checked: int, confidence: float = CONFIDENCE) -> float:
    """Clopper-Pearson, one-sided: the largest rate at which so few wrong ones had at least 1 - `confidence`.

    Clopper and Pearson, Biometrika 26 (1934).
    """
    if wrong >= checked:
        return 1.0
    low, high = wrong / checked, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if _at_most(wrong, checked, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def _at_most(wrong: int, checked: int, rate: float) -> float:
    """The probability of so many wrong ones or fewer, at a rate that is no lower than theirs.

    Summed from the last term down, each of which is smaller than the one before, until they no longer count.
    """
    if rate in (0.0, 1.0):
        return float(rate == 0.0 or wrong >= checked)
    ways = math.lgamma(checked + 1) - math.lgamma(wrong + 1) - math.lgamma(checked - wrong + 1)
    last = math.exp(ways + wrong * math.log(rate) + (checked - wrong) * math.log1p(-rate))
    total = term = 1.0
    for k in range(wrong, 0, -1):
        term *= k / (checked - k + 1) * (1 - rate) / rate
        total += term
        if term < total * _NEGLIGIBLE:
            break
    return min(1.0, last * total)


def _bound(known: Checks) -> float:
    checked = known.right + known.wrong
    return upper_bound(known.wrong, checked) if checked else 1.0
