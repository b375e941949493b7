"""What the machine says of its load, for admission. Reads what others have sampled; never blocks."""

import os
from collections.abc import Callable

import psutil

from appliance.admission.saturation import MachineLoad
from appliance.admission_settings import AdmissionSettings

_MIB = 1024 * 1024
DAEMON_SHARE = 0.1  # of the machine's memory; what a busy daemon takes is far below
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def machine_load(settings: AdmissionSettings) -> Callable[[float], MachineLoad]:
    """A reading, given the event loop's lag in seconds."""
    total = psutil.virtual_memory().total
    limit = total * DAEMON_SHARE if settings.max_memory_mib is None else settings.max_memory_mib * _MIB

    def read(lag_s: float) -> MachineLoad:
        return MachineLoad(lag_s=lag_s, memory_share=_resident_bytes() / limit)

    return read


def _resident_bytes() -> int:
    """Of this process. 30 us: it is read ten times a second."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - half the time of Path's
            return int(file.read().split()[1]) * PAGE_BYTES
    except OSError:  # not Linux
        return psutil.Process().memory_info().rss
