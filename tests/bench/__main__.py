"""`python -m tests.bench`: all benchmarks, printed as tables of ratios. `make bench` runs it.

--quick        a rough look in under 3 minutes instead of under 15
--only NAME    footprint, routing, overhead, idle_connections, constrained, prefix or throughput; repeatable
--model NAME   another model of the store, or a GGUF file
--threads N    for every engine; default: the physical cores
--json FILE    the same results as data
"""

import argparse
import contextlib
import dataclasses
import json
import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance.settings import state_dir
from runtimes.models import ModelStore
from tests.bench import (
    constrained,
    footprint,
    idle_connections,
    machine,
    overhead,
    peers,
    prefix,
    report,
    routing,
    throughput,
)
from tests.bench.bounds import TimeBound
from tests.bench.claims import Claim
from tests.bench.errors import BenchError
from tests.bench.measurement import warm_up
from tests.bench.processes import Server, free_port, serving

DEFAULT_MODEL = "smollm2-135m-instruct"
SCENARIOS = ("footprint", "routing", "overhead", "idle_connections", "constrained", "prefix", "throughput")


@dataclass(frozen=True, slots=True)
class Mode:
    """How much is measured, and in what time."""

    total_s: float  # throughput, which comes last and can do with fewer rounds, gets what the others leave of it
    starts: int
    overhead_pairs: int
    overhead_bound_s: float
    idle_pairs: int
    idle_bound_s: float
    constrained_plans: tuple[constrained.Plan, ...]
    constrained_bound_s: float
    prefix_plans: tuple[prefix.Plan, ...]
    throughput_plans: tuple[throughput.Plan, ...]


FULL = Mode(850, 3, 60, 90, 10, 40, constrained.FULL, 60, prefix.FULL, throughput.FULL)
QUICK = Mode(155, 1, 10, 20, 2, 10, constrained.QUICK, 15, prefix.QUICK, throughput.QUICK)


@dataclass(frozen=True, slots=True)
class Bench:
    """One run of the program: what is fixed for all scenarios, and where results go."""

    setup: peers.Setup
    mode: Mode
    started_s: float  # time.monotonic
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

    def routing(self) -> None:
        result = routing.run(state_dir(None, os.environ))
        self.results["routing"] = dataclasses.asdict(result)
        self.claims.extend(routing.claims(result))
        _show(report.routing(result))

    def throughput(self) -> None:
        with self._resident(peers.llama_server, peers.llama_cpp_server) as (ours, *others):
            bound = TimeBound(self.started_s + self.mode.total_s - time.monotonic())
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

    def idle_connections(self) -> None:
        with self._resident() as (ours,):
            result = idle_connections.run(ours, self.mode.idle_pairs, TimeBound(self.mode.idle_bound_s), self.seed)
        self.results["idle_connections"] = dataclasses.asdict(result)
        self.claims.extend(idle_connections.claims(result))
        _show(report.idle_connections(result))

    def constrained(self) -> None:
        with self._resident() as (ours,):
            bound = TimeBound(self.mode.constrained_bound_s)
            result = constrained.run(ours, self.mode.constrained_plans, bound, self.seed)
        self.results["constrained"] = dataclasses.asdict(result)
        self.claims.extend(constrained.claims(result))
        _show(report.constrained(result))

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
    parser.add_argument("--model", default=DEFAULT_MODEL, help="model of the store, or GGUF file")
    parser.add_argument("--threads", type=int, default=machine.usable_cores(), help="CPU threads of every engine")
    parser.add_argument("--json", type=Path, help="write the results there as well")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that servers are ended then too

    model = ModelStore(state_dir(None, os.environ) / "models", offline=True).resolve(options.model)
    if model is None:
        print(f"there is no model {options.model}: fetch it with `appliance pull {options.model}`", file=sys.stderr)
        return 2
    setup = peers.Setup(model.path, options.threads)
    chosen = [name for name in SCENARIOS if options.only is None or name in options.only]
    with tempfile.TemporaryDirectory(prefix="appliance-bench-") as scratch:
        mode = QUICK if options.quick else FULL
        bench = Bench(setup, mode, time.monotonic(), Path(scratch), secrets.token_hex(4), {}, [])
        compared = [
            peers.appliance(setup, 0, bench.scratch),
            peers.llama_server(setup, 0),
            peers.llama_cpp_server(setup, 0),
        ]
        if missing := sorted({module for peer in compared for module in peer.missing()}):
            print(f"not installed: {', '.join(missing)}. `make bench` installs them.", file=sys.stderr)
            return 2
        described = machine.describe()
        _show(report.header(described, setup, compared))
        bench.results["machine"] = dataclasses.asdict(described)
        failed = [name for name in chosen if not _attempt(name, getattr(bench, name))]
    if bench.claims:
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
