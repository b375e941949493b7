"""What NVML says of one GPU, in our units. Calls and units are as in NVIDIA's NVML API reference."""

from typing import Any, Final

from appliance.telemetry.hardware.nvml_calls import Nvml
from appliance.telemetry.hardware.nvml_gpm import Gpm
from appliance.telemetry.hardware.sample import GpuSample, Throttle

# nvmlClocksEventReasons: bits of nvmlDeviceGetCurrentClocksEventReasons.
_NO_THROTTLING: Final = 0x1 | 0x2  # GpuIdle, ApplicationsClocksSetting: nothing to do, and what somebody has asked for
_THROTTLES: Final[tuple[tuple[int, Throttle], ...]] = (
    (0x4, "power"),  # SwPowerCap
    (0x8, "hw-slowdown"),  # HwSlowdown
    (0x20, "thermal"),  # SwThermalSlowdown
    (0x40, "thermal"),  # HwThermalSlowdown
    (0x80, "hw-slowdown"),  # HwPowerBrakeSlowdown
)
_NAMED: Final = _NO_THROTTLING | 0x4 | 0x8 | 0x20 | 0x40 | 0x80


class Card:
    def __init__(self, nvml: Nvml, index: int) -> None:
        """Raises `Gone` when this GPU cannot be used."""
        api = nvml.api
        self._nvml = nvml
        self._index = index
        self._handle: Any = nvml.do("nvmlDeviceGetHandleByIndex", index)
        self._name: str = nvml.do("nvmlDeviceGetName", self._handle)
        self.uuid: str = nvml.do("nvmlDeviceGetUUID", self._handle)
        self._max_sm_clock_mhz = nvml.ask("nvmlDeviceGetMaxClockInfo", self._handle, api.NVML_CLOCK_SM)
        self._gpm = Gpm(nvml, self._handle)

    @property
    def title(self) -> str:
        """What to call it in a message."""
        return f"GPU {self._index} ({self._name})"

    def read(self) -> GpuSample:
        """Raises `Gone` when this GPU does not answer any more."""
        api, ask, handle = self._nvml.api, self._nvml.ask, self._handle
        rates = ask("nvmlDeviceGetUtilizationRates", handle)
        memory = ask("nvmlDeviceGetMemoryInfo", handle)
        power_mw = ask("nvmlDeviceGetPowerUsage", handle)  # on most cards since Ampere the mean of a second
        limit_mw = ask("nvmlDeviceGetEnforcedPowerLimit", handle)
        temperature_c = ask("nvmlDeviceGetTemperatureV", handle, api.NVML_TEMPERATURE_GPU)
        if temperature_c is None:  # an older driver
            temperature_c = ask("nvmlDeviceGetTemperature", handle, api.NVML_TEMPERATURE_GPU)
        # The driver counts for 20 ms in each of these two, and returns then.
        rx_kb_s = ask("nvmlDeviceGetPcieThroughput", handle, api.NVML_PCIE_UTIL_RX_BYTES)
        tx_kb_s = ask("nvmlDeviceGetPcieThroughput", handle, api.NVML_PCIE_UTIL_TX_BYTES)
        sm_activity, memory_bandwidth = self._gpm.read()
        return GpuSample(
            index=self._index,
            name=self._name,
            uuid=self.uuid,
            utilisation=None if rates is None else rates.gpu / 100,
            memory_used_bytes=None if memory is None else memory.used,
            memory_total_bytes=None if memory is None else memory.total,
            power_w=None if power_mw is None else power_mw / 1000,
            power_limit_w=None if limit_mw is None else limit_mw / 1000,
            temperature_c=None if temperature_c is None else float(temperature_c),
            sm_clock_mhz=ask("nvmlDeviceGetClockInfo", handle, api.NVML_CLOCK_SM),
            max_sm_clock_mhz=self._max_sm_clock_mhz,
            throttle=self._throttle(),
            pcie_rx_bytes_s=None if rx_kb_s is None else rx_kb_s * 1000,
            pcie_tx_bytes_s=None if tx_kb_s is None else tx_kb_s * 1000,
            sm_activity=sm_activity,
            memory_bandwidth=memory_bandwidth,
        )

    def close(self) -> None:
        self._gpm.close()

    def _throttle(self) -> frozenset[Throttle] | None:
        bits = self._nvml.ask("nvmlDeviceGetCurrentClocksEventReasons", self._handle)
        if bits is None:  # an older driver
            bits = self._nvml.ask("nvmlDeviceGetCurrentClocksThrottleReasons", self._handle)
        return None if bits is None else throttles(bits)


def throttles(bits: int) -> frozenset[Throttle]:
    """What the bits of nvmlClocksEventReasons say of throttling; bits without a name here are "other"."""
    named: set[Throttle] = {name for bit, name in _THROTTLES if bits & bit}
    if bits & ~_NAMED:
        named.add("other")
    return frozenset(named)
