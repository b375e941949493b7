"""The sections [admission] and [slo]."""

from typing import Self

from pydantic import Field, model_validator

from appliance.admission.breaker import Rules
from appliance.section import Section


class AdmissionSettings(Section):
    """Who waits and who has to go when the machine is saturated. Saturation is 1 where there is no room left."""

    normal_ceiling: float = Field(0.8, gt=0, le=1, description="saturation from which normal requests wait")
    sheddable_ceiling: float = Field(0.6, gt=0, le=1, description="saturation from which sheddable requests wait")
    trip_at: float = Field(1.0, gt=0, description="saturation that opens the breaker")
    recover_at: float = Field(0.8, gt=0, description="saturation that lets it recover")
    dwell_s: float = Field(5.0, ge=0, description="an open breaker stays open for at least so long")
    grace_s: float = Field(2.0, ge=0, description="a running branch is not ended before it has had so long")
    overload_wait_s: float = Field(
        4.0,
        gt=0,
        description="normal requests wait no longer beside critical work, while overload lasts (503)",
    )
    max_waiting_tokens: int = Field(1_000_000, ge=1, description="of the requests that wait; one more is refused (503)")
    max_memory_mib: int | None = Field(
        None, ge=64, description="resident memory of the daemon that counts as saturation; null: a tenth of the machine"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.sheddable_ceiling > self.normal_ceiling:
            raise ValueError(
                f"sheddable_ceiling ({self.sheddable_ceiling:g}) is above normal_ceiling ({self.normal_ceiling:g}), so "
                "that what may be shed would outlast what may not"
            )
        if self.recover_at >= self.trip_at:
            raise ValueError(
                f"recover_at ({self.recover_at:g}) is not below trip_at ({self.trip_at:g}), so that the breaker would "
                "open and close for ever"
            )
        return self

    @property
    def rules(self) -> Rules:
        return Rules(trip_at=self.trip_at, recover_at=self.recover_at, dwell_s=self.dwell_s)


class SloSettings(Section):
    """What work is promised; by it the machine is judged, and batches are sized."""

    queue_wait_s: float = Field(1.0, gt=0, description="expected wait for a slot that counts as saturation")
    itl_ms: float = Field(
        0.0, ge=0, description="a critical stream's token may take so long beside others, however much less alone"
    )
