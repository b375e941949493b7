"""Scenario: forty requests that share a system prompt of some 1,000 tokens, as the steps of one agent do.

The system prompt is computed once, if an engine shares it between requests, and up to forty times, if it does not.
Counted from each server's own usage (`prompt_tokens` less `cached_tokens`), against the fewest that can be: one
request whole, and of every other what follows the common part.
"""

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.claims import Claim
from tests.bench.errors import ChildEndedError, UnequalWorkError
from tests.bench.measurement import Noise, Workload, measure
from tests.bench.processes import Server
from tests.bench.prompts import system_prompt, user_prompts

COMPLETION_TOKENS = 16
SYSTEM_RULES = 37  # about 1,000 tokens
TOKENIZE_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Plan:
    streams: int
    requests: int  # of each stream, one after another
    peers: bool  # whether the peers run it too
    timeout_s: float  # of one server's run: some three times what the slowest takes on two cores


FULL = (Plan(4, 10, peers=True, timeout_s=120), Plan(40, 1, peers=False, timeout_s=90))
QUICK = (Plan(3, 4, peers=True, timeout_s=45),)


@dataclass(frozen=True, slots=True)
class PrefixRun:
    peer: str
    streams: int
    requests: int  # of all streams together
    shared_tokens: int  # the common part of all prompts
    prompt_tokens: int  # of all requests together
    fewest_tokens: int  # that must be computed
    computed_tokens: int | None  # None: the server does not say
    wall_s: float
    noise: Noise

    @property
    def ratio(self) -> float | None:
        """Prompt tokens computed over the fewest possible."""
        return None if self.computed_tokens is None else self.computed_tokens / self.fewest_tokens


def run(ours: Server, peers: Sequence[Server], plans: Sequence[Plan], model: Path, seed: str) -> Iterator[PrefixRun]:
    resident = [ours, *peers]
    for plan in plans:
        workload = _workload(plan, f"{seed}/prefix/{plan.streams}")
        shared, lengths = _prompt_lengths(model, workload)
        for server in resident if plan.peers else [ours]:
            sample = measure(server, workload, resident, plan.timeout_s)
            if sample.prompt_tokens not in (None, sum(lengths)):
                raise UnequalWorkError(
                    f"{server.peer.name} counts {sample.prompt_tokens} prompt tokens where {sum(lengths)} were sent"
                )
            computed = None
            if sample.prompt_tokens is not None and sample.cached_tokens is not None:
                computed = sample.prompt_tokens - sample.cached_tokens
            yield PrefixRun(
                peer=server.peer.name,
                streams=plan.streams,
                requests=workload.requests,
                shared_tokens=shared,
                prompt_tokens=sum(lengths),
                fewest_tokens=fewest_tokens(lengths, shared),
                computed_tokens=computed,
                wall_s=sample.wall_s,
                noise=sample.noise,
            )


def fewest_tokens(lengths: Sequence[int], shared: int) -> int:
    """One request whole, and of every other what follows the `shared` part."""
    return shared + sum(length - shared for length in lengths)


def claims(runs: Sequence[PrefixRun]) -> Iterator[Claim]:
    for result in runs:
        if result.peer == "appliance" and result.ratio is not None:
            yield Claim(
                f"prompt tokens computed over the fewest possible, {result.requests} requests"
                f" with a common prompt, {result.streams} at a time",
                result.ratio,
                at_most=1.1,
            )


def _workload(plan: Plan, seed: str) -> Workload:
    prompts = user_prompts(seed)
    return Workload(
        prompts=tuple(tuple(itertools.islice(prompts, plan.requests)) for _ in range(plan.streams)),
        completion_tokens=COMPLETION_TOKENS,
        system=system_prompt(seed, SYSTEM_RULES),
    )


def _prompt_lengths(model: Path, workload: Workload) -> tuple[int, list[int]]:
    """(tokens common to all prompts, tokens of each prompt). In a process of its own: native code stays out of ours."""
    chats = [
        [{"role": "system", "content": workload.system}, {"role": "user", "content": prompt}]
        for stream in workload.prompts
        for prompt in stream
    ]
    answer = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("prompt_lengths.py")), str(model)],
        input=json.dumps(chats).encode(),
        capture_output=True,
        check=False,
        timeout=TOKENIZE_TIMEOUT_S,
    )
    if answer.returncode != 0:
        raise ChildEndedError(f"the prompts could not be tokenized: {answer.stderr.decode(errors='replace')}")
    found = json.loads(answer.stdout)
    return found["shared"], found["lengths"]
