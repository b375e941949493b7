"""What an entry is worth keeping for. Pure.

It is what its next hit would save, by what it takes: tokens for each byte, for each use so far, halved with every
HALF_LIFE_S in which nobody used it. In logarithms the decay is the same for all entries, so that the order never
changes by itself and an index can hold it.
"""

import math
from typing import Final

HALF_LIFE_S: Final = 86_400.0
ENTRY_BYTES: Final = 500  # of keys, indexes and short columns, beside texts and vector


def worth(hits: int, completion_tokens: int, size_bytes: int, last_used_at: float) -> float:
    """`last_used_at` is a Unix time. Any number will do: they come from a file."""
    saved_by_byte = (1 + max(0, hits)) * max(1, completion_tokens) / max(1, size_bytes)
    return math.log2(saved_by_byte) + last_used_at / HALF_LIFE_S
