"""Samples of hardware that tests make up."""

from appliance.telemetry.hardware import GpuSample, HostSample, ProcessSample

GPU = GpuSample(
    index=0,
    name="NVIDIA RTX 4090",
    uuid="GPU-1",
    utilisation=0.5,
    memory_used_bytes=8 << 30,
    memory_total_bytes=24 << 30,
    power_w=301.5,
    power_limit_w=450.0,
    temperature_c=64.0,
    sm_clock_mhz=2520,
    max_sm_clock_mhz=3105,
    throttle=frozenset({"power", "thermal"}),
    pcie_rx_bytes_s=1_000_000,
    pcie_tx_bytes_s=50_000,
    sm_activity=None,
    memory_bandwidth=None,
)
HOST = HostSample(
    cpu=0.25,
    memory_used_bytes=6 << 30,
    memory_total_bytes=64 << 30,
    load_1m=1.5,
    processes={"daemon": ProcessSample(rss_bytes=120 << 20, cpu=0.1), "worker": ProcessSample(1 << 30, None)},
)
