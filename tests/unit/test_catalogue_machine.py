"""Reading the machine's memory."""

import sys
from types import ModuleType, SimpleNamespace

import psutil
import pytest

from runtimes.models.machine import Memory, read_memory


class NVMLError(Exception):
    pass


def fake_nvml(gpus: list[tuple[str, int]], fails_at: str | None = None) -> ModuleType:
    """A driver with these GPUs, whose named function fails."""
    calls: list[str] = []

    def called(name: str, result: object) -> object:
        calls.append(name)
        if name == fails_at:
            raise NVMLError(name)
        return result

    module = ModuleType("pynvml")
    vars(module).update(
        NVMLError=NVMLError,
        calls=calls,
        nvmlInit=lambda: called("nvmlInit", None),
        nvmlShutdown=lambda: called("nvmlShutdown", None),
        nvmlDeviceGetCount=lambda: called("nvmlDeviceGetCount", len(gpus)),
        nvmlDeviceGetHandleByIndex=lambda index: called("nvmlDeviceGetHandleByIndex", gpus[index]),
        nvmlDeviceGetMemoryInfo=lambda gpu: called("nvmlDeviceGetMemoryInfo", SimpleNamespace(total=gpu[1])),
        nvmlDeviceGetName=lambda gpu: called("nvmlDeviceGetName", gpu[0]),
    )
    return module


def test_the_largest_gpu_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = fake_nvml([("Small", 8 << 30), ("Large", 24 << 30), ("Medium", 12 << 30)])
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert read_memory() == Memory(psutil.virtual_memory().total, 24 << 30, "Large")
    assert vars(nvml)["calls"][-1] == "nvmlShutdown"


@pytest.mark.parametrize("fails_at", ["nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetMemoryInfo"])
def test_a_gpu_that_cannot_be_asked_counts_as_none(monkeypatch: pytest.MonkeyPatch, fails_at: str) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml([("GPU", 8 << 30)], fails_at))
    assert read_memory() == Memory(psutil.virtual_memory().total)


def test_a_driver_without_gpus_counts_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml([]))
    assert read_memory().gpu_bytes == 0
