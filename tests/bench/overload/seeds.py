"""Many seeded runs of the simulator, and what the worst of them shows. One process for each core."""

import multiprocessing
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from tests.bench.overload import judge, scenario
from tests.bench.overload.machines import Machine
from tests.bench.overload.simulator import Simulation, capacity
from tests.bench.stats import percentile

NOISE: Final = 0.1  # of a step's time
CHUNK: Final = 10  # runs at a time
DOES_NOT_OPEN: Final = float("inf")


@dataclass(frozen=True, slots=True)
class SeedResult:
    seed: int
    ttft_ratio: float  # P99 of critical requests, over the same requests alone
    gap_ratio: float
    lost: int  # critical requests that were not answered
    goodput: float  # over the capacity of a machine that is always full
    opens_s: float  # after the step began
    back_s: float  # until branches are taken again, after it ended
    openings: int  # a minute
    longest_wait_s: float  # of a request that had its turn
    inversions: int
    ttfts_alone_s: Sequence[float]  # of the critical requests
    ttfts_beside_s: Sequence[float]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Over all seeds."""

    machine: str
    times: float
    results: Sequence[SeedResult]

    def worst(self, of: str) -> float:
        values = [float(getattr(result, of)) for result in self.results]
        return min(values) if of == "goodput" else max(values)

    @property
    def pooled_ttft_ratio(self) -> float:
        """P99 of the critical requests of all seeds: one seed has some hundred, so that its P99 is its worst or two."""
        alone, beside = (
            [ttft_s for result in self.results for ttft_s in getattr(result, which)]
            for which in ("ttfts_alone_s", "ttfts_beside_s")
        )
        return percentile(beside, 99) / percentile(alone, 99)

    def at(self, of: str, q: float) -> float:
        return percentile([float(getattr(result, of)) for result in self.results], q)


def judged(machine: Machine, times: float, seeds: Iterable[int]) -> Verdict:
    with multiprocessing.get_context("fork").Pool(len(os.sched_getaffinity(0))) as pool:
        results = pool.imap_unordered(partial(one, machine, times, capacity(machine)), seeds, chunksize=CHUNK)
        return Verdict(machine.name, times, tuple(sorted(results, key=lambda result: result.seed)))


def one(machine: Machine, times: float, can_do: tuple[float, float], seed: int) -> SeedResult:
    requests_s, tokens_s = can_do
    phases = scenario.step(times)
    until_s = sum(phase.seconds for phase in phases)
    begins_s = phases[0].seconds
    ends_s = begins_s + phases[1].seconds
    alone = Simulation(machine, noise=NOISE, seed=f"{seed} alone").run(
        scenario.poisson(scenario.only(phases, "critical"), requests_s, seed, machine.answer_tokens), until_s
    )
    beside = Simulation(machine, noise=NOISE, seed=f"{seed} beside").run(
        scenario.poisson(phases, requests_s, seed, machine.answer_tokens), until_s
    )
    before, after = judge.critical(alone.served, "step"), judge.critical(beside.served, "step")
    openings = [one.at_s for one in beside.transitions if one.after == "open"]
    takes_again = [one.at_s - ends_s for one in beside.transitions if one.before == "open" and one.at_s >= ends_s]
    return SeedResult(
        seed=seed,
        ttft_ratio=after.ttft_p99_s / before.ttft_p99_s,
        gap_ratio=after.gap_p99_s / before.gap_p99_s,
        lost=after.lost,
        goodput=judge.tokens_a_second(beside.served, begins_s, ends_s) / tokens_s,
        opens_s=min((at_s - begins_s for at_s in openings if at_s >= begins_s), default=DOES_NOT_OPEN),
        back_s=min(takes_again, default=0.0),
        openings=max((sum(at_s <= other < at_s + 60 for other in openings) for at_s in openings), default=0),
        longest_wait_s=beside.longest_wait_s,
        inversions=beside.inversions,
        ttfts_alone_s=judge.critical_ttfts_s(alone.served, "step"),
        ttfts_beside_s=judge.critical_ttfts_s(beside.served, "step"),
    )
