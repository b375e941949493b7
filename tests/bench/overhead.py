"""Scenario: what the daemon adds to its own engine on one stream: HTTP, templates, the worker's socket, the events.

The engine alone runs in a process of its own (`bare_engine`), without daemon and HTTP, with the same settings. Requests
are paired: the same prompt to one and then to the other, in alternating order. Prompts are short, because what the
daemon adds does not grow with them, while the noise of a long prefill would hide it.
"""

import contextlib
import json
import random
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from tests.bench import load
from tests.bench.bounds import TimeBound
from tests.bench.claims import Claim
from tests.bench.errors import ChildEndedError, OutOfTimeError, UnequalWorkError
from tests.bench.measurement import machine_busy_s
from tests.bench.peers import Setup
from tests.bench.processes import Server, child
from tests.bench.stats import Spread, median, paired_differences

COMPLETION_TOKENS = 24
WARM_UP_PAIRS = 2
REQUEST_TIMEOUT_S = 30.0
ANSWER_TIMEOUT_S = 60.0  # the first answer waits for the model to load


@dataclass(frozen=True, slots=True)
class Timing:
    """One request."""

    prompt_tokens: int
    ttft_s: float
    token_s: float  # mean time of a further token


@dataclass(frozen=True, slots=True)
class Overhead:
    pairs: int
    daemon_ttft_s: float  # P50
    engine_ttft_s: float
    added_ttft_s: Spread  # daemon less engine, pair by pair
    daemon_token_s: float
    engine_token_s: float
    added_token_s: Spread
    elsewhere: float  # share of one core that others took meanwhile


class BareEngine:
    """The child process's near end: one line of JSON to it, one back."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self._popen = popen
        self._process = psutil.Process(popen.pid)
        self.answer()  # it says when it is ready

    def answer(self) -> dict[str, Any]:
        assert self._popen.stdout is not None
        # One line answers one request, so nothing can be left in the reader's own buffer, where select does not look.
        ready, _, _ = select.select([self._popen.stdout], [], [], ANSWER_TIMEOUT_S)
        line = self._popen.stdout.readline() if ready else b""
        if not line:
            raise ChildEndedError("the bare engine ended, or said nothing for too long; its own message stands above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def cpu_s(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def time(self, prompt: str) -> Timing:
        assert self._popen.stdin is not None
        self._popen.stdin.write(json.dumps({"prompt": prompt, "tokens": COMPLETION_TOKENS}).encode() + b"\n")
        self._popen.stdin.flush()
        answer = self.answer()
        return _timing(answer["prompt_tokens"], answer["ttft_s"], answer["gaps_s"])


@contextlib.contextmanager
def bare_engine(setup: Setup) -> Iterator[BareEngine]:
    """The engine in a child process, loaded and warm."""
    command = (
        *(sys.executable, "-m", "tests.bench.bare_engine"),
        *("--model", str(setup.model), "--threads", str(setup.threads), "--slots", str(setup.slots)),
        *("--context-tokens", str(setup.context_tokens), "--kv-tokens", str(setup.kv_tokens)),
    )
    with child(command, {}, stdout=subprocess.PIPE, stderr=None) as popen:
        yield BareEngine(popen)


def run(server: Server, engine: BareEngine, pairs: int, bound: TimeBound, seed: str) -> Overhead:
    rng = random.Random(f"{seed}/overhead")
    timed: list[tuple[Timing, Timing]] = []
    began_s, others_s = time.monotonic(), _others_s(server, engine)
    for number in range(WARM_UP_PAIRS + pairs):
        if not bound.allows("pair"):
            break
        prompt = f"{rng.randrange(10**8):08d}?"  # new from its first token on
        if number % 2:
            by_engine, by_daemon = engine.time(prompt), _time(server, prompt)
        else:
            by_daemon, by_engine = _time(server, prompt), engine.time(prompt)
        if by_daemon.prompt_tokens != by_engine.prompt_tokens:
            raise UnequalWorkError(
                f"{by_daemon.prompt_tokens} prompt tokens in the daemon, {by_engine.prompt_tokens} in the bare engine"
            )
        timed.append((by_daemon, by_engine))
    if len(timed) <= WARM_UP_PAIRS:
        raise OutOfTimeError(f"not one pair of requests was timed within {bound.seconds:.0f} s")
    others_s = _others_s(server, engine) - others_s
    return summarise(timed[WARM_UP_PAIRS:], max(0.0, others_s / (time.monotonic() - began_s)))


def _others_s(server: Server, engine: BareEngine) -> float:
    """CPU seconds that were neither the daemon's, nor the engine's, nor ours."""
    return machine_busy_s() - server.cpu_s() - engine.cpu_s() - time.process_time()


def _time(server: Server, prompt: str) -> Timing:
    body = load.chat_body(prompt, max_tokens=COMPLETION_TOKENS, extra=server.peer.exactly(COMPLETION_TOKENS))
    (stream,) = load.drive(server.address, [[body]], REQUEST_TIMEOUT_S).streams
    return _timing(stream.prompt_tokens or 0, stream.ttft_s, stream.gaps_s)


def _timing(prompt_tokens: int, ttft_s: float, gaps_s: Sequence[float]) -> Timing:
    # Over the tokens, not over the gaps: a token that ends inside a character brings no text, and so no gap.
    return Timing(prompt_tokens, ttft_s, sum(gaps_s) / (COMPLETION_TOKENS - 1))


def summarise(timed: Sequence[tuple[Timing, Timing]], elsewhere: float) -> Overhead:
    """(daemon, engine) pairs in, medians out."""
    daemon = [by_daemon for by_daemon, _ in timed]
    engine = [by_engine for _, by_engine in timed]
    return Overhead(
        pairs=len(timed),
        daemon_ttft_s=median(timing.ttft_s for timing in daemon),
        engine_ttft_s=median(timing.ttft_s for timing in engine),
        added_ttft_s=paired_differences([t.ttft_s for t in daemon], [t.ttft_s for t in engine]),
        daemon_token_s=median(timing.token_s for timing in daemon),
        engine_token_s=median(timing.token_s for timing in engine),
        added_token_s=paired_differences([t.token_s for t in daemon], [t.token_s for t in engine]),
        elsewhere=elsewhere,
    )


def claims(overhead: Overhead) -> Iterator[Claim]:
    yield Claim("added to TTFT on one stream, P50, ms", overhead.added_ttft_s.median * 1e3, at_most=3)
    yield Claim("added to each token on one stream, P50, ms", overhead.added_token_s.median * 1e3, at_most=1)
