"""Three times the load that a machine can take, by `python -m tests.bench.overload`.

Without --real      the simulator: every machine, 3x and 10x, and what admission itself costs. Some minutes.
--real              our daemon and the C++ llama-server with the small model: seven minutes for each seed.
--ours              without the C++ server, in three minutes for each seed
--seeds N           how many; default 1000, or 3 with --real
--step-s SECONDS    how long the overload lasts, with --real; default 60
--threads N         for both servers; default: the physical cores
"""

import argparse
import secrets
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from appliance.settings import state_dir
from runtimes.models import ModelStore
from tests.bench import machine, peers, report
from tests.bench.claims import Claim
from tests.bench.errors import BenchError
from tests.bench.measurement import warm_up
from tests.bench.overload import flow_control, real, scenario, tables
from tests.bench.overload.machines import MACHINES
from tests.bench.overload.seeds import judged
from tests.bench.processes import Server, free_port, serving

MODEL: Final = "smollm2-135m-instruct"
GOODPUT_ON_A_CPU: Final = 0.8  # where every larger batch is slower for all
GOODPUT: Final = 0.95


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.overload", description=__doc__)
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--ours", action="store_true")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--step-s", type=float, default=60.0)
    parser.add_argument("--threads", type=int, default=machine.usable_cores())
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that servers are ended then too
    try:
        if options.real:
            claims = _real(options.seeds or 3, options.step_s, options.threads, with_peer=not options.ours)
        else:
            claims = _simulated(options.seeds or 1000)
    except BenchError as error:
        print(f"gave up: {error}", file=sys.stderr)
        return 1
    _show(report.claims(claims))
    return 0


def _simulated(seeds: int) -> list[Claim]:
    claims: list[Claim] = []
    for one in MACHINES:
        for times in (3.0, 10.0):
            verdict = judged(one, times, range(seeds))
            _show(tables.simulated(verdict))
            claims += tables.simulated_claims(verdict, GOODPUT if one.is_gpu else GOODPUT_ON_A_CPU)
    p50_s, p99_s = flow_control.cost_s()
    _show([f"admission itself, of a request that need not wait: P50 {p50_s * 1e3:.3f} ms, P99 {p99_s * 1e3:.3f} ms"])
    return [*claims, Claim("admission itself, P99, ms", p99_s * 1e3, at_most=1)]


def _real(seeds: int, step_s: float, threads: int, *, with_peer: bool) -> list[Claim]:
    model = ModelStore(state_dir(None, {}) / "models", offline=True).resolve(MODEL)
    if model is None:
        raise BenchError(f"there is no model {MODEL}: fetch it with `appliance pull {MODEL}`")
    setup = peers.Setup(model.path, threads)
    phases = scenario.step(step_s=step_s)
    begins_s = phases[0].seconds
    seed = secrets.token_hex(4)  # of the texts, so that no cache answers
    with _ours(setup) as ours:
        capacity = real.capacity(ours, setup.slots, seed)
    _show([f"capacity, 16 streams without end: {capacity.requests_s:.2f} requests/s, {capacity.tokens_s:.0f} tokens/s"])

    def run(server: Server, number: int, load: list[scenario.Phase]) -> real.Run:
        arrivals = scenario.poisson(load, capacity.requests_s, number)
        return real.run(server, arrivals, f"{seed}/{number}", hints=server.peer.name == "appliance")

    pooled = []
    servers = (("appliance", _ours), *((("llama-server", _theirs),) if with_peer else ()))
    for name, started in servers:
        alone, beside = [], []
        for number in range(seeds):
            with started(setup) as server:
                alone.append(run(server, number, scenario.only(phases, "critical")))
                beside.append(run(server, number, phases))
            print(f"{name}, seed {number}: done", file=sys.stderr, flush=True)
        pooled.append(tables.Pooled(name, alone, beside))
        _show(tables.real(pooled[-1], capacity, begins_s, begins_s + step_s))
    return list(tables.real_claims(pooled[0], capacity, begins_s, begins_s + step_s))


@contextmanager
def _ours(setup: peers.Setup) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="appliance-bench-") as scratch:
        peer = peers.appliance(setup, free_port(), Path(scratch))
        with serving(peer) as server:
            warm_up(server)
            yield server


@contextmanager
def _theirs(setup: peers.Setup) -> Iterator[Server]:
    with serving(peers.llama_server(setup, free_port())) as server:
        warm_up(server)
        yield server


def _show(lines: Sequence[str]) -> None:
    print("\n".join(lines), end="\n\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
