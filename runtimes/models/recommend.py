"""Which models suit a machine. A pure function of its memory and the catalogue.

On a GPU the most parameters win, at four bits if need be, as long as each of 16 slots keeps a useful context. What
is left goes to a finer quantisation, but only while each slot can still hold a whole request: so a large GPU ends
with unquantised weights and long contexts, not with a larger model. On a CPU every token reads all weights from
memory, so size is time: at a typical 50 GB/s a 1.1 GB model writes some 40 tokens/s and a 4.7 GB model 10.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from runtimes.models.catalogue import RUNTIME_BYTES, SLOTS, CatalogueEntry
from runtimes.models.machine import Memory

MIN_TOKENS: Final = 2_048  # for each slot: a system prompt, a question and an answer
COMFORT_TOKENS: Final = 8_192  # for each slot: the largest request that the default configuration takes
CPU_PARAMETERS: Final = 2_000_000_000
CPU_SHARE: Final = 0.6  # of the memory: the rest is for the owner's own work
CPU_RUNTIME_BYTES: Final = 300_000_000  # compute buffers, and no driver
GPU_SHARE: Final = 0.9  # drivers, the desktop and fragmentation take the rest,
GPU_RESERVED_BYTES: Final = 1 << 30  # and at least this much


@dataclass(frozen=True, slots=True)
class Recommendation:
    entry: CatalogueEntry
    kv_tokens: int  # room for, shared by all slots
    reason: str

    @property
    def tokens_per_slot(self) -> int:
        """When all 16 slots are in use and share nothing."""
        return min(self.kv_tokens // SLOTS, self.entry.context_tokens)


def recommend(memory: Memory, entries: Iterable[CatalogueEntry]) -> tuple[Recommendation, ...]:
    """The models that fit, the best first, one of each family. Empty when not even the smallest fits."""
    on_gpu = memory.gpu_bytes > 0
    runtime = RUNTIME_BYTES if on_gpu else CPU_RUNTIME_BYTES
    spare = budget_bytes(memory) - runtime
    candidates = sorted(
        (entry for entry in entries if entry.kind == "chat" and (on_gpu or entry.parameters <= CPU_PARAMETERS)),
        key=lambda entry: (-entry.parameters, entry.family, entry.bits_per_weight),
    )
    families = groupby(candidates, key=lambda entry: entry.family)
    chosen = (_of_family(list(variants), spare) for _, variants in families)
    return tuple(recommendation for recommendation in chosen if recommendation is not None)


def budget_bytes(memory: Memory) -> int:
    """What a model with all its slots may take of this machine's memory."""
    if memory.gpu_bytes:
        return min(int(memory.gpu_bytes * GPU_SHARE), max(0, memory.gpu_bytes - GPU_RESERVED_BYTES))
    return int(memory.ram_bytes * CPU_SHARE)


def _of_family(variants: list[CatalogueEntry], spare_bytes: int) -> Recommendation | None:
    """The finest quantisation with a comfortable context; else the coarsest, if 16 slots fit at all."""
    for entry in reversed(variants):
        if entry.memory_bytes(min(COMFORT_TOKENS, entry.context_tokens), runtime_bytes=0) <= spare_bytes:
            finest = entry is variants[-1]
            why = "its finest quantisation in the catalogue" if finest else "a finer quantisation would cost context"
            return _fitting(entry, spare_bytes, why)
    if variants[0].memory_bytes(MIN_TOKENS, runtime_bytes=0) <= spare_bytes:
        return _fitting(variants[0], spare_bytes, "contexts are short when all slots are busy")
    return None


def _fitting(entry: CatalogueEntry, spare_bytes: int, reason: str) -> Recommendation:
    return Recommendation(entry, (spare_bytes - entry.size_bytes) // entry.kv_bytes_per_token, reason)
