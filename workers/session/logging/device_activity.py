"""Activity of an NVIDIA device between two samples, by the counters of NVML's GPM: from Hopper on.

Holds: no context is made on the device; the first sample gives nothing, each later one the means since the sample before. What the driver
does not report is left out, and a driver or a device without these counters is asked once.
Source: NVML API reference, "GPM Functions" (nvmlGpmSampleGet, nvmlGpmMetricsGet).
"""

import math
from typing import Any

_MIB = 2**20


class DeviceActivity:
    """Counters of one device. `library` has pynvml's surface; `handle` is its handle of the device."""

    def __init__(self, library: Any, handle: Any) -> None:
        self._nvml = library
        self._handle = handle
        self._samples: list[Any] = []
        self._begun = False
        self._metrics = {
            library.NVML_GPM_METRIC_SM_UTIL: ("system/device_sm_active_pct", 1),
            library.NVML_GPM_METRIC_ANY_TENSOR_UTIL: ("system/device_tensor_active_pct", 1),
            library.NVML_GPM_METRIC_DRAM_BW_UTIL: ("system/device_memory_bandwidth_pct", 1),
            library.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC: ("system/device_nvlink_received_bytes_per_s", _MIB),
            library.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC: ("system/device_nvlink_sent_bytes_per_s", _MIB),
        }
        if self._is_supported():
            self._samples = [library.nvmlGpmSampleAlloc(), library.nvmlGpmSampleAlloc()]

    def means(self) -> dict[str, float]:
        """Points by name: per cent, or bytes a second, of the time since the call before. Some ms; does not wait for the device."""
        if not self._samples:
            return {}
        before, after = self._samples
        try:
            self._nvml.nvmlGpmSampleGet(self._handle, after)
        except self._nvml.NVMLError:
            self._begun = False
            return {}
        self._samples.reverse()
        begun, self._begun = self._begun, True
        return self._between(before, after) if begun else {}

    def _between(self, before: Any, after: Any) -> dict[str, float]:
        nvml = self._nvml
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, len(self._metrics)
        asked.sample1, asked.sample2 = before, after
        for place, metric in enumerate(self._metrics):
            asked.metrics[place].metricId = metric
        try:
            nvml.nvmlGpmMetricsGet(asked)
        except nvml.NVMLError:
            return {}
        answers = [(asked.metrics[place], of) for place, of in enumerate(self._metrics.values())]
        known = [(name, answer.value * scale) for answer, (name, scale) in answers if answer.nvmlReturn == nvml.NVML_SUCCESS]
        return {name: value for name, value in known if math.isfinite(value)}

    def _is_supported(self) -> bool:
        try:
            return bool(self._nvml.nvmlGpmQueryDeviceSupport(self._handle).isSupportedDevice)
        except self._nvml.NVMLError:
            return False
