"""When to try again, and what a provider says about that. Pure but for the random source that is passed in."""

import random
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

# Statuses that may be another one the next time. 529 is Anthropic's "overloaded".
RETRIED: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
FIRST_PAUSE_S: Final = 0.25
LONGEST_PAUSE_S: Final = 8.0
LONGEST_S: Final = 1e7  # four months: a longer wait is a slip


def pause_s(attempt: int, retry_after_s: float | None, rng: random.Random) -> float:
    """Before trying again after the `attempt`-th failure (from 1): what the provider asks for and a little more, else
    a random time up to a bound that doubles."""
    if retry_after_s is not None:
        return retry_after_s + rng.uniform(0, 0.1 * retry_after_s + 0.05)
    bound_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (attempt - 1))
    return rng.uniform(bound_s / 2, bound_s)


def retry_after_s(headers: Mapping[str, str], body: Any, now: datetime) -> float | None:
    """Seconds that an error answer asks to wait: in `retry-after-ms`, `retry-after` (seconds or a date), or in the
    body as Google's and others' APIs have it. None: it does not say. Never negative."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        seconds = _number(text)
        if seconds is not None:
            return seconds * unit
        if text and name == "retry-after":
            try:
                date = parsedate_to_datetime(text)
            except ValueError:
                continue
            date = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
            return min(LONGEST_S, max(0.0, (date - now).total_seconds()))
    return _in_body(body, depth=5)  # Google's is in a list, in an error, in its details, in one of them


def _in_body(body: Any, depth: int) -> float | None:
    if isinstance(body, list):
        found = (_in_body(item, depth - 1) for item in body[:16])
        return next((seconds for seconds in found if seconds is not None), None) if depth else None
    if not isinstance(body, dict) or not depth:
        return None
    for name in ("retry_after", "retryAfter", "retry_after_seconds", "retryDelay", "retry_delay"):
        value = body.get(name)
        text = value.removesuffix("s") if isinstance(value, str) else value
        seconds = _number(text)
        if seconds is not None:
            return seconds
    return next(
        (seconds for value in body.values() if (seconds := _in_body(value, depth - 1)) is not None),
        None,
    )


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if 0 <= number < LONGEST_S else None
