"""Which comparisons the throughput benchmark makes of its runs, and which it refuses."""

import dataclasses

import pytest

from tests.bench.claims import Claim
from tests.bench.measurement import Noise, Sample
from tests.bench.throughput import FULL, QUICK, Plan, claims, compare

_QUIET = Noise(0.01, 0.0, 0.02)
_OURS = Sample(
    wall_s=4.0,
    completion_tokens=512,
    prompt_tokens=600,
    cached_tokens=0,
    ttft_s=(0.5, 1.0),
    gaps_s=(0.01, 0.02),
    noise=_QUIET,
)
_THEIRS = dataclasses.replace(_OURS, wall_s=5.0, ttft_s=(1.0, 2.0), gaps_s=(0.02, 0.04))


def test_ratios_are_ours_over_theirs_pair_by_pair() -> None:
    slower_hour = [dataclasses.replace(run, wall_s=run.wall_s * 3) for run in (_OURS, _THEIRS)]
    comparison = compare(8, "llama-server", [(_OURS, _THEIRS), (slower_hour[0], slower_hour[1])])
    ratios = {line.measure: line.ratio for line in comparison.lines}
    assert ratios["tokens/s"].median == pytest.approx(1.25)
    assert ratios["tokens/s"].low == pytest.approx(ratios["tokens/s"].high)
    assert ratios["TTFT P99 ms"].median == pytest.approx(0.5)
    assert ratios["ITL P50 ms"].median == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("other", "field"),
    [
        (dataclasses.replace(_THEIRS, completion_tokens=511), "completion_tokens"),
        (dataclasses.replace(_THEIRS, prompt_tokens=599), "prompt_tokens"),
    ],
)
def test_runs_that_did_different_work_get_no_ratio(other: Sample, field: str) -> None:
    comparison = compare(8, "llama-server", [(_OURS, _THEIRS), (_OURS, other)])
    assert comparison.lines == ()
    assert comparison.refused is not None
    assert field in comparison.refused
    assert list(claims([comparison])) == []


def test_a_peer_that_does_not_count_its_prompt_is_still_compared() -> None:
    silent = dataclasses.replace(_THEIRS, prompt_tokens=None, cached_tokens=None)
    assert compare(8, "llama_cpp.server", [(_OURS, silent)]).refused is None


def test_the_worst_disturbance_of_all_runs_is_shown() -> None:
    disturbed = dataclasses.replace(_THEIRS, noise=Noise(0.0, 0.3, 0.1))
    assert compare(1, "llama-server", [(_OURS, _THEIRS), (_OURS, disturbed)]).noise == Noise(0.01, 0.3, 0.1)


def test_claims_name_the_peer_and_the_bound() -> None:
    pairs = [(_OURS, _THEIRS)]
    found = {
        claim.what: claim
        for claim in claims([compare(16, "llama-server", pairs), compare(8, "llama_cpp.server", pairs)])
    }
    assert found["tokens/s ratio, 16 streams, against llama-server"].at_least == 1.0
    assert found["TTFT P99 ratio, 16 streams, against llama-server"].holds
    assert found["tokens/s ratio, 8 streams, against llama_cpp.server"].holds
    assert not found["TTFT P99 ratio, 8 streams, against llama_cpp.server"].holds  # 0.5, and a third is asked


def test_a_claim_at_its_bound_holds() -> None:
    assert Claim("", 1.0, at_least=1.0).holds
    assert Claim("", 3.0, at_most=3.0).holds
    assert not Claim("", 3.01, at_most=3.0).holds


@pytest.mark.parametrize("plans", [FULL, QUICK])
def test_every_number_of_streams_meets_the_c_server(plans: tuple[Plan, ...]) -> None:
    assert [plan.streams for plan in plans if plan.rounds["llama-server"]] == [1, 4, 8, 16]


def test_a_run_that_broke_off_leaves_no_ratio_but_its_reason() -> None:
    comparison = compare(8, "llama-server", [(_OURS, _THEIRS)], broken="appliance: HTTP 503")
    assert (comparison.lines, comparison.refused) == ((), "appliance: HTTP 503")


def test_what_there_was_no_time_for_is_said() -> None:
    comparison = compare(16, "llama-server", [])
    assert (comparison.pairs, comparison.refused) == (0, "no time was left for it")
