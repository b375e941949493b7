"""Before a model is called ready: its pages are read in, the cost of a step is known, and it has made a real token."""

import time
from collections.abc import Iterator

from appliance.protocol import Event, Failed, Finished, Sampling, Stopping
from runtimes.contracts import Backend, ModelLoadError, Row
from runtimes.engine import CostCurve, Engine, Job
from runtimes.engine.cost_curve import PREFILL_ROWS, measure

PASSES = 2  # the first reads the weights from disk
MEASURING_LIMIT_S = 2.5  # for the cost curve


def _run(engine: Engine) -> Iterator[tuple[str, Event]]:
    while not engine.idle:
        yield from engine.step()


def warm_up(engine: Engine, backend: Backend, known: CostCurve | None = None) -> CostCurve:
    """The model's cost curve: what is `known` of it, or measured now. Raises `ModelLoadError` when the model makes no
    token."""
    token = backend.info.bos_id if backend.info.bos_id is not None else 0
    slots = engine.step_time.slots
    curve = known or measure(backend, slots, token, time.perf_counter, MEASURING_LIMIT_S)
    engine.step_time.curve = curve
    engine.step_time.row_s = curve.prefill_row_s if known is None else _prefill_row_s(backend, token)
    engine.submit(Job("warm-up", (token,), Sampling(temperature=0), Stopping(max_tokens=1)))
    events = [event for _, event in _run(engine)]
    last = events[-1] if events else None
    if not isinstance(last, Finished):
        reason = last.message if isinstance(last, Failed) else "no token came"
        raise ModelLoadError(f"the model makes no token: {reason}")
    return curve


def _prefill_row_s(backend: Backend, token: int) -> float:
    """Reads the weights in, too."""
    n = min(PREFILL_ROWS, backend.info.max_batch_tokens, backend.info.context_tokens)
    rows = [Row(token, i, 0, i == n - 1) for i in range(n)]
    row_s = 0.0
    for _ in range(PASSES):
        began_s = time.perf_counter()
        backend.forward(rows)
        row_s = (time.perf_counter() - began_s) / n
        backend.truncate(0, 0)
    return row_s
