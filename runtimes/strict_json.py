"""JSON as RFC 8259 has it: Python's reader takes NaN and makes infinities of numbers that are too large."""

import json
import math
from collections.abc import Callable
from typing import Any


def loads(text: str, *, object_pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Raises ValueError, and RecursionError for what is nested too deep."""
    return json.loads(text, object_pairs_hook=object_pairs_hook, parse_constant=_refuse, parse_float=_finite)


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(digits)
    return value
