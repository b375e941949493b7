"""GPUs as NVML shows them, through the real bindings and a driver that the test makes up."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.telemetry.hardware import GpuReading, GpuSample, HardwareSample, Throttle
from tests.integration.daemon_fixture import wait_until
from tests.integration.nvml_fixture import LIBRARY, Driver, Reader, build_library

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the stand-in is put in NVML's place by Linux's linker")

UNINITIALIZED, NO_PERMISSION, DRIVER_NOT_LOADED, GPU_IS_LOST, RESET_REQUIRED, UNKNOWN = 1, 4, 9, 15, 16, 999
RETRY_S = 10.0

LARGE: dict[str, object] = {
    "DeviceGetName": "NVIDIA H100 PCIe",
    "DeviceGetUUID": "GPU-8f0c",
    "DeviceGetUtilizationRates": 87,
    "DeviceGetMemoryInfo": "60129542144 85520809984",
    "DeviceGetPowerUsage": 312500,
    "DeviceGetEnforcedPowerLimit": 350000,
    "DeviceGetTemperature": 71,
    "DeviceGetClockInfo": 1620,
    "DeviceGetMaxClockInfo": 1755,
    "DeviceGetCurrentClocksEventReasons": 0,
    "DeviceGetPcieThroughput/rx": 2500,
    "DeviceGetPcieThroughput/tx": 40,
    "GpmQueryDeviceSupport": 1,
    "GpmSampleGet": "0 0",
}
SMALL: dict[str, object] = {"DeviceGetName": "NVIDIA T400", "DeviceGetUUID": "GPU-11aa", "DeviceGetTemperature": 40}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver(tmp_path / "driver")


@pytest.fixture
def reader(library: Path, driver: Driver) -> Iterator[Reader]:
    started = Reader(library, driver)
    yield started
    assert started.close() == 0


def only(reading: GpuReading) -> GpuSample:
    assert (reading.state, reading.problem) == ("ok", None)
    (gpu,) = reading.gpus
    return gpu


def after(reader: Reader, seconds: float) -> GpuReading:
    reader.advance(seconds)
    return reader.read()


def test_every_gpu_is_read_in_our_units_and_what_a_card_does_not_support_is_none(
    driver: Driver, reader: Reader
) -> None:
    driver.has(LARGE, SMALL)
    reading = reader.read()
    assert (reading.state, reading.problem) == ("ok", None)
    assert reading.gpus == (
        GpuSample(
            index=0,
            name="NVIDIA H100 PCIe",
            uuid="GPU-8f0c",
            utilisation=0.87,
            memory_used_bytes=60129542144,
            memory_total_bytes=85520809984,
            power_w=312.5,
            power_limit_w=350.0,
            temperature_c=71.0,
            sm_clock_mhz=1620,
            max_sm_clock_mhz=1755,
            throttle=frozenset(),
            pcie_rx_bytes_s=2_500_000,
            pcie_tx_bytes_s=40_000,
            sm_activity=None,  # it takes two readings
            memory_bandwidth=None,
        ),
        GpuSample(
            index=1,
            name="NVIDIA T400",
            uuid="GPU-11aa",
            utilisation=None,
            memory_used_bytes=None,
            memory_total_bytes=None,
            power_w=None,
            power_limit_w=None,
            temperature_c=40.0,
            sm_clock_mhz=None,
            max_sm_clock_mhz=None,
            throttle=None,
            pcie_rx_bytes_s=None,
            pcie_tx_bytes_s=None,
            sm_activity=None,
            memory_bandwidth=None,
        ),
    )


def test_a_reading_that_fails_is_none_and_the_others_go_on(driver: Driver, reader: Reader) -> None:
    driver.has(LARGE)
    driver.says("DeviceGetPowerUsage", code=UNKNOWN)
    driver.says("DeviceGetPcieThroughput/rx", code=NO_PERMISSION)
    gpu = only(reader.read())
    assert (gpu.power_w, gpu.pcie_rx_bytes_s) == (None, None)
    assert (gpu.power_limit_w, gpu.pcie_tx_bytes_s) == (350.0, 40_000)


@pytest.mark.parametrize(
    ("reasons", "names"),
    [
        (0x1, set()),  # idle
        (0x2, set()),  # clocks that somebody has set
        (0x4, {"power"}),
        (0x20, {"thermal"}),
        (0x8 | 0x40, {"thermal", "hw-slowdown"}),
        (0x8 | 0x80 | 0x1, {"hw-slowdown"}),
        (0x4 | 0x10, {"power", "other"}),
    ],
)
def test_why_a_gpu_is_slower_than_it_could_be_is_named(
    driver: Driver, reader: Reader, reasons: int, names: set[Throttle]
) -> None:
    driver.has({**LARGE, "DeviceGetCurrentClocksEventReasons": reasons})
    assert only(reader.read()).throttle == frozenset(names)


def test_an_old_driver_is_asked_by_the_old_names(driver: Driver, tmp_path: Path) -> None:
    driver.has({**LARGE, "DeviceGetCurrentClocksEventReasons": 0x4})
    reader = Reader(build_library(tmp_path, "-DOLD_DRIVER"), driver)
    try:
        gpu = only(reader.read())
        assert (gpu.throttle, gpu.temperature_c, gpu.sm_activity) == (frozenset({"power"}), 71.0, None)
    finally:
        reader.close()


def test_performance_monitoring_is_the_mean_since_the_reading_before(driver: Driver, reader: Reader) -> None:
    driver.has(LARGE)
    reader.read()
    for counters, shares in [("75 42.5", (0.75, 0.425)), ("95 42.5", (0.2, 0.0)), ("195 nan", (1.0, None))]:
        driver.says("GpmSampleGet", value=counters)
        gpu = only(reader.read())
        assert (gpu.sm_activity, gpu.memory_bandwidth) == shares


def test_a_reading_without_performance_monitoring_does_not_spoil_the_next(driver: Driver, reader: Reader) -> None:
    driver.has(LARGE)
    reader.read()
    driver.says("GpmSampleGet", code=UNKNOWN)
    assert only(reader.read()).sm_activity is None
    driver.says("GpmSampleGet", value="50 25")
    assert only(reader.read()).sm_activity == 0.5


@pytest.mark.parametrize("code", [GPU_IS_LOST, RESET_REQUIRED])
def test_a_gpu_that_is_lost_is_said_to_be_and_found_again_when_it_comes_back(
    driver: Driver, reader: Reader, code: int
) -> None:
    driver.has(SMALL, LARGE)
    assert reader.read().state == "ok"
    driver.fails(1, code)
    lost = reader.read()
    assert lost.state == "lost"
    assert lost.problem is not None
    assert lost.problem.startswith("GPU 1 (NVIDIA H100 PCIe): GPU ")
    assert [gpu.name for gpu in lost.gpus] == ["NVIDIA T400"]  # it is read as before
    driver.has(SMALL, LARGE)
    assert after(reader, RETRY_S - 1).state == "lost"  # to look for it costs too much to do it all the time
    driver.fails(1, code)
    assert after(reader, 1).state == "lost"
    driver.has(SMALL, LARGE)
    assert after(reader, RETRY_S - 1).state == "lost"
    found = after(reader, 1)
    assert (found.state, found.problem, len(found.gpus)) == ("ok", None, 2)


def test_a_gpu_that_comes_and_goes_leaves_nothing_behind_in_the_driver(driver: Driver, reader: Reader) -> None:
    other = {**LARGE, "DeviceGetUUID": "GPU-other"}
    for _ in range(3):
        driver.has(LARGE, other)
        reader.advance(RETRY_S)
        reader.read()
        assert [gpu.sm_activity for gpu in reader.read().gpus] == [0.0, 0.0]
        driver.fails(1, GPU_IS_LOST)
        reader.read()


def test_a_driver_that_is_unloaded_and_loaded_again_is_found(driver: Driver, reader: Reader) -> None:
    driver.has(LARGE)
    reader.read()
    driver.fails(0, DRIVER_NOT_LOADED)
    assert reader.read().state == "lost"
    driver.says("Init", code=DRIVER_NOT_LOADED)
    driver.says("Shutdown", code=UNINITIALIZED)
    unloaded = after(reader, RETRY_S)
    assert (unloaded.state, unloaded.gpus) == ("lost", ())
    assert unloaded.problem == "NVML cannot be used: Driver Not Loaded"
    driver.says("Init")
    driver.has(LARGE)
    assert only(after(reader, RETRY_S)).name == "NVIDIA H100 PCIe"


def test_a_gpu_that_is_not_there_any_more_is_lost(driver: Driver, reader: Reader) -> None:
    driver.has(SMALL, LARGE)
    reader.read()
    driver.fails(1, GPU_IS_LOST)
    reader.read()
    driver.has(SMALL)
    gone = after(reader, RETRY_S)
    assert (gone.state, gone.problem) == ("lost", "GPU 1 (NVIDIA H100 PCIe): it is not there any more")
    assert len(gone.gpus) == 1


def test_a_gpu_that_is_somebody_elses_is_left_out(driver: Driver, reader: Reader) -> None:
    driver.has(SMALL, LARGE)
    driver.says("DeviceGetHandleByIndex", 1, code=NO_PERMISSION)
    assert only(reader.read()).name == "NVIDIA T400"


@pytest.mark.parametrize(
    ("init", "problem"),
    [
        (DRIVER_NOT_LOADED, "NVML cannot be used: Driver Not Loaded"),
        (0, "NVML shows no GPU"),
    ],
)
def test_a_machine_without_a_gpu_in_use_has_none_until_one_comes(
    driver: Driver, reader: Reader, init: int, problem: str
) -> None:
    driver.says("Init", code=init)
    assert reader.read() == GpuReading((), "absent", problem)
    driver.says("Init")
    driver.has(SMALL)
    assert after(reader, RETRY_S - 1).state == "absent"
    assert only(after(reader, 1)).name == "NVIDIA T400"


def test_a_machine_without_nvml_has_no_gpu(driver: Driver, tmp_path: Path) -> None:
    (tmp_path / LIBRARY).touch()  # nothing that can be loaded, and in front of one that may be installed here
    reader = Reader(tmp_path, driver)
    try:
        assert reader.read() == GpuReading((), "absent", "NVML cannot be used: NVML Shared Library Not Found")
    finally:
        reader.close()


def fresh(reader: Reader, state: str) -> HardwareSample:
    """The latest sample, when it is in this state and its host was read after now."""

    def found() -> HardwareSample | None:
        sample = reader.latest()
        return sample if sample is not None and sample.gpu_state == state and sample.at_s > before.at_s else None

    before = wait_until(reader.latest, "a sample")
    reader.advance(0.1)
    sample: HardwareSample = wait_until(found, f"a new sample that says {state}")
    return sample


def test_a_driver_that_hangs_is_said_to_and_keeps_nobody_else(driver: Driver, reader: Reader) -> None:
    driver.has(LARGE)
    reader.start()
    assert fresh(reader, "ok").gpus[0].power_w == 312.5
    driver.says("DeviceGetPowerUsage", code="hang")
    reader.advance(2.5)
    blocked = fresh(reader, "blocked")  # so the host is read all the time
    assert blocked.problem == "the GPUs could not be read for 3 s: their driver seems to hang"
    assert blocked.gpus[0].power_w == 312.5
    assert "reader" in blocked.host.processes
    driver.says("DeviceGetPowerUsage", value=100_000)
    assert fresh(reader, "ok").gpus[0].power_w == 100.0


def test_a_driver_that_hangs_from_the_beginning_does_not_hide_the_host(driver: Driver, reader: Reader) -> None:
    driver.says("Init", code="hang")
    reader.start()
    assert reader.latest() is None
    reader.advance(2.5)
    assert fresh(reader, "blocked").gpus == ()


def test_a_sampler_stops_and_its_process_ends_while_the_driver_hangs(library: Path, driver: Driver) -> None:
    driver.has(LARGE)
    reader = Reader(library, driver)
    try:
        reader.start()
        fresh(reader, "ok")
        driver.says("DeviceGetPowerUsage", code="hang")
        reader.advance(2.5)
        fresh(reader, "blocked")
        reader.stop()
    finally:
        assert reader.close() == 0  # though the call has not returned
