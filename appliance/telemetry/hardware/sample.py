"""What is known of the machine at one moment. Data only: who reads it and how often is not known here."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

GpuState = Literal[
    "absent",  # no driver, or a driver without GPUs; there never was one
    "ok",
    "lost",  # a GPU that was there, or its driver, does not answer any more; the others' readings go on
    "blocked",  # the driver has not returned from a call; the readings are the last from before
]
Throttle = Literal["thermal", "power", "hw-slowdown", "other"]


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One GPU. A reading that the card, its driver or its permissions do not give is None."""

    index: int  # NVML's, in the order of the PCI bus; CUDA counts in another order unless told otherwise
    name: str
    uuid: str
    utilisation: float | None  # 0 to 1: share of the time in which any kernel ran, however small
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    power_w: float | None
    power_limit_w: float | None  # the one in force
    temperature_c: float | None
    sm_clock_mhz: int | None
    max_sm_clock_mhz: int | None
    throttle: frozenset[Throttle] | None  # why the clock is lower than it could be; empty: it is not
    pcie_rx_bytes_s: int | None
    pcie_tx_bytes_s: int | None
    sm_activity: float | None  # 0 to 1: share of the multiprocessors that were busy
    memory_bandwidth: float | None  # 0 to 1, of what the memory can do


@dataclass(frozen=True, slots=True)
class GpuReading:
    gpus: tuple[GpuSample, ...]
    state: GpuState
    problem: str | None  # why the state is not "ok", in words


@dataclass(frozen=True, slots=True)
class ProcessSample:
    rss_bytes: int
    cpu: float | None  # in cores, since the reading before; None: there was none


@dataclass(frozen=True, slots=True)
class HostSample:
    cpu: float | None  # 0 to 1, of all cores, since the reading before; None: there was none
    memory_used_bytes: int  # what could not be had without swapping
    memory_total_bytes: int
    load_1m: float
    processes: Mapping[str, ProcessSample]  # by the names that they were asked for; without those that are gone


@dataclass(frozen=True, slots=True)
class HardwareSample:
    """Host and GPUs are read apart, so that neither waits for the other."""

    at_s: float  # monotonic, when the host's part was finished; the GPUs' is as fresh, or `gpu_state` says "blocked"
    gpus: tuple[GpuSample, ...]
    host: HostSample
    gpu_state: GpuState
    problem: str | None
