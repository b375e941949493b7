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

# From what llama.cpp's authors published of its CUDA kernels: tokens/s of micro-batches of so many rows, so that a step
# takes the number over the rate. https://github.com/ggml-org/llama.cpp/pull/12014 and, for prompts, /pull/11583
GPU_2B = Machine(
    "RTX 3090, Gemma 2B F16",
    CostCurve(
        ((1, 1 / 161.85), (2, 2 / 259.87), (4, 4 / 521.12), (8, 8 / 972.83), (16, 16 / 1859.05)),
        prefill_row_s=1 / 11162.57,
    ),
    is_gpu=True,
    answer_tokens=(64, 256),
)
# A workstation: `llama-batched-bench` with prompts of 512 tokens, seconds for 32 tokens of each stream.
# https://github.com/ggml-org/llama.cpp/blob/master/benches/dgx-spark.md
GPU_7B = Machine(
    "NVIDIA GB10, Qwen2.5-Coder 7B Q8_0",
    CostCurve(
        ((1, 1.095 / 32), (2, 1.175 / 32), (4, 1.227 / 32), (8, 1.308 / 32), (16, 1.528 / 32)),
        prefill_row_s=1 / 2359.65,
    ),
    is_gpu=True,
    answer_tokens=(32, 96),
)

MACHINES = (CPU, GPU_2B, GPU_7B)
