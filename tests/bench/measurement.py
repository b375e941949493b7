"""One load on one server, and who used the processor meanwhile.

The client, the idle servers and everything else on the machine share the cores with the server under test, so each
run says how much they took. A run that others disturbed is not hidden; it is shown.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psutil

from tests.bench import load
from tests.bench.errors import BadResponseError
from tests.bench.processes import Server

WARM_UP_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Workload:
    """What each stream of a load sends, one request after another. All streams start at the same moment."""

    prompts: tuple[tuple[str, ...], ...]  # by stream
    completion_tokens: int  # of each request
    system: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)  # fields of every request

    @property
    def requests(self) -> int:
        return sum(len(stream) for stream in self.prompts)


@dataclass(frozen=True, slots=True)
class Noise:
    """Shares of one core, 1.0 being a whole one, while a run was measured."""

    client: float
    idle_peers: float
    elsewhere: float  # other processes, and what the hypervisor took away


def worst(noises: Iterable[Noise]) -> Noise:
    """The greatest of each share; all are 0 when there are none."""
    seen = [Noise(0.0, 0.0, 0.0), *noises]
    return Noise(
        client=max(noise.client for noise in seen),
        idle_peers=max(noise.idle_peers for noise in seen),
        elsewhere=max(noise.elsewhere for noise in seen),
    )


@dataclass(frozen=True, slots=True)
class Sample:
    """One run."""

    wall_s: float
    completion_tokens: int
    prompt_tokens: int | None  # None: the server does not say
    cached_tokens: int | None
    ttft_s: tuple[float, ...]  # one for each request
    gaps_s: tuple[float, ...]  # of all requests
    noise: Noise

    @property
    def tokens_per_s(self) -> float:
        return self.completion_tokens / self.wall_s


def measure(server: Server, workload: Workload, resident: Sequence[Server], timeout_s: float) -> Sample:
    """Drives `server` while all others of `resident` are idle. BadResponseError when one is not answered whole."""
    scripts = [
        [
            load.chat_body(
                prompt,
                max_tokens=workload.completion_tokens,
                system=workload.system,
                extra={**server.peer.exactly(workload.completion_tokens), **workload.extra},
            )
            for prompt in stream
        ]
        for stream in workload.prompts
    ]
    idle = [other for other in resident if other is not server]
    machine_s, server_s, idle_s = machine_busy_s(), server.cpu_s(), sum(other.cpu_s() for other in idle)
    try:
        run = load.drive(server.address, scripts, timeout_s)
        completion_tokens = sum(stream.generated_tokens(workload.completion_tokens) for stream in run.streams)
    except BadResponseError as error:
        raise BadResponseError(f"{server.peer.name}: {error}") from error
    machine_s, server_s = machine_busy_s() - machine_s, server.cpu_s() - server_s
    idle_s = sum(other.cpu_s() for other in idle) - idle_s
    elsewhere_s = max(0.0, machine_s - server_s - idle_s - run.client_cpu_s)
    noise = Noise(run.client_cpu_s / run.wall_s, idle_s / run.wall_s, elsewhere_s / run.wall_s)
    return Sample(
        wall_s=run.wall_s,
        completion_tokens=completion_tokens,
        prompt_tokens=_total([stream.prompt_tokens for stream in run.streams]),
        cached_tokens=_total([stream.cached_tokens for stream in run.streams]),
        ttft_s=tuple(stream.ttft_s for stream in run.streams),
        gaps_s=tuple(gap_s for stream in run.streams for gap_s in stream.gaps_s),
        noise=noise,
    )


def _total(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def machine_busy_s() -> float:
    """CPU seconds of all cores that were not idle, since the system's start."""
    times = psutil.cpu_times()._asdict()
    # On Linux guest time is a part of user time already, and waiting for a disk is idle.
    return float(sum(times.values()) - sum(times.get(name, 0.0) for name in ("idle", "iowait", "guest", "guest_nice")))


def warm_up(server: Server) -> None:
    """Two short requests, so that no measured run pays for a first time."""
    load.drive(
        server.address,
        [[load.chat_body("Say hello.", max_tokens=8, extra=server.peer.exactly(8))]] * 2,
        WARM_UP_TIMEOUT_S,
    )


def unequal(ours: Sample, theirs: Sample) -> str | None:
    """Why the two runs did not do the same work, or None: a ratio of different work says nothing."""
    for what in ("completion_tokens", "prompt_tokens"):
        mine, other = getattr(ours, what), getattr(theirs, what)
        if None not in (mine, other) and mine != other:
            return f"{what} differ: {mine} and {other}"
    return None
