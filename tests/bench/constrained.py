"""Scenario: what it costs to hold an answer to a JSON Schema, against the same daemon's free answers.

Runs are paired and interleaved, and the order turns round. The schema cannot be satisfied within the tokens asked for,
so that both runs of a pair make the same number of them. Also the first use of a schema that was never seen, of 100
properties, and of 1: their difference is what the daemon adds before the first token.
"""

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.bench import load
from tests.bench.bounds import TimeBound
from tests.bench.claims import Claim
from tests.bench.measurement import Workload, measure
from tests.bench.processes import Server
from tests.bench.prompts import user_prompts
from tests.bench.stats import Spread, median, paired_differences, paired_ratios, percentile

COMPLETION_TOKENS = 64
FIRST_USES = 8
TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Plan:
    streams: int
    pairs: int


FULL = (Plan(1, 8), Plan(8, 4))
QUICK = (Plan(1, 2), Plan(8, 1))


@dataclass(frozen=True, slots=True)
class TokenCost:
    streams: int
    free_token_s: float  # P50 of the gaps between tokens
    held_token_s: float
    ratio: Spread


@dataclass(frozen=True, slots=True)
class Constrained:
    costs: tuple[TokenCost, ...]
    first_use_s: Spread  # of 100 properties, less that of one


def run(server: Server, plans: Sequence[Plan], bound: TimeBound, seed: str) -> Constrained:
    costs = [_token_cost(server, plan, bound, f"{seed}/constrained/{plan.streams}") for plan in plans]
    prompt = next(iter(user_prompts(f"{seed}/constrained/first")))
    many, one = [], []
    for number in range(FIRST_USES + 1):  # the first pair warms up
        many.append(_first_token_s(server, prompt, _wide(100, f"{seed}_{number}")))
        one.append(_first_token_s(server, prompt, _wide(1, f"{seed}_{number}")))
    return Constrained(tuple(costs), paired_differences(many[1:], one[1:]))


def _token_cost(server: Server, plan: Plan, bound: TimeBound, seed: str) -> TokenCost:
    free: list[float] = []
    held: list[float] = []
    for number in range(plan.pairs):
        if number and not bound.allows(plan.streams):
            break
        runs = [(free, {}), (held, {"response_format": _format(_endless())})]
        prompts = list(itertools.islice(user_prompts(f"{seed}/{number}"), plan.streams))
        for gaps, extra in runs if number % 2 == 0 else reversed(runs):
            workload = Workload(tuple((prompt,) for prompt in prompts), COMPLETION_TOKENS, extra=extra)
            gaps.append(percentile(list(measure(server, workload, [server], TIMEOUT_S).gaps_s), 50))
    return TokenCost(plan.streams, median(free), median(held), paired_ratios(held, free))


def _endless() -> dict[str, Any]:
    fields = {"name": {"type": "string", "minLength": 1, "maxLength": 8}, "age": {"type": "integer"}}
    person = {"type": "object", "properties": fields, "required": [*fields], "additionalProperties": False}
    return {"type": "array", "items": person, "minItems": COMPLETION_TOKENS}


def _wide(properties: int, salt: str) -> dict[str, Any]:
    names = [f"p{i}_{salt}" for i in range(properties)]
    fields = {name: {"type": ["string", "integer"]} for name in names}
    return {"type": "object", "properties": fields, "required": names, "additionalProperties": False}


def _format(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "bench", "schema": schema}}


def _first_token_s(server: Server, prompt: str, schema: Mapping[str, Any]) -> float:
    body = load.chat_body(prompt, max_tokens=2, extra={"response_format": _format(schema)})
    (stream,) = load.drive(server.address, [[body]], TIMEOUT_S).streams
    time.sleep(0.01)
    return stream.ttft_s


def claims(result: Constrained) -> Iterator[Claim]:
    for cost in result.costs:
        yield Claim(
            f"time of a token held to a schema over a free one, {cost.streams} at once", cost.ratio.median, at_most=1.1
        )
    yield Claim("first use of a schema of 100 properties, ms", result.first_use_s.median * 1e3, at_most=50)
