"""`python -m tests.bench`: all benchmarks, printed as tables of ratios. `make bench` runs it.

--quick        a rough look in under 3 minutes instead of under 15
--only NAME    throughput, prefix, overhead or footprint; may be given several times
--model FILE   another GGUF file than the default model's
--threads N    for every engine; default: the physical cores
--json FILE    the same results as data
"""

import argparse
import contextlib
import dataclasses
import json
import secrets
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench import footprint, machine, overhead, peers, prefix, report, throughput
from tests.bench.bounds import TimeBound
from tests.bench.claims import Claim
from tests.bench.errors import BenchError
from tests.bench.measurement import warm_up
from tests.bench.processes import Server, free_port, serving

SCENARIOS = ("footprint", "throughput", "prefix", "overhead")


@dataclass(frozen=True, slots=True)
class Mode:
    """How much is measured. The bounds are in seconds and add up to less than 15 minutes, with --quick to 3."""

    throughput_plans: tuple[throughput.Plan, ...]
    throughput_bound_s: float
    prefix_plans: tuple[prefix.Plan, ...]
    overhead_pairs: int
    overhead_bound_s: float
    starts: int


FULL = Mode(throughput.FULL, 480, prefix.FULL, overhead_pairs=60, overhead_bound_s=90, starts=3)
QUICK = Mode(throughput.QUICK, 90, prefix.QUICK, overhead_pairs=10, overhead_bound_s=20, starts=1)


@dataclass(frozen=True, slots=True)
class Bench:
    """One run of the program: what is fixed for all scenarios, and where results go."""

    setup: peers.Setup
    mode: Mode
    scratch: Path
    seed: str  # new each time, so that nothing a server kept from an earlier run answers
    results: dict[str, Any]
    claims: list[Claim]

    def appliance(self) -> peers.Peer:
        return peers.appliance(self.setup, free_port(), self.scratch)

    def footprint(self) -> None:
        result = footprint.run(self.appliance(), self.mode.starts, self.seed)
        self.results["footprint"] = dataclasses.asdict(result)
        self.claims.extend(footprint.claims(result))
        _show(report.footprint(result))

    def throughput(self) -> None:
        with self._resident(peers.llama_server, peers.llama_cpp_server) as (ours, *others):
            bound = TimeBound(self.mode.throughput_bound_s)
            comparisons = throughput.run(ours, others, self.mode.throughput_plans, bound, self.seed)
        self.results["throughput"] = [dataclasses.asdict(comparison) for comparison in comparisons]
        self.claims.extend(throughput.claims(comparisons))
        for comparison in comparisons:
            _show(report.throughput(comparison))
        if any(comparison.refused for comparison in comparisons):
            raise BenchError("not all comparisons could be made; the tables say why")

    def prefix(self) -> None:
        runs: list[prefix.PrefixRun] = []
        try:
            with self._resident(peers.llama_server) as (ours, *others):
                runs.extend(prefix.run(ours, others, self.mode.prefix_plans, self.setup.model, self.seed))
        finally:  # what came before a run that failed is shown all the same
            self.results["prefix"] = [dataclasses.asdict(result) for result in runs]
            self.claims.extend(prefix.claims(runs))
            _show(report.prefix(runs))

    def overhead(self) -> None:
        with self._resident() as (ours,), overhead.bare_engine(self.setup) as engine:
            bound = TimeBound(self.mode.overhead_bound_s)
            result = overhead.run(ours, engine, self.mode.overhead_pairs, bound, self.seed)
        self.results["overhead"] = dataclasses.asdict(result)
        self.claims.extend(overhead.claims(result))
        _show(report.overhead(result))

    @contextlib.contextmanager
    def _resident(self, *others: Callable[[peers.Setup, int], peers.Peer]) -> Iterator[list[Server]]:
        """Our daemon and these peers, all ready and warm."""
        with contextlib.ExitStack() as stack:
            specified = [self.appliance(), *(other(self.setup, free_port()) for other in others)]
            servers = [stack.enter_context(serving(peer)) for peer in specified]
            for server in servers:
                warm_up(server)
            yield servers


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Benchmarks, as tables of ratios.")
    parser.add_argument("--quick", action="store_true", help="a rough look in under 3 minutes")
    parser.add_argument("--only", action="append", choices=SCENARIOS, help="this scenario (repeatable)")
    parser.add_argument("--model", type=Path, required=True, help="GGUF file")
    parser.add_argument("--threads", type=int, default=machine.usable_cores(), help="CPU threads of every engine")
    parser.add_argument("--json", type=Path, help="write the results there as well")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that servers are ended then too

    setup = peers.Setup(options.model.resolve(), options.threads)
    chosen = [name for name in SCENARIOS if options.only is None or name in options.only]
    with tempfile.TemporaryDirectory(prefix="appliance-bench-") as scratch:
        bench = Bench(setup, QUICK if options.quick else FULL, Path(scratch), secrets.token_hex(4), {}, [])
        compared = [bench.appliance(), peers.llama_server(setup, 0), peers.llama_cpp_server(setup, 0)]
        if missing := sorted({module for peer in compared for module in peer.missing()}):
            print(f"not installed: {', '.join(missing)}. `make bench` installs them.", file=sys.stderr)
            return 2
        described = machine.describe()
        _show(report.header(described, setup, compared))
        bench.results["machine"] = dataclasses.asdict(described)
        failed = [name for name in chosen if not _attempt(name, getattr(bench, name))]
    _show(report.claims(bench.claims))
    if options.json is not None:
        claims = [dataclasses.asdict(claim) | {"holds": claim.holds} for claim in bench.claims]
        options.json.write_text(json.dumps({**bench.results, "claims": claims, "failed": failed}, indent=2))
    return 1 if failed else 0


def _attempt(name: str, scenario: Callable[[], None]) -> bool:
    """Runs one scenario; one that fails is reported and does not take the others with it."""
    _show([f"== {name} =="])
    try:
        scenario()
    except BenchError as error:
        _show([f"{name} gave up: {error}"])
        return False
    return True


def _show(lines: Sequence[str]) -> None:
    print("\n".join(lines), end="\n\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
