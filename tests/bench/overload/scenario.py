"""What is asked, and when: arrivals of an open loop, which come whether or not earlier ones were answered. Pure."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from appliance.protocol import Criticality

ANSWER_TOKENS: Final = (24, 64)  # an agent's step is short; drawn evenly
DEADLINE_S: Final[Mapping[Criticality, float]] = {"critical": 60.0, "normal": 10.0, "sheddable": 10.0}
CRITICAL_SHARE: Final = 0.5  # of capacity, at the most


@dataclass(frozen=True, slots=True)
class Phase:
    name: str
    seconds: float
    load: Mapping[Criticality, float]  # of capacity


@dataclass(frozen=True, slots=True)
class Arrival:
    at_s: float
    phase: str
    criticality: Criticality
    answer_tokens: int
    deadline_s: float  # from then


def step(times: float = 3.0, *, before_s: float = 10.0, step_s: float = 60.0, after_s: float = 20.0) -> list[Phase]:
    """From half of capacity to so many times of it, and back. Half of what is not critical may be shed, or more."""
    calm: dict[Criticality, float] = {"critical": 0.25, "normal": 0.125, "sheddable": 0.125}
    rest = times - CRITICAL_SHARE
    storm: dict[Criticality, float] = {"critical": CRITICAL_SHARE, "normal": rest * 0.4, "sheddable": rest * 0.6}
    return [Phase("before", before_s, calm), Phase("step", step_s, storm), Phase("after", after_s, calm)]


def only(phases: Sequence[Phase], criticality: Criticality) -> list[Phase]:
    return [Phase(p.name, p.seconds, {criticality: p.load[criticality]}) for p in phases]


def poisson(
    phases: Sequence[Phase], capacity: float, seed: int, lengths: tuple[int, int] = ANSWER_TOKENS
) -> Iterator[Arrival]:
    """In order of time. `capacity`: requests a second; `lengths`: of answers, in tokens, drawn evenly.

    Each class has arrivals of its own, which do not change when another class is left out.
    """
    found: list[Arrival] = []
    for criticality in ("critical", "normal", "sheddable"):
        rng = random.Random(f"{seed} {criticality}")
        begins_s = 0.0
        for phase in phases:
            rate = phase.load.get(criticality, 0.0) * capacity
            at_s = begins_s
            while rate and (at_s := at_s + rng.expovariate(rate)) < begins_s + phase.seconds:
                answer_tokens = rng.randint(*lengths)
                found.append(Arrival(at_s, phase.name, criticality, answer_tokens, DEADLINE_S[criticality]))
            begins_s += phase.seconds
    return iter(sorted(found, key=lambda arrival: arrival.at_s))
