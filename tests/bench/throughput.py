"""Scenario: the same load on our daemon and on its peers, at 1, 4, 8 and 16 simultaneous streams.

Runs are paired and interleaved: in each round every server gets the same prompts, one server after the other, so that
both runs of a pair meet the machine in the same state; the order turns round with each round. Every prompt is new.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tests.bench.bounds import TimeBound
from tests.bench.claims import Claim
from tests.bench.errors import BadResponseError
from tests.bench.measurement import Noise, Sample, Workload, measure, unequal, worst
from tests.bench.processes import Server
from tests.bench.prompts import user_prompts
from tests.bench.stats import Spread, median, paired_ratios, percentile

COMPLETION_TOKENS = 64
RUN_TIMEOUT_S = 120.0  # some ten times what the slowest one takes on two cores


@dataclass(frozen=True, slots=True)
class Plan:
    """`rounds` is for each peer; one that gets fewer rounds sits the later ones out."""

    streams: int
    requests: int  # of each stream, one after another
    rounds: dict[str, int]


FULL = (
    Plan(1, 4, {"llama-server": 6, "llama_cpp.server": 2}),
    Plan(4, 2, {"llama-server": 5, "llama_cpp.server": 2}),
    Plan(8, 1, {"llama-server": 5, "llama_cpp.server": 4}),
    Plan(16, 1, {"llama-server": 5, "llama_cpp.server": 1}),
)
QUICK = (
    Plan(1, 2, {"llama-server": 2, "llama_cpp.server": 1}),
    Plan(4, 1, {"llama-server": 1}),
    Plan(8, 1, {"llama-server": 1, "llama_cpp.server": 1}),
    Plan(16, 1, {"llama-server": 1}),
)


@dataclass(frozen=True, slots=True)
class Measure:
    """One line of a table: its name with the unit, and how it comes out of one run or several together."""

    name: str
    of: Callable[[Sequence[Sample]], float]


def _ttft_ms(runs: Sequence[Sample], q: float) -> float:
    return percentile([ttft_s for run in runs for ttft_s in run.ttft_s], q) * 1e3


def _itl_ms(runs: Sequence[Sample], q: float) -> float:
    return percentile([gap_s for run in runs for gap_s in run.gaps_s], q) * 1e3


MEASURES = (
    Measure("tokens/s", lambda runs: median(run.tokens_per_s for run in runs)),
    Measure("TTFT P50 ms", lambda runs: _ttft_ms(runs, 50)),
    Measure("TTFT P99 ms", lambda runs: _ttft_ms(runs, 99)),
    Measure("ITL P50 ms", lambda runs: _itl_ms(runs, 50)),
    Measure("ITL P99 ms", lambda runs: _itl_ms(runs, 99)),
)


@dataclass(frozen=True, slots=True)
class Line:
    measure: str
    ours: float  # of all runs: the median rate, and percentiles of all requests or gaps together
    theirs: float
    ratio: Spread  # ours over theirs, pair by pair


@dataclass(frozen=True, slots=True)
class Comparison:
    """Our daemon and one peer at one number of streams."""

    streams: int
    peer: str
    pairs: int
    lines: tuple[Line, ...]
    noise: Noise  # the worst of all runs
    refused: str | None = None  # why there are no ratios


def run(ours: Server, peers: Sequence[Server], plans: Sequence[Plan], bound: TimeBound, seed: str) -> list[Comparison]:
    """Measures all plans, round by round, so that a drift of the machine meets all of them alike."""
    pairs: dict[tuple[int, str], list[tuple[Sample, Sample]]] = {}
    broken: dict[int, str] = {}  # by streams
    resident = [ours, *peers]
    for number in range(max(max(plan.rounds.values()) for plan in plans)):
        for plan in plans:
            taking_part = [peer for peer in peers if number < plan.rounds.get(peer.peer.name, 0)]
            if not taking_part or not bound.allows((plan.streams, len(taking_part))):
                continue
            workload = _workload(plan, f"{seed}/{plan.streams}/{number}")
            order = [ours, *taking_part] if number % 2 == 0 else [*reversed(taking_part), ours]
            try:
                samples = {server.peer.name: measure(server, workload, resident, RUN_TIMEOUT_S) for server in order}
            except BadResponseError as error:
                broken[plan.streams] = str(error)
                continue
            for peer in taking_part:
                pair = (samples[ours.peer.name], samples[peer.peer.name])
                pairs.setdefault((plan.streams, peer.peer.name), []).append(pair)
    return [
        compare(plan.streams, name, pairs.get((plan.streams, name), []), broken.get(plan.streams))
        for plan in plans
        for name in plan.rounds
    ]


def _workload(plan: Plan, seed: str) -> Workload:
    prompts = user_prompts(seed)
    return Workload(
        prompts=tuple(tuple(itertools.islice(prompts, plan.requests)) for _ in range(plan.streams)),
        completion_tokens=COMPLETION_TOKENS,
    )


def compare(streams: int, peer: str, pairs: Sequence[tuple[Sample, Sample]], broken: str | None = None) -> Comparison:
    """Ratios pair by pair; none when some run is `broken`, or the runs of some pair did not do the same work."""
    noise = worst(sample.noise for pair in pairs for sample in pair)
    refused = broken or next((why for ours, theirs in pairs if (why := unequal(ours, theirs))), None)
    if refused is None and not pairs:
        refused = "no time was left for it"
    if refused is not None:
        return Comparison(streams, peer, len(pairs), (), noise, refused)
    lines = []
    all_ours, all_theirs = [ours for ours, _ in pairs], [theirs for _, theirs in pairs]
    for line in MEASURES:
        ratio = paired_ratios([line.of([run]) for run in all_ours], [line.of([run]) for run in all_theirs])
        lines.append(Line(line.name, line.of(all_ours), line.of(all_theirs), ratio))
    return Comparison(streams, peer, len(pairs), tuple(lines), noise)


def streams(n: int) -> str:
    return "1 stream" if n == 1 else f"{n} streams"


def claims(comparisons: Sequence[Comparison]) -> Iterator[Claim]:
    """What the README says about throughput, with the figures of this run."""
    for comparison in comparisons:
        ratios = {line.measure: line.ratio.median for line in comparison.lines}
        if not ratios:
            continue
        where = f"{streams(comparison.streams)}, against {comparison.peer}"
        if comparison.peer == "llama-server":
            yield Claim(f"tokens/s ratio, {where}", ratios["tokens/s"], at_least=1.0)
            if comparison.streams == 16:
                yield Claim(f"TTFT P99 ratio, {where}", ratios["TTFT P99 ms"], at_most=1.0)
        elif comparison.streams == 8:
            yield Claim(f"tokens/s ratio, {where}", ratios["tokens/s"], at_least=1.2)
            yield Claim(f"TTFT P99 ratio, {where}", ratios["TTFT P99 ms"], at_most=1 / 3)
