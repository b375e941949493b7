"""Where samples come from: this machine, or whatever else gives both parts. Knows no thread and no pace."""

from collections.abc import Callable, Mapping
from typing import Protocol

from appliance.telemetry.hardware.host import Host
from appliance.telemetry.hardware.nvml import NvmlGpus
from appliance.telemetry.hardware.sample import GpuReading, HostSample


class Source(Protocol):
    """Each of the two is called from one thread, not both from the same one."""

    def gpus(self) -> GpuReading:
        """May block for as long as a driver hangs."""
        ...

    def host(self) -> HostSample: ...


class ThisMachine:
    def __init__(self, processes: Callable[[], Mapping[str, int]], clock: Callable[[], float]) -> None:
        """`processes`: their ids now, by name; called from another thread than the caller's. `clock`: monotonic."""
        self._nvml = NvmlGpus(clock)
        self._host = Host(processes)

    def gpus(self) -> GpuReading:
        return self._nvml.read()

    def host(self) -> HostSample:
        return self._host.read()
