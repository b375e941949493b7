"""What the machine is doing: its GPUs, its memory and processors, our processes. Reads; decides nothing."""

from appliance.telemetry.hardware.recorded import Recorded, TraceWriter, read_trace
from appliance.telemetry.hardware.sample import (
    GpuReading,
    GpuSample,
    GpuState,
    HardwareSample,
    HostSample,
    ProcessSample,
    Throttle,
)
from appliance.telemetry.hardware.sampler import Sampler
from appliance.telemetry.hardware.source import Source, ThisMachine

__all__ = [
    "GpuReading",
    "GpuSample",
    "GpuState",
    "HardwareSample",
    "HostSample",
    "ProcessSample",
    "Recorded",
    "Sampler",
    "Source",
    "ThisMachine",
    "Throttle",
    "TraceWriter",
    "read_trace",
]
