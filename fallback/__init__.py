"""The frontier leg: remote providers, their retries, prices and budgets, behind one egress gate.

    gate = EgressGate(offline=False)
    frontier = Frontier(providers, gate, load_prices(), budget)
    async for event in frontier.generate(request, Caller("key_1"), deadline_s, record=ledger.add): ...

Knows the canonical protocol; knows no engine, no wire format of ours and nothing of the daemon.
"""

from fallback.budget import Budget, BudgetLimits
from fallback.expressible import excluded_by
from fallback.failure import FrontierFailed
from fallback.frontier import Caller, Frontier, ProviderStatus
from fallback.gate import EgressGate, EgressRefused
from fallback.paid_attempt import AttemptRecord
from fallback.prices import InvalidPrices, PriceTable, load_prices
from fallback.provider import FEATURES, KeySource, KeyUnavailable, Provider

__all__ = [
    "FEATURES",
    "AttemptRecord",
    "Budget",
    "BudgetLimits",
    "Caller",
    "EgressGate",
    "EgressRefused",
    "Frontier",
    "FrontierFailed",
    "InvalidPrices",
    "KeySource",
    "KeyUnavailable",
    "PriceTable",
    "Provider",
    "ProviderStatus",
    "excluded_by",
    "load_prices",
]
