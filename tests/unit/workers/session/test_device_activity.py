"""What a device did between two looks: on a library of pynvml's surface, and on a device where there is one that has the counters."""

from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
import torch

from tests.support.waiting import until
from trainhouse.workers.session.logging.device_activity import DeviceActivity

MIB = 2**20
ANSWERS = {
    pynvml.NVML_GPM_METRIC_SM_UTIL: (0, 71.5),
    pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: (0, 40.0),
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: (0, float("nan")),
    pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC: (0, 3.0),
    pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC: (pynvml.NVML_ERROR_NOT_SUPPORTED, 9.0),
}


class FakeGpm:
    """pynvml's surface for one device. Each look has a number; `looks`: pairs that were asked for means."""

    def __init__(self, supported: bool | None = True) -> None:
        self._supported = supported
        self.taken = 0
        self.looks: list[tuple[int, int]] = []
        self.fails = False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("nvml"):
            raise AssertionError(f"{name} is not for reading counters")
        return getattr(pynvml, name)

    def nvmlGpmQueryDeviceSupport(self, device: object) -> SimpleNamespace:
        if self._supported is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return SimpleNamespace(isSupportedDevice=int(self._supported))

    def nvmlGpmSampleAlloc(self) -> Any:
        return pynvml.c_nvmlGpmSample_t(pynvml.struct_c_nvmlGpmSample_t())

    def nvmlGpmSampleGet(self, device: object, sample: Any) -> None:
        if self.fails:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        self.taken += 1

    def nvmlGpmMetricsGet(self, asked: Any) -> None:
        assert asked.version == pynvml.NVML_GPM_METRICS_GET_VERSION and asked.sample1 and asked.sample2
        self.looks.append((self.taken - 1, self.taken))
        for place in range(asked.numMetrics):
            metric = asked.metrics[place]
            metric.nvmlReturn, metric.value = ANSWERS[metric.metricId]


def test_means_are_between_two_looks_and_what_is_not_told_is_left_out() -> None:
    library = FakeGpm()
    activity = DeviceActivity(library, "a device")
    assert activity.means() == {}, "there is no look before the first one"
    found = activity.means()
    assert found == {
        "system/device_sm_active_pct": 71.5,
        "system/device_tensor_active_pct": 40.0,
        "system/device_nvlink_received_bytes_per_s": 3.0 * MIB,
    }
    assert activity.means() == found and library.looks == [(1, 2), (2, 3)]


def test_after_a_look_that_failed_it_begins_anew() -> None:
    library = FakeGpm()
    activity = DeviceActivity(library, "a device")
    activity.means()
    library.fails = True
    assert activity.means() == {}
    library.fails = False
    assert activity.means() == {}
    assert activity.means() and library.looks == [(2, 3)]


@pytest.mark.parametrize("supported", [False, None])
def test_a_driver_or_a_device_without_the_counters_is_asked_once(supported: bool | None) -> None:
    library = FakeGpm(supported)
    activity = DeviceActivity(library, "a device")
    assert activity.means() == {} and activity.means() == {} and library.taken == 0


def test_a_busy_device_tells_how_busy_it_is() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    try:
        supported = pynvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice
    except pynvml.NVMLError:
        supported = 0
    if not supported:
        pytest.skip("this driver or device has no GPM counters")
    activity = DeviceActivity(pynvml, handle)
    left = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    found: dict[str, float] = {}

    def is_busy() -> bool:
        for _ in range(4000):  # much longer than the pause between two looks
            left @ left
        torch.cuda.synchronize()
        found.update(activity.means())
        return found.get("system/device_sm_active_pct", 0.0) > 50

    until(is_busy)
    assert found["system/device_sm_active_pct"] <= 100 and found["system/device_tensor_active_pct"] > 1
    print(found)
