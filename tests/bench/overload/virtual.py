"""An engine on virtual time: steps as long as a cost curve says, filled by the policy that fills the real ones.

It computes nothing and knows no daemon. Steps that are alike are taken together, up to the next moment at which
somebody may come or go.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from runtimes.engine.batching import EFFICIENT_ROWS, Crowd, Share, saved, share
from runtimes.engine.step_time import StepTime
from tests.bench.overload.machines import Machine

STEP_TARGET_S: Final = 0.2  # as `engine.step_target_ms` is by default
MAX_ROWS: Final = 512


@dataclass(slots=True, eq=False)
class Stream:
    """One request's, with its tokens as they come."""

    rank: int
    prompt_left: int
    tokens_left: int
    arrived: int = 0  # in the engine, by number
    first_s: float | None = None
    last_s: float = 0.0
    gaps_s: list[float] = field(default_factory=list)
    tokens: int = 0
    rested: int = 0  # the last step that it had a row in

    @property
    def critical(self) -> bool:
        return self.rank == 0


class VirtualEngine:
    def __init__(self, machine: Machine, noise: float, seed: str) -> None:
        """`noise`: relative standard deviation of a step's time."""
        self._slots = machine.slots
        self._noise = noise
        self._rng = random.Random(seed)
        self._time = StepTime(
            STEP_TARGET_S,
            MAX_ROWS,
            row_s=machine.curve.prefill_row_s,
            curve=machine.curve,
            slots=machine.slots,
        )
        self._curve = machine.curve
        self._arrivals = self._steps = 0
        self._critical_s: float | None = None
        self._saved_s = 0.0
        self._others_s = 0.0  # when others had a row last, or there were none
        self.waiting: list[Stream] = []
        self.running: list[Stream] = []

    @property
    def drift(self) -> float:
        return self._time.drift

    @property
    def kv_used(self) -> int:
        return sum(s.tokens for s in self.running)

    def submit(self, stream: Stream) -> None:
        self._arrivals += 1
        stream.arrived = self._arrivals
        self.waiting.append(stream)

    def cancel(self, stream: Stream) -> None:
        (self.running if stream in self.running else self.waiting).remove(stream)

    def step(self, now_s: float, until_s: float) -> float | None:
        """Takes one or more steps that are alike, from `now_s` on and hardly beyond `until_s`. When they end; None:
        there is nothing to do."""
        self._admit()
        if not self.running:
            return None
        decoding = [s for s in self.running if not s.prompt_left]
        prompts = sorted((s for s in self.running if s.prompt_left), key=lambda s: (s.rank, s.arrived))
        crowd = Crowd(
            critical_streams=sum(s.critical for s in decoding),
            critical_prompts=any(s.critical for s in prompts),
            other_streams=sum(not s.critical for s in decoding),
            other_prompts=any(not s.critical for s in prompts),
        )
        if crowd.critical_streams or crowd.critical_prompts:
            self._critical_s = now_s
        if all(s.critical for s in self.running):
            self._others_s = now_s
        since_s = None if self._critical_s is None else now_s - self._critical_s
        part = share(crowd, self._time, critical_s=since_s, rested_s=now_s - self._others_s, saved_s=self._saved_s)
        streams, rows = self._filled(part, decoding, prompts)
        if not streams and not rows:  # nobody is there whom the others could be in the way of
            streams, rows = self._filled(Share(part.prefill_rows), decoding, prompts)
        if any(not s.critical for s in streams) or any(not s.critical for s, _ in rows):
            self._others_s = now_s
        step_s = self._step_s(len(streams), sum(n for _, n in rows))
        alike = not rows and len(streams) == len(decoding)
        steps = max(1, min(math.ceil((until_s - now_s) / step_s), *(s.tokens_left for s in streams))) if alike else 1
        return self._taken(streams, rows, now_s, step_s, steps)

    def finished(self) -> Iterator[Stream]:
        """Those that are done leave."""
        done = [s for s in self.running if not s.tokens_left]
        for stream in done:
            self.running.remove(stream)
            yield stream

    def _step_s(self, streams: int, rows: int) -> float:
        """Rows of prompts cost what those of streams do, until there are enough for the full rate."""
        few = min(self._slots, streams + rows)
        if streams + rows <= few:
            return self._curve.decode_s(few)
        full_s = max(self._curve.decode_s(self._slots), EFFICIENT_ROWS * self._curve.prefill_row_s)
        if streams + rows >= EFFICIENT_ROWS:
            return full_s + (streams + rows - EFFICIENT_ROWS) * self._curve.prefill_row_s
        few_s = self._curve.decode_s(few)
        return few_s + (full_s - few_s) * (streams + rows - few) / (EFFICIENT_ROWS - few)

    def _admit(self) -> None:
        self.waiting.sort(key=lambda s: (s.rank, s.arrived))
        while self.waiting:
            if len(self.running) >= self._slots:
                victim = max(self.running, key=lambda s: (s.rank, s.arrived))
                if victim.rank <= self.waiting[0].rank:
                    return
                self.running.remove(victim)  # its cells stay
                self.running.append(self.waiting.pop(0))
                self.waiting.append(victim)
                self.waiting.sort(key=lambda s: (s.rank, s.arrived))
            else:
                self.running.append(self.waiting.pop(0))

    def _filled(
        self, part: Share, decoding: list[Stream], prompts: list[Stream]
    ) -> tuple[list[Stream], list[tuple[Stream, int]]]:
        others = sorted((s for s in decoding if not s.critical), key=lambda s: (s.rested, s.rank))
        streams = [s for s in decoding if s.critical] + others[: part.other_streams]
        rows: list[tuple[Stream, int]] = []
        budget = part.prefill_rows
        in_turn = [s for s in prompts if s.critical or part.others_prefill]
        for stream in sorted(in_turn, key=lambda s: s.critical) if part.others_first else in_turn:
            n = min(budget, stream.prompt_left)
            if n > 0:
                rows.append((stream, n))
                budget -= n
        return streams, rows

    def _taken(
        self, streams: list[Stream], rows: list[tuple[Stream, int]], now_s: float, step_s: float, steps: int
    ) -> float:
        noise = max(0.5, self._rng.gauss(1.0, self._noise)) if self._noise else 1.0
        self._steps += steps
        took_s = step_s * noise
        critical = sum(s.critical for s in streams)
        if critical and not any(s.critical for s, _ in rows):
            for _ in range(steps):
                self._saved_s = saved(self._saved_s, self._time.streams_s(critical), took_s)
        if streams and not rows:
            self._time.observe_streams(len(streams), 0, took_s)
        ends_s = now_s + took_s * steps
        for stream in streams:
            gap_s = now_s + took_s - stream.last_s
            stream.gaps_s.append(gap_s)
            stream.gaps_s.extend([took_s] * (steps - 1))
            stream.last_s, stream.rested = ends_s, self._steps
            stream.tokens += steps
            stream.tokens_left -= steps
        for stream, n in rows:
            stream.prompt_left -= n
            if not stream.prompt_left:
                stream.first_s = stream.last_s = ends_s
                stream.tokens += 1
                stream.tokens_left -= 1
        return ends_s
