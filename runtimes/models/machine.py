"""How much memory this machine has for a model: NVML where there is an NVIDIA GPU, the operating system otherwise.

Reads; decides nothing.
"""

import importlib
from dataclasses import dataclass
from typing import Any

import psutil


@dataclass(frozen=True, slots=True)
class Memory:
    ram_bytes: int
    gpu_bytes: int = 0  # of the largest GPU; 0: none that can be used
    gpu_name: str | None = None


def read_memory() -> Memory:
    """The machine's memory. A GPU that cannot be asked counts as none."""
    ram_bytes = psutil.virtual_memory().total
    gpu = _largest_gpu()
    return Memory(ram_bytes, *gpu) if gpu else Memory(ram_bytes)


def _largest_gpu() -> tuple[int, str] | None:
    nvml: Any = importlib.import_module("pynvml")  # untyped, and only the commands that look at the machine need it
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:  # no driver, or no permission
        return None
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        return max(
            (
                (int(nvml.nvmlDeviceGetMemoryInfo(handle).total), str(nvml.nvmlDeviceGetName(handle)))
                for handle in handles
            ),
            default=None,
        )
    except nvml.NVMLError:
        return None
    finally:
        nvml.nvmlShutdown()
