"""How much of a step others may take beside critical streams. Pure: times are passed in.

Critical work is nearly as fast as it would be alone: others stand back while a critical prompt is computed, and have a
limited part of the time beside critical streams. On a GPU, whose steps cost the same for one stream and for many, they
share every step; on a CPU they save their part up for a step that many of them share, since a large batch does more in
its time. They are never left out for longer than `LONGEST_REST_S`.
"""

from dataclasses import dataclass

from runtimes.engine.step_time import LEAST_ROWS, StepTime

LONGEST_REST_S = 0.5
TOLERANCE = 1.5  # so much longer than alone critical streams may take, on average
LONGEST_SHARED = 4.0  # and a single step
MOST_SAVED_S = 0.25
EFFICIENT_ROWS = 64  # of prompts, in one step (measured)
# A critical request that comes finds a step under way. For so long after the last one, steps are kept short.
EXPECTED_FOR_S = 60.0


@dataclass(frozen=True, slots=True)
class Crowd:
    """Who is there."""

    critical_streams: int
    critical_prompts: bool  # rows of critical prompts are to be computed
    other_streams: int
    other_prompts: bool = False


@dataclass(frozen=True, slots=True)
class Share:
    """What a step takes beside one row for each critical stream."""

    prefill_rows: int
    other_streams: int | None = None  # one row each; None: all of them
    others_prefill: bool = True
    others_first: bool = False  # their prompts come before critical ones, for once


def share(
    crowd: Crowd,
    step_time: StepTime,
    *,
    critical_s: float | None,
    rested_s: float,
    saved_s: float = 0.0,
    itl_target_s: float = 0.0,
) -> Share:
    """`critical_s`: since critical work was seen last; None: never. `rested_s`: since others had a row. `saved_s`: of
    the time that others may take, see `saved`. `itl_target_s`: what a step with critical streams may take anyhow."""
    if not crowd.critical_streams and not crowd.critical_prompts:
        expected = critical_s is not None and critical_s < EXPECTED_FOR_S
        return Share(step_time.prefill_rows(crowd.other_streams, within_s=step_time.full_s if expected else None))
    others_are_due = rested_s >= LONGEST_REST_S
    if crowd.critical_prompts:
        if not others_are_due:
            return Share(step_time.prefill_rows(crowd.critical_streams), 0, others_prefill=False)
        others = min(1, crowd.other_streams)
        rows = step_time.prefill_rows(crowd.critical_streams + others) if others else LEAST_ROWS
        return Share(rows, others, others_prefill=not others, others_first=not others)
    return _beside_streams(crowd, step_time, saved_s, itl_target_s, others_are_due=others_are_due)


def _beside_streams(
    crowd: Crowd, step_time: StepTime, saved_s: float, itl_target_s: float, *, others_are_due: bool
) -> Share:
    alone_s = step_time.streams_s(crowd.critical_streams)
    limit_s = max(itl_target_s, LONGEST_SHARED * alone_s)
    affordable_s = max(itl_target_s, alone_s + saved_s)
    others = min(crowd.other_streams, max(0, step_time.streams_within(limit_s) - crowd.critical_streams))
    shared_s = step_time.streams_s(crowd.critical_streams + others)
    if shared_s > affordable_s:  # later, and then all of them
        others, shared_s = 0, alone_s
    rows = min(EFFICIENT_ROWS, step_time.rows_within(limit_s - shared_s)) if crowd.other_prompts else 0
    if rows > step_time.rows_within(affordable_s - shared_s):
        rows = 0
    if others_are_due and not others and not rows:
        return Share(LEAST_ROWS, 0) if not crowd.other_streams else Share(0, 1)
    return Share(rows, others)


def saved(saved_s: float, alone_s: float, took_s: float) -> float:
    """What others have of the time of critical streams after a step that took `took_s`, and would have taken `alone_s`
    without them."""
    earned_s = TOLERANCE * alone_s - max(took_s, alone_s)
    return max(-MOST_SAVED_S, min(MOST_SAVED_S, saved_s + earned_s))
