"""How much of a step others may take beside critical streams. Pure: times are passed in.

Critical work is nearly as fast as it would be alone: others stand back while a critical prompt is computed, and share a
step with critical streams as far as that takes little longer, or no longer than the owner's target. On a GPU, whose
steps cost the same for one stream and for many, that is always; on a CPU it is seldom. They are never left out for
longer than `LONGEST_REST_S`.
"""

from dataclasses import dataclass

from runtimes.engine.step_time import LEAST_ROWS, StepTime

LONGEST_REST_S = 0.5
# So much longer than alone a step of critical streams may take. On two cores, at three times the load (simulated, 40
# seeds): with 1.2 the P99 between critical tokens is 1.02 times that of critical work alone and 76 % of the machine's
# work is done; with 1.5 it is 1.05 and 82 %; with 1.8 it is 1.07 and 84 %, and the median is more than twice as long.
TOLERANCE = 1.5
# A critical request that comes finds a step under way. For so long after the last one, steps are kept short.
EXPECTED_FOR_S = 60.0


@dataclass(frozen=True, slots=True)
class Crowd:
    """Who is there."""

    critical_streams: int
    critical_prompts: bool  # rows of critical prompts are to be computed
    other_streams: int


@dataclass(frozen=True, slots=True)
class Share:
    """What a step takes beside one row for each critical stream."""

    prefill_rows: int
    other_streams: int | None = None  # one row each; None: all of them
    others_prefill: bool = True
    others_first: bool = False  # their prompts come before critical ones, for once


def share(
    crowd: Crowd, step_time: StepTime, *, critical_s: float | None, rested_s: float, itl_target_s: float = 0.0
) -> Share:
    """`critical_s`: since critical work was seen last; None: never. `rested_s`: since others had a row.
    `itl_target_s`: what a step with critical streams may take in any case."""
    if not crowd.critical_streams and not crowd.critical_prompts:
        expected = critical_s is not None and critical_s < EXPECTED_FOR_S
        return Share(step_time.prefill_rows(crowd.other_streams, within_s=step_time.full_s if expected else None))
    others_are_due = rested_s >= LONGEST_REST_S
    if crowd.critical_prompts and not others_are_due:
        return Share(step_time.prefill_rows(crowd.critical_streams), 0, others_prefill=False)
    alone_s = step_time.streams_s(crowd.critical_streams)
    limit_s = max(itl_target_s, TOLERANCE * alone_s)
    fitting = max(0, step_time.streams_within(limit_s) - crowd.critical_streams)
    others = min(crowd.other_streams, max(fitting, 1 if others_are_due else 0))
    prompts_are_due = others_are_due and not others
    if crowd.critical_prompts:
        rows = LEAST_ROWS if prompts_are_due else step_time.prefill_rows(crowd.critical_streams + others)
        return Share(rows, others, others_prefill=prompts_are_due, others_first=prompts_are_due)
    rows = step_time.rows_within(limit_s - step_time.streams_s(crowd.critical_streams + others))
    return Share(max(rows, LEAST_ROWS if prompts_are_due else 0), others)
