"""How long a step takes: what was measured when the model was loaded, and learnt from the steps since.

Pure: times are passed in.
"""

from dataclasses import dataclass

from runtimes.engine.cost_curve import CostCurve

# Small batches cost more for each row than large ones (weights are read once a step), so they would mislead: from a
# busy moment, which makes steps small, no way would lead back. They count only where they are faster than expected.
MEASURE_FROM_ROWS = 32
# Rows a step always takes, however slow the machine: below this a prompt would never get done.
LEAST_ROWS = 8
SMOOTHING = 0.2  # weight of the newest step: five steps or so
# A step that nobody waits beside may be longer: kernels reach their full rate from 64 rows on (measured), and a
# cancellation is seen between steps.
ALONE_S = 0.5
LEAST_ROWS_ALONE = 32
CELLS_COUNT_FROM = 2048  # rows times cells: below this what they cost is noise
CELLS_RISE = 1.001  # a step


@dataclass(slots=True)
class StepTime:
    target_s: float  # of a step that mixes prefill with running streams
    max_rows: int
    row_s: float | None = None
    curve: CostCurve | None = None
    slots: int = 1  # streams at the most
    drift: float = 1.0  # what steps of streams take now, against what was expected of them
    cell_s: float | None = None  # what attention costs for each row and each used cell of the KV cache
    cells: int = 0  # used in the newest step

    def observe(self, rows: int, seconds: float) -> None:
        sample = seconds / max(1, rows)
        if rows >= MEASURE_FROM_ROWS or self.row_s is None or sample < self.row_s:
            self.row_s = sample if self.row_s is None else self.row_s + SMOOTHING * (sample - self.row_s)

    def observe_streams(self, streams: int, cells: int, seconds: float) -> None:
        """A step of one row for each of so many streams, with so many cells in use.

        The curve was measured on an empty cache. What cells cost is the least that was seen, since all that slows a
        machine down would otherwise pass for it; it may rise slowly.
        """
        if self.curve is None or not streams:
            return
        self.cells = cells
        if streams * cells >= CELLS_COUNT_FROM:
            sample = max(0.0, (seconds - self.curve.decode_s(streams)) / (streams * cells))
            self.cell_s = sample if self.cell_s is None else min(sample, self.cell_s * CELLS_RISE)
        self.drift += SMOOTHING * (seconds / self._expected_s(streams) - self.drift)

    def prefill_rows(self, streams: int, *, within_s: float | None = None) -> int:
        """The rows of prompts that may go beside `streams` running streams, in a step of `within_s` at most."""
        room = max(0, self.max_rows - streams)
        least = LEAST_ROWS if streams else LEAST_ROWS_ALONE
        if self.row_s is None:
            return min(least, room)
        target_s = self.target_s if streams else max(self.target_s, ALONE_S)
        if within_s is not None and within_s < target_s:
            target_s, least = within_s, LEAST_ROWS
        # A clock too coarse for the steps measures nothing: then only the batch's size limits them.
        fitting = int(min(self.max_rows, target_s / self.row_s)) if self.row_s else self.max_rows
        return min(room, max(least, fitting - streams))

    def streams_s(self, streams: int) -> float:
        """What a step of so many streams takes now; 0: nothing is known."""
        return self.drift * self._expected_s(streams)

    def streams_within(self, seconds: float) -> int:
        """The most streams, up to all slots, whose step takes no longer; kernels work on blocks of rows, so that more
        may cost less than fewer."""
        return next((n for n in range(self.slots, 0, -1) if self.streams_s(n) <= seconds), 0)

    def _expected_s(self, streams: int) -> float:
        if self.curve is None:
            return 0.0
        return self.curve.decode_s(streams) + streams * self.cells * (self.cell_s or 0.0)

    def rows_within(self, seconds: float) -> int:
        """Rows of prompts that take no longer."""
        if not self.row_s:
            return LEAST_ROWS
        return max(0, min(self.max_rows, int(seconds / self.row_s)))

    @property
    def full_s(self) -> float | None:
        """What a step of all slots takes."""
        return self.streams_s(self.slots) or None
