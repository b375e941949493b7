"""How saturated a machine is: one number and what it comes from. Pure: a function of samples, times are passed in.

At 1 there is no room left. Every signal is a share of what it may be; the largest counts. A GPU's utilisation is never
one by itself: it reads 100 % at a batch of one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import exp
from typing import Final, Literal

Cause = Literal[
    "queue-wait",
    "demand",
    "tokens-in-flight",
    "kv-cache",
    "slow-steps",
    "gpu-utilisation",
    "thermal-throttling",
    "power-throttling",
    "stale-sample",
    "event-loop",
    "memory",
]

KV_FULL: Final = 0.8  # of all cells: from there on sequences step back for one another
OVERLOAD: Final = 1.5  # times what an engine can do; agents that ask again when they have an answer come to 1
SLOW: Final = 4.0  # times what the cost curve says; what shares the machine makes twice that look usual
GPU_BUSY: Final = 0.95
GPU_SUSTAINED_S: Final = 1.0
STALE_AFTER_S: Final = 2.0
LAG_S: Final = 0.25  # of the event loop: as long as the longest step that people do not notice
CERTAINLY: Final = 1.25  # of signals that are there or not: smoothed, 1 itself would never be reached
SMOOTHING_S: Final = 0.2  # a rise shows after this, noise of single samples does not

# What a queue cannot cause: classes below the top keep a distance from these, while their own waiting must not keep
# them waiting.
OF_THE_MACHINE: Final[frozenset[Cause]] = frozenset(
    {"kv-cache", "slow-steps", "thermal-throttling", "stale-sample", "event-loop", "memory"}
)


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """One model's, at one moment."""

    waiting: int  # requests, above the engine
    expected_wait_s: float  # of one that came now
    demand: float  # seconds of the engine that were asked for a second, while there was no room; else 0
    tokens_in_flight: int  # prompts and expected answers, waiting ones too
    kv_tokens: int  # 0: not known yet
    kv_used_tokens: int
    running: int
    drift: float  # what steps take, against the cost curve
    silent_s: float  # since the engine was heard of, while it had work


@dataclass(frozen=True, slots=True)
class MachineLoad:
    """What the hardware and this process say, at one moment."""

    gpu_utilisation: float | None = None  # the busiest GPU's
    throttled: frozenset[str] = frozenset()  # "thermal", "power", "hw-slowdown"
    sample_age_s: float | None = None  # None: there is no GPU
    lag_s: float = 0.0
    memory_share: float = 0.0  # of what this process, or this machine, may use


@dataclass(frozen=True, slots=True)
class Saturation:
    value: float
    cause: Cause | None  # None: nothing is going on
    signals: Mapping[Cause, float] = field(default_factory=dict)

    @property
    def of_the_machine(self) -> float:
        return max((v for cause, v in self.signals.items() if cause in OF_THE_MACHINE), default=0.0)


def engine_signals(load: EngineLoad, wait_target_s: float) -> Iterator[tuple[Cause, float]]:
    yield "demand", load.demand / OVERLOAD
    if load.waiting:
        yield "queue-wait", load.expected_wait_s / wait_target_s
    if load.kv_tokens:
        yield "tokens-in-flight", load.tokens_in_flight / load.kv_tokens if load.waiting else 0.0
        yield "kv-cache", load.kv_used_tokens / load.kv_tokens / KV_FULL
    if load.running:
        yield "slow-steps", load.drift / SLOW
        yield "stale-sample", CERTAINLY if load.silent_s > STALE_AFTER_S else 0.0


def machine_signals(load: MachineLoad, *, waiting: bool, busy_s: float) -> Iterator[tuple[Cause, float]]:
    """`busy_s`: for how long the GPU has been busy while requests waited."""
    yield "event-loop", load.lag_s / LAG_S
    yield "memory", load.memory_share
    if load.sample_age_s is None:
        return
    if load.sample_age_s > STALE_AFTER_S:
        yield "stale-sample", CERTAINLY
        return
    if busy_s >= GPU_SUSTAINED_S:
        yield "gpu-utilisation", CERTAINLY
    if waiting and load.throttled & {"thermal", "hw-slowdown"}:
        yield "thermal-throttling", CERTAINLY
    if waiting and "power" in load.throttled:
        yield "power-throttling", CERTAINLY


@dataclass(slots=True)
class Gauge:
    """Puts samples together, and smooths them."""

    wait_target_s: float
    _smooth: dict[Cause, float] = field(default_factory=dict)
    _at_s: float | None = None
    _busy_since_s: float | None = None

    def read(self, engines: list[EngineLoad], machine: MachineLoad, now_s: float) -> Saturation:
        waiting = any(load.waiting for load in engines)
        utilisation = machine.gpu_utilisation or 0.0
        if not (waiting and utilisation >= GPU_BUSY):
            self._busy_since_s = None
        elif self._busy_since_s is None:
            self._busy_since_s = now_s
        busy_s = 0.0 if self._busy_since_s is None else now_s - self._busy_since_s
        newest: dict[Cause, float] = {}
        for load in engines:
            for cause, value in engine_signals(load, self.wait_target_s):
                newest[cause] = max(value, newest.get(cause, 0.0))
        for cause, value in machine_signals(machine, waiting=waiting, busy_s=busy_s):
            newest[cause] = max(value, newest.get(cause, 0.0))
        return self._smoothed(newest, now_s)

    def _smoothed(self, newest: dict[Cause, float], now_s: float) -> Saturation:
        weight = 1.0 if self._at_s is None else 1 - exp(-max(0.0, now_s - self._at_s) / SMOOTHING_S)
        self._at_s = now_s
        for cause in {*self._smooth, *newest}:
            before = self._smooth.get(cause, 0.0)
            self._smooth[cause] = before + weight * (newest.get(cause, 0.0) - before)
        if not newest:
            return Saturation(0.0, None, dict(self._smooth))
        cause = max(self._smooth, key=lambda name: self._smooth[name])
        return Saturation(self._smooth[cause], cause, dict(self._smooth))
