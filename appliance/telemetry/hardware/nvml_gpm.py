"""NVML's GPU performance monitoring: how busy multiprocessors and memory are. Hopper and newer have it.

A metric is the mean between two samples, so the first reading gives none.
"""

import contextlib
import math
from typing import Any

from appliance.telemetry.hardware.nvml_calls import Gone, Nvml


class Gpm:
    def __init__(self, nvml: Nvml, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self._before: Any = None  # a sample that was taken
        self._spare: Any = None  # one to be written over
        self._samples: list[Any] = []
        self._request: Any = None  # 19 KB; used again and again
        support = nvml.ask("nvmlGpmQueryDeviceSupport", handle)
        if support is not None and support.isSupportedDevice:
            self._begin()

    def read(self) -> tuple[float | None, float | None]:
        """Busy multiprocessors and memory bandwidth since the reading before, 0 to 1 each."""
        if self._spare is None or self._nvml.ask("nvmlGpmSampleGet", self._handle, self._spare) is None:
            return None, None
        if self._before is None:
            self._before, self._spare = self._spare, self._samples[1]
            return None, None
        self._request.sample1, self._request.sample2 = self._before, self._spare
        self._before, self._spare = self._spare, self._before
        answer = self._nvml.ask("nvmlGpmMetricsGet", self._request)
        return (None, None) if answer is None else (_share(answer.metrics[0]), _share(answer.metrics[1]))

    def close(self) -> None:
        """Gives its memory back to the driver, if there still is one."""
        samples, self._samples, self._before, self._spare = self._samples, [], None, None
        for sample in samples:
            with contextlib.suppress(Gone):
                self._nvml.do("nvmlGpmSampleFree", sample)

    def _begin(self) -> None:
        api = self._nvml.api
        for _ in range(2):
            sample = self._nvml.ask("nvmlGpmSampleAlloc")
            if sample is None:
                return
            self._samples.append(sample)
        self._request = api.c_nvmlGpmMetricsGet_t()
        self._request.version = api.NVML_GPM_METRICS_GET_VERSION
        self._request.numMetrics = 2
        self._request.metrics[0].metricId = api.NVML_GPM_METRIC_SM_UTIL
        self._request.metrics[1].metricId = api.NVML_GPM_METRIC_DRAM_BW_UTIL
        self._spare = self._samples[0]


def _share(metric: Any) -> float | None:
    """NVML's percentage, which may be no number right after a change of the GPU's state."""
    if metric.nvmlReturn != 0 or not math.isfinite(metric.value):
        return None
    return float(min(max(metric.value / 100, 0.0), 1.0))
