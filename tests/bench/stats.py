"""Percentiles and paired ratios: what the tables are made of. Pure; knows no server and no clock."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


def percentile(values: Iterable[float], q: float) -> float:
    """The q-th percentile (0 to 100), linear between the closest ranks (NumPy's default, Hyndman and Fan's type 7).

    With n values the rank is `(n - 1) * q / 100`, so P99 of fewer than 101 values lies between the two largest.
    ValueError when there are none.
    """
    ordered = sorted(values)
    if not ordered:
        raise ValueError("a percentile needs at least one value")
    if not 0 <= q <= 100:
        raise ValueError(f"a percentile lies between 0 and 100, not at {q}")
    rank = (len(ordered) - 1) * q / 100
    below, above = math.floor(rank), math.ceil(rank)
    return ordered[below] + (ordered[above] - ordered[below]) * (rank - below)


def median(values: Iterable[float]) -> float:
    return percentile(values, 50)


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, least and greatest of a value that was measured `n` times."""

    median: float
    low: float
    high: float
    n: int


def spread(values: Sequence[float]) -> Spread:
    return Spread(median(values), min(values), max(values), len(values))


def paired_ratios(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Ours over theirs, pair by pair: the two runs of a pair stand side by side in time, so a slow drift of the
    machine falls out of their ratio, as it would not from the ratio of two medians."""
    return spread([a / b for a, b in zip(ours, theirs, strict=True)])


def paired_differences(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Ours minus theirs, pair by pair."""
    return spread([a - b for a, b in zip(ours, theirs, strict=True)])
