"""Engines for the simulator: what a step costs on machines that were measured. Pure data."""

from dataclasses import dataclass

from runtimes.engine import CostCurve
from tests.bench.overload.scenario import ANSWER_TOKENS


@dataclass(frozen=True, slots=True)
class Machine:
    name: str
    curve: CostCurve
    is_gpu: bool = False
    slots: int = 16
    context_tokens: int = 2048  # of one stream
    answer_tokens: tuple[int, int] = ANSWER_TOKENS  # of a request, drawn evenly


# SmolLM2-135M Q8_0 on two cores, as the daemon measured it at load: every larger batch is slower for all.
CPU = Machine(
    "two CPU cores",
    CostCurve(((1, 0.0067), (2, 0.0105), (4, 0.0155), (8, 0.0235), (16, 0.0388)), prefill_row_s=0.0018),
)

MACHINES = (CPU,)
