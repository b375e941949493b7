"""What the owner decides about the cache. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from appliance.protocol import StepKind


@dataclass(frozen=True, slots=True)
class CachePolicy:
    enabled: bool = True
    semantic: bool = True
    semantic_off: frozenset[str] = frozenset()  # kinds of steps that are exact only
    sampled: bool = False  # answers that were drawn at random are kept without being asked for
    ttl_default_s: float = 7 * 86_400.0
    ttl_by_step: Mapping[str, float] | None = None
    false_hit_budget: float = 0.01
    cold_level: float = 0.9  # what a score must reach where nothing is measured yet

    def ttl_s(self, step: StepKind | None) -> float:
        return (self.ttl_by_step or {}).get(step or "", self.ttl_default_s)

    def is_semantic(self, step: StepKind | None) -> bool:
        return self.semantic and step not in self.semantic_off
