"""The frontier leg: remote providers, their retries, prices and budgets, behind one egress gate."""
