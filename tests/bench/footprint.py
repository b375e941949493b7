"""Scenario: the cost of the daemon itself: seconds from start to ready, and memory without the worker."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.bench import load
from tests.bench.claims import Claim
from tests.bench.peers import Peer
from tests.bench.processes import serving
from tests.bench.prompts import user_prompts
from tests.bench.stats import Spread, spread

STREAMS = 16
COMPLETION_TOKENS = 16
LOAD_TIMEOUT_S = 60.0
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Footprint:
    started_in_s: Spread  # from the start of the process to the first 200 of /readyz; the model file in the page cache
    ready_bytes: int  # resident memory of the daemon's process alone, when ready
    peak_bytes: int | None  # its highest, after a load of 16 streams; None where the system does not keep it
    worker_bytes: int  # resident memory of its children: the model's weights and its KV cache


def run(peer: Peer, starts: int, seed: str) -> Footprint:
    """Starts the daemon `starts` times; the last one is put under load."""
    prompts = user_prompts(f"{seed}/footprint")
    started_in_s = []
    for number in range(1, starts + 1):
        with serving(peer) as server:
            started_in_s.append(server.started_in_s)
            if number < starts:
                continue
            ready_bytes = server.process.memory_info().rss
            bodies = [
                [load.chat_body(next(prompts), max_tokens=COMPLETION_TOKENS, extra=peer.exactly(COMPLETION_TOKENS))]
                for _ in range(STREAMS)
            ]
            load.drive(server.address, bodies, LOAD_TIMEOUT_S)
            peak_bytes = _peak_bytes(server.process)
            worker_bytes = sum(child.memory_info().rss for child in server.process.children(recursive=True))
    return Footprint(spread(started_in_s), ready_bytes, peak_bytes, worker_bytes)


def _peak_bytes(process: psutil.Process) -> int | None:
    """The high-water mark of resident memory that Linux keeps for each process."""
    status = Path(f"/proc/{process.pid}/status")
    if not status.exists():
        return None
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status.read_text(), re.MULTILINE)
    return int(found.group(1)) * 1024 if found else None


def claims(footprint: Footprint) -> Iterator[Claim]:
    if footprint.peak_bytes is not None:
        yield Claim("peak memory of the daemon without its worker, MiB", footprint.peak_bytes / MIB, at_most=150)
