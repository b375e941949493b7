"""Results as text: one table a scenario, ratios first. Pure; results in, lines out."""

from collections.abc import Iterable, Sequence

from tests.bench.claims import Claim
from tests.bench.constrained import Constrained
from tests.bench.footprint import MIB, Footprint
from tests.bench.idle_connections import COMPLETION_TOKENS, CONNECTIONS, IdleConnections
from tests.bench.machine import Machine
from tests.bench.measurement import Noise, worst
from tests.bench.overhead import Overhead
from tests.bench.peers import Peer, Setup
from tests.bench.prefix import PrefixRun
from tests.bench.routing import Routing
from tests.bench.stats import Spread
from tests.bench.throughput import Comparison, streams

# A busier machine than this (of one core) disturbs a run enough to say so.
QUIET_ELSEWHERE = 0.1


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Columns aligned by their widest cell: the first to the left, the others to the right."""
    grid = [head, *rows]
    widths = [max(len(cells[column]) for cells in grid) for column in range(len(head))]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ).rstrip()
        for cells in grid
    ]
    return [lines[0], "-" * len(lines[0]), *lines[1:]]


def header(machine: Machine, setup: Setup, peers: Sequence[Peer]) -> list[str]:
    hardware = f"{machine.processor}, {machine.cores} cores, {machine.memory_gib:.0f} GiB"
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    lines = [
        f"machine   {hardware}; {machine.system}; load {machine.load_1min:.2f} before the start",
        f"versions  Python {machine.python}, {versions}",
        *(f"built for {name}: {features}" for name, features in machine.native.items()),
        f"model     {setup.model.name}; {setup.threads} threads, {setup.slots} slots of {setup.context_tokens} tokens",
    ]
    lines += [f"server    {peer.name}: {peer.flags()}" for peer in peers]
    lines.append(
        "ratios    the appliance over its peer, pair by pair: median (least-greatest). Percentiles are linear between"
        " ranks."
    )
    return lines


def throughput(comparison: Comparison) -> list[str]:
    title = f"{streams(comparison.streams)} against {comparison.peer}, {comparison.pairs} pairs of runs"
    if comparison.refused is not None:
        return [f"{title}: no ratio ({comparison.refused})"]
    rows = [(line.measure, f"{line.ours:.1f}", f"{line.theirs:.1f}", _ratio(line.ratio)) for line in comparison.lines]
    return [*table((title, "appliance", comparison.peer, "ratio"), rows), *_noise(comparison.noise)]


def prefix(runs: Sequence[PrefixRun]) -> list[str]:
    rows = [
        (
            f"{run.peer}, {run.requests} requests, {run.streams} at a time",
            str(run.shared_tokens),
            str(run.prompt_tokens),
            str(run.fewest_tokens),
            "unknown" if run.computed_tokens is None else str(run.computed_tokens),
            "unknown" if run.ratio is None else f"{run.ratio:.3f}",
            f"{run.wall_s:.1f}",
        )
        for run in runs
    ]
    lines = table(("", "shared", "prompt", "fewest", "computed", "ratio", "wall s"), rows)
    by_load: dict[int, dict[str, float]] = {}
    for run in runs:
        by_load.setdefault(run.streams, {})[run.peer] = run.wall_s
    for at_a_time, wall_s in by_load.items():
        lines += [
            f"wall time, {at_a_time} at a time: {wall_s['appliance'] / other_s:.2f} of {peer}'s"
            for peer, other_s in wall_s.items()
            if peer != "appliance"
        ]
    return [*lines, *_noise(worst(run.noise for run in runs))]


def overhead(result: Overhead) -> list[str]:
    rows = [
        ("TTFT P50 ms", _ms(result.daemon_ttft_s), _ms(result.engine_ttft_s), _added(result.added_ttft_s)),
        ("a token, P50 ms", _ms(result.daemon_token_s), _ms(result.engine_token_s), _added(result.added_token_s)),
    ]
    title = f"1 stream, {result.pairs} pairs of requests"
    lines = table((title, "daemon", "bare engine", "added, pair by pair"), rows)
    return [*lines, *_not_quiet(result.elsewhere)]


def constrained(result: Constrained) -> list[str]:
    rows = [
        (f"a token, P50 ms, {cost.streams} at once", _ms(cost.free_token_s), _ms(cost.held_token_s), _ratio(cost.ratio))
        for cost in result.costs
    ]
    lines = table(("", "free", "held to a schema", "ratio"), rows)
    return [*lines, f"first use of a schema of 100 properties: {_added(result.first_use_s)} ms more than of one"]


def idle_connections(result: IdleConnections) -> list[str]:
    head = (f"a request of {COMPLETION_TOKENS} tokens, {result.ratio.n} pairs of runs", "alone", "beside them", "ratio")
    title = f"beside {CONNECTIONS} idle connections and one that sends a byte a second, ms"
    return table(head, [(title, _ms(result.alone_s), _ms(result.beside_s), _ratio(result.ratio))])


def footprint(result: Footprint) -> list[str]:
    peak = "unknown on this system" if result.peak_bytes is None else f"{result.peak_bytes / MIB:.0f} MiB"
    start = result.started_in_s
    rows = [
        ("start to ready", f"{start.median:.2f} s ({start.low:.2f}-{start.high:.2f}, {start.n} starts)"),
        ("daemon without worker, ready", f"{result.ready_bytes / MIB:.0f} MiB"),
        ("daemon without worker, peak after 16 streams", peak),
        ("worker", f"{result.worker_bytes / MIB:.0f} MiB"),
    ]
    return table(("", "measured"), rows)


def routing(result: Routing) -> list[str]:
    ways = [("words", result.by_words)]
    if result.by_both is not None:
        ways.append(("words, and an embedding where they leave doubt", result.by_both))
    rows = [
        (
            name,
            f"{guesses.accuracy:.1%}",
            f"{guesses.abstained:.1%}",
            f"{guesses.accuracy_when_sure:.1%}",
            f"{guesses.p50_ms:.2f}",
            f"{guesses.p99_ms:.2f}",
        )
        for name, guesses in ways
    ]
    heads = (f"{result.prompts} held-out prompts", "right", "abstained", "right otherwise", "P50 ms", "P99 ms")
    return table(heads, rows)


def claims(checked: Sequence[Claim]) -> list[str]:
    rows = [
        (
            claim.what,
            f"{claim.measured:.2f}",
            f">= {claim.at_least:.2f}" if claim.at_least is not None else f"<= {claim.at_most:.2f}",
            "holds" if claim.holds else "MISSED",
        )
        for claim in checked
    ]
    return table(("claim", "measured", "bound", ""), rows)


def _ratio(spread: Spread) -> str:
    return f"{spread.median:.2f} ({spread.low:.2f}-{spread.high:.2f})"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f}"


def _added(spread: Spread) -> str:
    return f"{_ms(spread.median)} ({_ms(spread.low)} to {_ms(spread.high)})"


def _noise(noise: Noise) -> list[str]:
    shares = f"the client {noise.client:.1%} of a core, idle servers {noise.idle_peers:.1%}"
    return [f"  processor taken by {shares}, at worst", *_not_quiet(noise.elsewhere)]


def _not_quiet(elsewhere: float) -> list[str]:
    if elsewhere <= QUIET_ELSEWHERE:
        return []
    return [f"  NOT QUIET: other processes (or the hypervisor) took {elsewhere:.0%} of a core meanwhile"]
