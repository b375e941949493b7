"""Puts the frontier leg together from the settings, and the budgets from what the ledger says was spent."""

from datetime import UTC, datetime

from appliance.ledger import Ledger
from appliance.settings import ConfigError, Settings
from fallback import Budget, EgressGate, Frontier, InvalidPrices, PriceTable, load_prices


def prices_of(settings: Settings) -> PriceTable:
    """Raises `ConfigError` for a price file that cannot be relied on."""
    try:
        return load_prices(settings.economics.prices_path)
    except InvalidPrices as error:
        raise ConfigError("economics.prices", str(error)) from None


def frontier_of(settings: Settings, prices: PriceTable, gate: EgressGate, ledger: Ledger) -> Frontier:
    """In the event loop that it is to work in."""
    budget = Budget(settings.economics.limits, lambda: datetime.now(UTC))
    month = datetime.now(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    for spending in ledger.spending(month.timestamp()):
        budget.spent_before(spending.key or "local", datetime.fromtimestamp(spending.at, UTC), spending.usd)
    providers = [provider.provider() for provider in settings.frontier.providers]
    return Frontier(providers, gate, prices, budget, proxy=settings.frontier.proxy)
