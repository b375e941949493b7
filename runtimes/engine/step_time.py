"""How many rows fit into a step of a given time, learnt from the steps so far. Pure: times are passed in."""

from dataclasses import dataclass

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


@dataclass(slots=True)
class StepTime:
    target_s: float  # of a step that mixes prefill with running streams
    max_rows: int
    row_s: float | None = None

    def observe(self, rows: int, seconds: float) -> None:
        sample = seconds / max(1, rows)
        if rows >= MEASURE_FROM_ROWS or self.row_s is None or sample < self.row_s:
            self.row_s = sample if self.row_s is None else self.row_s + SMOOTHING * (sample - self.row_s)

    def prefill_rows(self, streams: int) -> int:
        """The rows of prompts that may go beside `streams` running streams."""
        room = max(0, self.max_rows - streams)
        least = LEAST_ROWS if streams else LEAST_ROWS_ALONE
        if self.row_s is None:
            return min(least, room)
        target_s = self.target_s if streams else max(self.target_s, ALONE_S)
        # A clock too coarse for the steps measures nothing: then only the batch's size limits them.
        fitting = int(min(self.max_rows, target_s / self.row_s)) if self.row_s else self.max_rows
        return min(room, max(least, fitting - streams))
