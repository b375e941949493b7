"""Before a model is called ready: its pages are read in, the speed of a step is known, and it has made a real token."""

import time
from collections.abc import Iterator

from appliance.protocol import Event, Failed, Finished, Sampling, Stopping
from runtimes.contracts import Backend, ModelLoadError, Row
from runtimes.engine import Engine, Job

ROWS = 64  # enough for a CPU's full rate (measured), and 0.2 s of it at most
PASSES = 2  # the first reads the weights from disk


def _run(engine: Engine) -> Iterator[tuple[str, Event]]:
    while not engine.idle:
        yield from engine.step()


def warm_up(engine: Engine, backend: Backend) -> None:
    """Raises `ModelLoadError` when the model makes no token."""
    rows_count = min(ROWS, backend.info.max_batch_tokens, backend.info.context_tokens)
    token = backend.info.bos_id if backend.info.bos_id is not None else 0
    rows = [Row(token, i, 0, i == rows_count - 1) for i in range(rows_count)]
    for _ in range(PASSES):
        began_s = time.perf_counter()
        backend.forward(rows)
        engine.step_time.row_s = (time.perf_counter() - began_s) / rows_count
        backend.truncate(0, 0)
    engine.submit(Job("warm-up", (token,), Sampling(temperature=0), Stopping(max_tokens=1)))
    events = [event for _, event in _run(engine)]
    last = events[-1] if events else None
    if not isinstance(last, Finished):
        reason = last.message if isinstance(last, Failed) else "no token came"
        raise ModelLoadError(f"the model makes no token: {reason}")
