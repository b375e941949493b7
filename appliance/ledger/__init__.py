"""The ledger: one row for every attempt to answer a request, local or remote, in `ledger.db`.

ledger = Ledger(state_dir / "ledger.db", clock=time.time)
ledger.add(Row(...))       # never blocks, never fails
ledger.spending(since_s)   # what was spent, for the budgets
"""

from appliance.ledger.ledger import Ledger, LedgerStatus, Spending
from appliance.ledger.row import Row, percentile_ms

__all__ = ["Ledger", "LedgerStatus", "Row", "Spending", "percentile_ms"]
