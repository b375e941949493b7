"""What a model's tokens cost, from a table that is shipped and one of the owner's. Never fetched.

A dated name ("gpt-4o-2024-08-06", "claude-sonnet-4-20250514") has the price of the name without the date unless it
stands in the table itself.
"""

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final

SHIPPED: Final = Path(__file__).with_name("prices.toml")
_DATE_AT_END: Final = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2}|latest)$")
DEAREST_USD: Final = 1_000_000
_KEYS: Final = frozenset({"model", "from", "input", "cached_input", "output"})


class InvalidPrices(Exception):
    """A price file that cannot be relied on; the message names the entry and the key."""


@dataclass(frozen=True, slots=True)
class Price:
    """USD for a million tokens."""

    model: str
    since: date
    input: float
    cached_input: float
    output: float

    def usd(self, prompt_tokens: int, cached_tokens: int, completion_tokens: int) -> float:
        """`prompt_tokens` include the cached ones."""
        fresh = prompt_tokens - cached_tokens
        return (fresh * self.input + cached_tokens * self.cached_input + completion_tokens * self.output) / 1e6


class PriceTable:
    def __init__(self, prices: Iterable[Price]) -> None:
        """Of two prices of a model from the same day the later one in `prices` counts."""
        self._prices = sorted(prices, key=lambda price: price.since)  # stable

    def of(self, model: str, day: date) -> Price | None:
        """What the model costs on a day; None: nobody has said."""
        plain = _DATE_AT_END.sub("", model)
        for name in dict.fromkeys((model, plain, model.rpartition("/")[2], plain.rpartition("/")[2])):
            found = [price for price in self._prices if price.model == name and price.since <= day]
            if found:
                return found[-1]
        return None


def load_prices(own: Path | None = None) -> PriceTable:
    """The shipped table with the owner's over it. Raises `InvalidPrices`."""
    shipped = _read(SHIPPED)
    if own is None:
        return PriceTable(shipped)
    mine = _read(own)
    named = {price.model for price in mine}
    return PriceTable([*(price for price in shipped if price.model not in named), *mine])


def _read(path: Path) -> list[Price]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidPrices(f"{path}: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidPrices(f"{path} is not valid TOML: {error}") from None
    entries = document.pop("price", [])
    if document:
        raise InvalidPrices(f"{path}: {next(iter(document))!r} is not known; write [[price]] entries")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InvalidPrices(f"{path}: 'price' should be a list of tables: [[price]]")
    return [_price(entry, f"{path}: price {i + 1}") for i, entry in enumerate(entries)]


def _price(entry: dict[str, Any], where: str) -> Price:
    model = entry.get("model")
    if not isinstance(model, str) or not model:
        raise InvalidPrices(f"{where}: 'model' should be a name")
    where = f"{where} ({model})"
    if unknown := sorted(entry.keys() - _KEYS):
        raise InvalidPrices(f"{where}: {unknown[0]!r} is not known; the keys are {', '.join(sorted(_KEYS))}")
    since = entry.get("from", date.min)
    if isinstance(since, datetime) or not isinstance(since, date):
        raise InvalidPrices(f"{where}: 'from' should be a day, like 2026-01-31")
    return Price(
        model=model,
        since=since,
        input=_usd(entry, "input", where),
        cached_input=_usd(entry, "cached_input" if "cached_input" in entry else "input", where),
        output=_usd(entry, "output", where),
    )


def _usd(entry: dict[str, Any], key: str, where: str) -> float:
    value = entry.get(key)
    # Compared before it is converted: TOML's integers have no end.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= DEAREST_USD:
        raise InvalidPrices(f"{where}: {key!r} should be USD for a million tokens, 0 to {DEAREST_USD}")
    return float(value)
