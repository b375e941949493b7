"""What an overload did to each class. Pure; for a real server and for a simulated one alike."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from appliance.protocol import Criticality
from tests.bench.stats import percentile


@dataclass(frozen=True, slots=True)
class Served:
    """What came of one request."""

    criticality: Criticality
    phase: str
    at_s: float  # when it was sent, from the start of the run
    done_s: float  # when it ended, likewise
    error: str | None  # its code; None: it was answered whole
    ttft_s: float | None
    gaps_s: Sequence[float]  # between its tokens
    tokens: int  # of a whole answer


@dataclass(frozen=True, slots=True)
class Critical:
    """The critical requests of one phase."""

    count: int
    ttft_p50_s: float
    ttft_p99_s: float
    gap_p50_s: float
    gap_p99_s: float
    lost: int  # shed, refused, failed or not answered in time


def critical(served: Collection[Served], phase: str) -> Critical:
    mine = [one for one in served if one.criticality == "critical" and one.phase == phase]
    ttfts = critical_ttfts_s(mine, phase) or [float("inf")]
    gaps = [gap for one in mine for gap in one.gaps_s] or [float("inf")]
    return Critical(
        count=len(mine),
        ttft_p50_s=percentile(ttfts, 50),
        ttft_p99_s=percentile(ttfts, 99),
        gap_p50_s=percentile(gaps, 50),
        gap_p99_s=percentile(gaps, 99),
        lost=sum(one.error is not None for one in mine),
    )


def critical_ttfts_s(served: Collection[Served], phase: str) -> list[float]:
    mine = (one for one in served if one.criticality == "critical" and one.phase == phase)
    return [one.ttft_s for one in mine if one.ttft_s is not None]


def tokens_a_second(served: Collection[Served], begins_s: float, ends_s: float) -> float:
    """Of whole answers that ended then: what was begun and not finished was for nothing."""
    tokens = sum(one.tokens for one in served if one.error is None and begins_s <= one.done_s < ends_s)
    return tokens / (ends_s - begins_s)


def refusals_s(served: Collection[Served]) -> list[float]:
    """How long each took that was refused before it began."""
    return [
        one.done_s - one.at_s for one in served if one.error in ("branch_shed", "overloaded") and one.ttft_s is None
    ]
