"""What is written down of an attempt. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """The columns of the table `attempts`, in their order; None is an SQL NULL: unknown, or there was none."""

    at: float  # Unix time, seconds
    request: str  # its id, as in `x-request-id`
    key: str | None  # of the caller: an id, never a secret
    task: str | None
    step: str | None
    criticality: str | None
    route: str  # "local", "frontier", "cache-exact" or "cache-semantic"
    reason: str
    provider: str | None  # of a frontier attempt
    model: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    ttft_ms: float | None
    itl_p50_ms: float | None
    itl_p99_ms: float | None
    total_ms: float
    queue_ms: float | None
    cost_usd: float | None  # None: unknown
    outcome: str  # "started", then "completed", "cancelled", or what went wrong
    flags: str  # words with commas between
    attempt: str | None = None  # its name: of two rows with the same the later one counts


def percentile_ms(gaps_s: Sequence[float], percent: float) -> float | None:
    """The nearest-rank percentile of times in seconds, in milliseconds; None of none."""
    if not gaps_s:
        return None
    ranked = sorted(gaps_s)
    return ranked[max(0, math.ceil(len(ranked) * percent / 100) - 1)] * 1000
