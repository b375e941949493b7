"""The policies of admission and of the step loop together, on virtual time: what they promise under overload."""

from collections import Counter
from collections.abc import Sequence

import pytest

from appliance.admission.queue import AGED_S
from tests.bench.overload import scenario
from tests.bench.overload.machines import CPU, GPU_7B, Machine
from tests.bench.overload.scenario import Arrival, Phase
from tests.bench.overload.seeds import NOISE, SeedResult, Verdict, one
from tests.bench.overload.simulator import Outcome, Simulation, capacity

GPU = GPU_7B
SEEDS = range(12)


def results(machine: Machine, times: float) -> Verdict:
    can_do = capacity(machine)
    return Verdict(machine.name, times, [one(machine, times, can_do, seed) for seed in SEEDS])


@pytest.mark.parametrize("times", [3.0, 10.0])
@pytest.mark.parametrize(("machine", "goodput"), [(CPU, 0.75), (GPU, 0.9)], ids=["cpu", "gpu"])
def test_critical_work_hardly_notices_and_the_machine_is_used(machine: Machine, goodput: float, times: float) -> None:
    found = results(machine, times)
    assert found.worst("lost") == 0
    assert found.worst("inversions") == 0
    assert found.pooled_ttft_ratio <= 1.2
    assert found.at("gap_ratio", 50) <= 1.2
    assert found.at("goodput", 50) >= goodput


@pytest.mark.parametrize("machine", [CPU, GPU], ids=["cpu", "gpu"])
def test_the_breaker_opens_soon_and_once_and_takes_branches_again_soon(machine: Machine) -> None:
    found: Sequence[SeedResult] = results(machine, 3.0).results
    assert all(result.openings == 1 for result in found)
    assert all(result.opens_s <= 5 for result in found)
    assert all(result.back_s <= 10 for result in found)


def steady(load: float, seed: int, seconds: float = 300.0) -> Outcome:
    phases = [Phase("steady", seconds, {"critical": load * 0.3, "normal": load * 0.4, "sheddable": load * 0.3})]
    arrivals = scenario.poisson(phases, capacity(GPU)[0], seed, GPU.answer_tokens)
    return Simulation(GPU, noise=NOISE, seed=str(seed)).run(arrivals, seconds)


@pytest.mark.parametrize("load", [0.8, 0.95, 1.05, 1.3])
def test_at_the_edge_of_saturation_and_with_noise_it_flaps_at_most_once_a_minute(load: float) -> None:
    for seed in range(3):
        opened = [change.at_s for change in steady(load, seed).transitions if change.after == "open"]
        assert len(opened) <= 300 / 60 + 1
        assert all(sum(at_s <= other < at_s + 60 for other in opened) <= 2 for at_s in opened)


def test_at_half_of_what_it_can_do_a_gpu_sheds_next_to_nothing() -> None:
    served = Counter[tuple[str, bool]]()
    for seed in range(3):
        outcome = steady(0.5, seed)
        assert not outcome.transitions
        served.update((one.criticality, one.error is None) for one in outcome.served)
    assert not served["critical", False]
    assert not served["normal", False]
    assert served["sheddable", False] <= 0.005 * served["sheddable", True]  # it waits for no room beside critical work


def beside_too_much_critical_work(load: float) -> Outcome:
    """For a minute, with a normal request every two seconds whose client waits for two minutes."""
    critical = scenario.poisson([Phase("minute", 60, {"critical": load})], capacity(CPU)[0], 1)
    normal = [Arrival(2.0 * i + 1, "minute", "normal", 40, 120.0) for i in range(30)]
    return Simulation(CPU).run(sorted([*critical, *normal], key=lambda arrival: arrival.at_s), 60)


@pytest.mark.parametrize("load", [0.9, 1.2])
def test_nobody_starves_beside_critical_work_that_fills_the_machine(load: float) -> None:
    outcome = beside_too_much_critical_work(load)
    normal = Counter(served.error for served in outcome.served if served.criticality == "normal")
    assert set(normal) <= {None, "overloaded"}  # who is taken is answered, and who is not learns it at once
    during = [s for s in outcome.served if s.criticality == "normal" and s.error is None and s.done_s < 60]
    assert len(during) >= 2  # though critical work never ends
    assert AGED_S < outcome.longest_wait_s <= 120
    assert outcome.inversions == 0


def test_the_same_seed_gives_the_same_run() -> None:
    assert one(CPU, 3.0, capacity(CPU), 7) == one(CPU, 3.0, capacity(CPU), 7)
