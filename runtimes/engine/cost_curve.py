"""What a step costs, by the rows in it: measured once when a model is loaded, read by whoever sizes a batch.

Pure but for `measure`, which computes. Nothing here knows requests.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from runtimes.contracts import Backend, Row

REPEATS = 3  # the least of them counts: what else the machine does only ever makes a step longer
PREFILL_ROWS = 64  # enough for a CPU's full rate (measured)


@dataclass(frozen=True, slots=True)
class CostCurve:
    """Of one model on one machine."""

    decode: tuple[tuple[int, float], ...]  # (streams, seconds of a step with one row of each), by streams
    prefill_row_s: float  # of each row of a prompt, in a large batch

    def __post_init__(self) -> None:
        """Raises `ValueError` for what no measurement can have given."""
        streams = [n for n, _ in self.decode]
        if not streams or streams[0] != 1 or any(a >= b for a, b in pairwise(streams)):
            raise ValueError("a cost curve begins at one stream and goes up")
        if not all(0 < seconds < float("inf") for seconds in (self.prefill_row_s, *(s for _, s in self.decode))):
            raise ValueError("a step takes some time, and not for ever")

    def decode_s(self, streams: int) -> float:
        """Seconds of a step with one row for each of so many streams: between what was measured a line, beyond it the
        last row's cost for each."""
        if streams <= 0:
            return 0.0
        at = bisect_left(self.decode, (streams, 0.0))
        if at < len(self.decode) and self.decode[at][0] == streams:
            return self.decode[at][1]
        if at == len(self.decode):
            n, seconds = self.decode[-1]
            return seconds * streams / n
        (below, below_s), (above, above_s) = self.decode[at - 1], self.decode[at]
        return below_s + (above_s - below_s) * (streams - below) / (above - below)

    def knee(self, most: int, share: float) -> int:
        """The smallest batch that reaches this share of the best rate of all up to `most` streams."""
        best = max(n / self.decode_s(n) for n in range(1, most + 1))
        return next(n for n in range(1, most + 1) if n / self.decode_s(n) >= share * best)


def measure(backend: Backend, slots: int, token: int, clock: Callable[[], float], limit_s: float) -> CostCurve:
    """Computes steps of 1 to `slots` streams on an empty cache, which is left empty again.

    After `limit_s` no further step begins, so that a slow machine has fewer points, the ends first. Raises what the
    backend raises.
    """
    info = backend.info
    rows = min(PREFILL_ROWS, info.max_batch_tokens, info.context_tokens)
    ends_s = clock() + limit_s
    prompt = [Row(token, i, 0, i == rows - 1) for i in range(rows)]
    _seconds(backend, prompt, clock)  # reads the weights from disk
    prefill_s = _seconds(backend, prompt, clock)
    found: dict[int, float] = {}
    for _ in range(REPEATS):
        for streams in _sizes(slots):
            if clock() < ends_s or streams == 1:
                step_s = _seconds(backend, [Row(token, 0, i, logits=True) for i in range(streams)], clock)
                found[streams] = min(step_s, found.get(streams, step_s))
    least_s = 1e-9  # a clock may be too coarse for a step
    decode = tuple((n, max(least_s, found[n])) for n in sorted(found))
    return CostCurve(decode, max(least_s, prefill_s / rows))


def _seconds(backend: Backend, rows: list[Row], clock: Callable[[], float]) -> float:
    began_s = clock()
    backend.forward(rows)
    seconds = clock() - began_s
    for sequence in {row.sequence for row in rows}:
        backend.truncate(sequence, 0)
    return seconds


def _sizes(slots: int) -> Iterator[int]:
    """1, the most, and the powers of two between."""
    yield 1
    if slots > 1:
        yield slots
    size = 2
    while size < slots:
        yield size
        size *= 2
