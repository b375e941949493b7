"""What the machine says of its load, for admission. Reads what others have sampled; never blocks."""

import math
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

import psutil

from appliance.admission.saturation import MachineLoad
from appliance.admission_settings import AdmissionSettings
from appliance.telemetry.hardware import HardwareSample, Sampler

_MIB = 1024 * 1024
DAEMON_SHARE = 0.1  # of the machine's memory; what a busy daemon takes is far below
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def machine_load(settings: AdmissionSettings, hardware: Sampler) -> Callable[[float], MachineLoad]:
    """A reading, given the event loop's lag in seconds."""
    total = psutil.virtual_memory().total
    limit = total * DAEMON_SHARE if settings.max_memory_mib is None else settings.max_memory_mib * _MIB

    resident = 0

    def read(lag_s: float) -> MachineLoad:
        nonlocal resident
        with suppress(OSError):  # as many files are open as may be: what was read last counts
            resident = _resident_bytes()
        return of_sample(hardware.latest(), lag_s, resident / limit, time.monotonic())

    return read


def of_sample(sample: HardwareSample | None, lag_s: float, memory_share: float, now_s: float) -> MachineLoad:
    """A GPU that is not there, or was lost, says nothing: whether its engine still answers is the engine's to say. One
    that is blocked counts as a sample that has grown too old."""
    if sample is None or not sample.gpus:
        return MachineLoad(lag_s=lag_s, memory_share=memory_share)
    return MachineLoad(
        gpu_utilisation=max((gpu.utilisation or 0.0 for gpu in sample.gpus), default=None),
        throttled=frozenset().union(*(gpu.throttle or frozenset() for gpu in sample.gpus)),
        sample_age_s=math.inf if sample.gpu_state == "blocked" else now_s - sample.at_s,
        lag_s=lag_s,
        memory_share=memory_share,
    )


def processes_of(workers: Mapping[str, Callable[[], int | None]]) -> Callable[[], Mapping[str, int]]:
    """The ids of this daemon's processes, by name. May be called from any thread."""

    def processes() -> Mapping[str, int]:
        found = {name: pid() for name, pid in workers.items()}
        return {"daemon": os.getpid(), **{name: pid for name, pid in found.items() if pid is not None}}

    return processes


def _resident_bytes() -> int:
    """Of this process. 30 us: it is read ten times a second."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - half the time of Path's
            return int(file.read().split()[1]) * PAGE_BYTES
    except OSError:  # not Linux
        return psutil.Process().memory_info().rss
