"""What the overload benchmark is made of: arrivals, and what is said of their fate."""

import math

import pytest

from tests.bench.overload import judge, scenario, tables
from tests.bench.overload.judge import Served
from tests.bench.overload.real import Capacity, Change, Run
from tests.bench.overload.scenario import Phase
from tests.bench.overload.tables import Pooled


def served(criticality: str = "critical", at_s: float = 10.0, **fields: object) -> Served:
    usual = {"phase": "step", "done_s": at_s + 1, "error": None, "ttft_s": 0.1, "gaps_s": [0.01, 0.02], "tokens": 3}
    return Served(criticality=criticality, at_s=at_s, **{**usual, **fields})  # type: ignore[arg-type]


def test_arrivals_come_at_the_rate_of_their_phase_and_in_order() -> None:
    phases = scenario.step(3.0)
    found = list(scenario.poisson(phases, 10.0, seed=1))
    assert [one.at_s for one in found] == sorted(one.at_s for one in found)
    for phase in phases:
        of_phase = sum(one.phase == phase.name for one in found)
        expected = 10.0 * sum(phase.load.values()) * phase.seconds
        assert of_phase == pytest.approx(expected, abs=4 * math.sqrt(expected))


def test_critical_work_is_at_most_half_of_what_the_machine_can_do_and_all_of_it_three_times() -> None:
    storm = scenario.step(3.0)[1]
    assert sum(storm.load.values()) == pytest.approx(3.0)
    assert storm.load["critical"] <= 0.5


def test_the_baseline_has_the_very_same_critical_requests() -> None:
    phases = scenario.step(3.0)
    alone = list(scenario.poisson(scenario.only(phases, "critical"), 10.0, seed=3))
    beside = [one for one in scenario.poisson(phases, 10.0, seed=3) if one.criticality == "critical"]
    assert alone == beside


def test_another_seed_is_another_run() -> None:
    phases = [Phase("x", 60, {"normal": 1.0})]
    assert list(scenario.poisson(phases, 1.0, 1)) != list(scenario.poisson(phases, 1.0, 2))


def test_only_critical_requests_of_the_phase_are_judged() -> None:
    found = judge.critical(
        [
            served(),
            served(ttft_s=0.3, gaps_s=[0.03]),
            served(error="late"),
            served("normal", ttft_s=9.0),
            served(phase="after", ttft_s=9.0),
        ],
        "step",
    )
    assert (found.count, found.lost) == (3, 1)
    assert found.ttft_p99_s < 0.3
    assert found.gap_p50_s == pytest.approx(0.02)


def test_work_that_was_cut_short_is_no_goodput() -> None:
    runs = [served(at_s=1, tokens=50), served("normal", at_s=2, tokens=50), served(at_s=3, tokens=50, error="late")]
    assert judge.tokens_a_second(runs, 0, 10) == 10.0


def test_a_request_that_had_begun_was_not_refused() -> None:
    runs = [
        served("sheddable", error="branch_shed", ttft_s=None, done_s=10.004),
        served("sheddable", error="branch_shed"),
        served("normal", error="deadline_exceeded", ttft_s=None),
    ]
    assert judge.refusals_s(runs) == [pytest.approx(0.004)]


def test_the_table_says_what_became_of_each_class_and_when_the_breaker_changed() -> None:
    storm = Run(
        (served(), served("normal", error="overloaded", ttft_s=None), served("sheddable")),
        (Change(11.5, "open", "demand"), Change(73.0, "half-open", "recovered")),
        without_retry_after=0,
    )
    ours = Pooled("appliance", [Run((served(),), (), 0)], [storm])
    text = "\n".join(tables.real(ours, Capacity(1.0, 10.0), 10.0, 70.0))
    assert "normal: 0 of 1 answered in time, 1 overloaded" in text
    assert "open at 1.5 s (demand), half-open at 63.0 s (recovered)" in text
    claims = {claim.what: claim for claim in tables.real_claims(ours, Capacity(1.0, 10.0), 10.0, 70.0)}
    assert claims["breaker opens after the step began, s, slowest"].measured == pytest.approx(1.5)
    assert claims["branches are taken again after its end, s, slowest"].measured == pytest.approx(3.0)
    assert not claims["goodput over capacity, mean"].holds
