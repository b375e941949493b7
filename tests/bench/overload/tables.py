"""Results of the overload benchmarks as text and as claims. Pure."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tests.bench.claims import Claim
from tests.bench.overload import judge
from tests.bench.overload.judge import Served
from tests.bench.overload.real import Capacity, Run
from tests.bench.overload.seeds import Verdict
from tests.bench.report import table
from tests.bench.stats import percentile

_SHOWN: Final = (
    ("critical TTFT P99, over alone", "ttft_ratio", "{:.2f}"),
    ("critical inter-token P99, over alone", "gap_ratio", "{:.2f}"),
    ("critical requests lost", "lost", "{:.0f}"),
    ("goodput, over capacity", "goodput", "{:.2f}"),
    ("breaker opens after, s", "opens_s", "{:.1f}"),
    ("branches are taken again after, s", "back_s", "{:.1f}"),
    ("openings in a minute, at most", "openings", "{:.0f}"),
    ("longest wait, s", "longest_wait_s", "{:.1f}"),
    ("priority inversions", "inversions", "{:.0f}"),
)


def simulated(verdict: Verdict) -> list[str]:
    title = f"{verdict.machine}, {verdict.times:g}x, {len(verdict.results)} seeds"
    rows = [
        (what, form.format(verdict.at(of, 50)), form.format(_bad(verdict, of)), form.format(verdict.worst(of)))
        for what, of, form in _SHOWN
    ]
    pooled = f"{verdict.pooled_ttft_ratio:.2f}"
    return [
        *table((title, "median", "99 % of seeds", "worst seed"), rows),
        f"  critical TTFT P99 over alone, requests of all seeds together: {pooled}",
    ]


def _bad(verdict: Verdict, of: str) -> float:
    return verdict.at(of, 1 if of == "goodput" else 99)


def simulated_claims(verdict: Verdict, goodput: float) -> Iterator[Claim]:
    what = f"{verdict.machine}, {verdict.times:g}x"
    yield Claim(f"{what}, all seeds: critical TTFT P99 over alone", verdict.pooled_ttft_ratio, at_most=1.2)
    yield Claim(f"{what}, median seed: goodput over capacity", verdict.at("goodput", 50), at_least=goodput)
    where = f"{what}, worst seed"
    yield Claim(f"{where}: critical inter-token P99 over alone", verdict.worst("gap_ratio"), at_most=1.2)
    yield Claim(f"{where}: critical requests lost", verdict.worst("lost"), at_most=0)
    yield Claim(f"{where}: branches are taken again after, s", verdict.worst("back_s"), at_most=10)
    yield Claim(f"{where}: priority inversions", verdict.worst("inversions"), at_most=0)


@dataclass(frozen=True, slots=True)
class Pooled:
    """Of one server, all seeds together."""

    name: str
    alone: Sequence[Run]
    beside: Sequence[Run]

    def critical(self, runs: Sequence[Run]) -> judge.Critical:
        return judge.critical([one for run in runs for one in run.served], "step")

    @property
    def served(self) -> list[Served]:
        return [one for run in self.beside for one in run.served]


def real(server: Pooled, capacity: Capacity, begins_s: float, ends_s: float) -> list[str]:
    """`begins_s` to `ends_s`: the time of the step."""
    alone, beside = server.critical(server.alone), server.critical(server.beside)
    rows = [
        ("requests", str(alone.count), str(beside.count), ""),
        ("lost or late", str(alone.lost), str(beside.lost), ""),
        *(_compared(*of, alone, beside) for of in _TIMES),
    ]
    rates = ", ".join(f"{rate:.2f}" for rate in _goodput(server, capacity, begins_s, ends_s))
    lines = [
        *table((f"{server.name}: critical", "alone", "at 3x", "ratio"), rows),
        f"  goodput over capacity, by seed: {rates}",
    ]
    for criticality in ("normal", "sheddable"):
        mine = [one for one in server.served if one.criticality == criticality and one.phase == "step"]
        errors = Counter(f"{one.error}{' begun' * (one.ttft_s is not None)}" for one in mine if one.error is not None)
        told = "".join(f", {count} {error}" for error, count in errors.most_common())
        lines.append(f"  {criticality}: {len(mine) - errors.total()} of {len(mine)} answered in time{told}")
    if refusals := judge.refusals_s(server.served):
        p50_s, p99_s = (percentile(refusals, q) for q in (50, 99))
        lines.append(f"  refusals: {len(refusals)}, P50 {_ms(p50_s)} ms, P99 {_ms(p99_s)} ms")
    for number, run in enumerate(server.beside):
        told = ", ".join(f"{one.state} at {one.at_s - begins_s:.1f} s ({one.reason})" for one in run.changes)
        if told:
            lines.append(f"  breaker, seed {number}, from the step's beginning: {told}")
    return lines


_TIMES: Final = (
    ("TTFT P50, ms", "ttft_p50_s"),
    ("TTFT P99, ms", "ttft_p99_s"),
    ("inter-token P50, ms", "gap_p50_s"),
    ("inter-token P99, ms", "gap_p99_s"),
)


def _compared(what: str, of: str, alone: judge.Critical, beside: judge.Critical) -> tuple[str, str, str, str]:
    before_s, after_s = float(getattr(alone, of)), float(getattr(beside, of))
    return what, _ms(before_s), _ms(after_s), f"{after_s / before_s:.2f}"


def _goodput(server: Pooled, capacity: Capacity, begins_s: float, ends_s: float) -> list[float]:
    return [judge.tokens_a_second(run.served, begins_s, ends_s) / capacity.tokens_s for run in server.beside]


def real_claims(ours: Pooled, capacity: Capacity, begins_s: float, ends_s: float) -> Iterator[Claim]:
    alone, beside = ours.critical(ours.alone), ours.critical(ours.beside)
    rates = _goodput(ours, capacity, begins_s, ends_s)
    opens = [_first(run, "open", begins_s) for run in ours.beside]
    back = [_first(run, "half-open", ends_s) for run in ours.beside]
    refusals = judge.refusals_s(ours.served) or [0.0]
    yield Claim("critical TTFT P99 over alone", beside.ttft_p99_s / alone.ttft_p99_s, at_most=1.2)
    yield Claim("critical inter-token P99 over alone", beside.gap_p99_s / alone.gap_p99_s, at_most=1.2)
    yield Claim("critical requests lost", beside.lost, at_most=0)
    yield Claim("goodput over capacity, mean", sum(rates) / len(rates), at_least=0.8)
    yield Claim("refusals, P99, ms", percentile(refusals, 99) * 1e3, at_most=50)
    yield Claim("refusals without Retry-After", sum(run.without_retry_after for run in ours.beside), at_most=0)
    yield Claim("breaker opens after the step began, s, slowest", max(opens), at_most=2)
    yield Claim("branches are taken again after its end, s, slowest", max(back), at_most=10)


def _first(run: Run, state: str, from_s: float) -> float:
    """When the breaker came to that state, after `from_s`."""
    return min(
        (one.at_s - from_s for one in run.changes if one.state == state and one.at_s >= from_s), default=math.inf
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f}"
