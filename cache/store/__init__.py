"""The cache's store: answers and their vectors, in one SQLite file.

store = Store(state_dir / "cache.db", clock=time.time, max_bytes=2**30, max_entries=200_000)
store.put(Entry(...))
store.get(key)                           # the exact tier
store.near(fingerprint, tag, vector)     # candidates of the semantic tier, best first

A file that is missing, locked, full or broken never raises: reads find nothing, writes are dropped, `stats` says why.
Knows no HTTP, no verifier and no embedding model.
"""

from cache.store.entry import Candidate, Entry, Stored, StoreStats, Vector
from cache.store.store import Store

__all__ = ["Candidate", "Entry", "Store", "StoreStats", "Stored", "Vector"]
