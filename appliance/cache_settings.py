"""The section [cache]."""

from typing import Self, get_args

from pydantic import Field, model_validator

from appliance.protocol import StepKind
from appliance.section import Names, Section
from cache.policy import CachePolicy


class CacheSettings(Section):
    """What is answered without a model. Embeddings come from `models.embedding`."""

    enabled: bool = Field(default=True, description="answers are kept, and given again to the same request")
    semantic: bool = Field(default=True, description="also to a request that asks the same in other words")
    exact_only: Names = Field((), description="kinds of steps that get an answer for the very same request only")
    sampled: bool = Field(default=False, description="also answers drawn at random: temperature above 0 and no seed")
    ttl_s: float = Field(604_800.0, gt=0, description="an answer is given for so long")
    short_lived: Names = Field(("plan", "chat"), description="kinds of steps whose answers live for a tenth of that")
    false_hit_budget: float = Field(
        0.01, gt=0, lt=1, description="share of semantic hits that may be wrong, with 95 % confidence"
    )
    recheck_share: float = Field(
        0.05, ge=0, le=1, description="of semantic hits, answered afresh in idle time to measure how many are wrong"
    )
    second_opinion: bool = Field(
        default=True, description="the local model is asked too, where `appliance calibrate` found it good enough"
    )
    max_entries: int = Field(200_000, ge=1, description="beyond it the least valuable answers go")
    max_bytes: int = Field(1_073_741_824, ge=16_777_216, description="of the file on disk")

    @model_validator(mode="after")
    def _known_steps(self) -> Self:
        for name in ("exact_only", "short_lived"):
            for step in getattr(self, name):
                if step not in get_args(StepKind):
                    raise ValueError(f"{name}: {step!r} is none of {', '.join(get_args(StepKind))}")
        return self

    @property
    def policy(self) -> CachePolicy:
        return CachePolicy(
            enabled=self.enabled,
            semantic=self.semantic,
            semantic_off=frozenset(self.exact_only),
            sampled=self.sampled,
            ttl_default_s=self.ttl_s,
            ttl_by_step=dict.fromkeys(self.short_lived, self.ttl_s / 10),
            false_hit_budget=self.false_hit_budget,
        )
