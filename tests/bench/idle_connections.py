"""Scenario: a request's time beside a thousand idle connections and one that sends a byte a second, against its time
alone. The two runs of a pair stand side by side, and the order turns round.
"""

import contextlib
import itertools
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from tests.bench.bounds import TimeBound
from tests.bench.claims import Claim
from tests.bench.load import Address
from tests.bench.measurement import Workload, measure
from tests.bench.processes import Server
from tests.bench.prompts import user_prompts
from tests.bench.stats import Spread, median, paired_ratios

CONNECTIONS = 1000
REQUESTS = 6  # of a run, one after another
COMPLETION_TOKENS = 16
TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class IdleConnections:
    alone_s: float  # of a request, median over the runs
    beside_s: float
    ratio: Spread


def run(server: Server, pairs: int, bound: TimeBound, seed: str) -> IdleConnections:
    alone: list[float] = []
    beside: list[float] = []
    prompts = user_prompts(f"{seed}/idle")
    for number in range(pairs):
        if number and not bound.allows("pair"):
            break
        workload = Workload((tuple(itertools.islice(prompts, REQUESTS)),), COMPLETION_TOKENS)
        again = Workload((tuple(itertools.islice(prompts, REQUESTS)),), COMPLETION_TOKENS)
        if number % 2:
            alone.append(_request_s(server, workload))
        with _crowd(server.address):
            beside.append(_request_s(server, again))
        if number % 2 == 0:
            alone.append(_request_s(server, workload))
    return IdleConnections(median(alone), median(beside), paired_ratios(beside, alone))


def _request_s(server: Server, workload: Workload) -> float:
    return measure(server, workload, [server], TIMEOUT_S).wall_s / REQUESTS


@contextlib.contextmanager
def _crowd(address: Address) -> Iterator[None]:
    """The connections, while the block runs."""
    done = threading.Event()
    with contextlib.ExitStack() as stack:
        for _ in range(CONNECTIONS):
            stack.enter_context(socket.create_connection((address.host, address.port)))
        slow = stack.enter_context(socket.create_connection((address.host, address.port)))

        def trickle() -> None:
            with contextlib.suppress(OSError):  # the server has had enough of it
                for byte in b"POST /v1/chat/completions HTTP/1.1\r\nHost: slow\r\n":
                    slow.send(bytes([byte]))
                    if done.wait(1.0):
                        return

        sender = threading.Thread(target=trickle)
        sender.start()
        try:
            yield
        finally:
            done.set()
            sender.join()


def claims(result: IdleConnections) -> Iterator[Claim]:
    what = f"a request's time beside {CONNECTIONS} idle connections and a slow one, over its time alone"
    yield Claim(what, result.ratio.median, at_most=1.1)
