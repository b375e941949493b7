"""The scenario on real servers: our daemon and the C++ llama-server, the same requests at the same times."""

import json
import random
import time
import urllib.request
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.bench import load
from tests.bench.errors import BadResponseError
from tests.bench.measurement import warm_up
from tests.bench.overload.judge import Served
from tests.bench.overload.open_loop import Outcome, Sending, send_all
from tests.bench.overload.scenario import ANSWER_TOKENS, Arrival
from tests.bench.processes import Server
from tests.bench.prompts import user_prompts

CAPACITY_REQUESTS: Final = 8  # of each stream
CAPACITY_TIMEOUT_S: Final = 120.0
SETTLE_S: Final = 3.0  # between two runs on one server


@dataclass(frozen=True, slots=True)
class Capacity:
    """Of a server that is always full, and holds nothing back."""

    requests_s: float
    tokens_s: float


@dataclass(frozen=True, slots=True)
class Change:
    """Of the breaker's state."""

    at_s: float  # from the start of the run
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class Run:
    served: tuple[Served, ...]
    changes: tuple[Change, ...]
    without_retry_after: int  # refusals that do not say when to come again


def capacity(server: Server, slots: int, seed: str) -> Capacity:
    """By the tokens of the middle half of a closed loop, when every slot is taken all the time."""
    prompts, rng = user_prompts(f"{seed}/capacity"), random.Random(f"{seed}/capacity")
    scripts = [
        [_body(server, next(prompts), rng.randint(*ANSWER_TOKENS)) for _ in range(CAPACITY_REQUESTS)]
        for _ in range(slots)
    ]
    streams = load.drive(server.address, scripts, CAPACITY_TIMEOUT_S).streams
    times = sorted(at_s for stream in streams for at_s in stream.content_s)
    begins_s, ends_s = (times[0] + share * (times[-1] - times[0]) for share in (0.2, 0.7))
    tokens_s = sum(begins_s <= at_s < ends_s for at_s in times) / (ends_s - begins_s)
    return Capacity(tokens_s / (sum(ANSWER_TOKENS) / 2), tokens_s)


def run(server: Server, arrivals: Iterable[Arrival], seed: str, *, hints: bool) -> Run:
    """`hints`: the server knows about criticality, and can be asked for its breaker."""
    time.sleep(SETTLE_S)
    warm_up(server)
    prompts = user_prompts(seed)
    asked = [(arrival, next(prompts)) for arrival in arrivals]
    sendings = [
        Sending(
            arrival.at_s,
            _body(server, prompt, arrival.answer_tokens),
            _headers(arrival) if hints else {},
        )
        for arrival, prompt in asked
    ]
    began_s = time.monotonic()
    outcomes = send_all(server.address, sendings)
    changes = _changes(server, began_s) if hints else ()
    if all(not outcome.whole for outcome in outcomes):
        raise BadResponseError(f"{server.peer.name} answered nothing: {outcomes[0]}")
    return Run(
        served=tuple(_served(arrival, outcome) for (arrival, _), outcome in zip(asked, outcomes, strict=True)),
        changes=tuple(changes),
        without_retry_after=sum(o.status in (429, 503) and o.retry_after is None for o in outcomes),
    )


def _headers(arrival: Arrival) -> dict[str, str]:
    return {
        "x-appliance-criticality": arrival.criticality,
        "x-appliance-timeout": f"{arrival.deadline_s:g}",
    }


def _body(server: Server, prompt: str, tokens: int) -> bytes:
    return load.chat_body(prompt, max_tokens=tokens, extra=server.peer.exactly(tokens))


def _served(arrival: Arrival, outcome: Outcome) -> Served:
    late = outcome.done_s > arrival.deadline_s  # for the agent it is as good as lost
    return Served(
        criticality=arrival.criticality,
        phase=arrival.phase,
        at_s=outcome.sent_s,
        done_s=outcome.sent_s + outcome.done_s,
        error=("late" if late else None) if outcome.whole else outcome.error or f"status-{outcome.status}",
        ttft_s=outcome.ttft_s,
        gaps_s=outcome.gaps_s,
        tokens=outcome.tokens,
    )


def _changes(server: Server, began_s: float) -> Sequence[Change]:
    """The breaker's, since the run began."""
    status, now_s = _status(server), time.monotonic()
    found = [
        Change(now_s - one["age_s"] - began_s, one["to"], one["reason"]) for one in status["admission"]["transitions"]
    ]
    return [change for change in found if change.at_s >= 0]


def _status(server: Server) -> dict[str, Any]:
    url = f"http://{server.address.host}:{server.address.port}/admin/v1/status"
    with urllib.request.urlopen(url, timeout=10) as response:
        status: dict[str, Any] = json.load(response)
    return status
