"""Devices behind one port: cpu slots and NVML under one suite, NVML over a library of the same surface as pynvml."""

import inspect
from types import SimpleNamespace

import pynvml
import pytest

from trainhouse.workers.agent.node.devices import CpuSlots, DeviceSource
from trainhouse.workers.agent.node.nvml import NvmlDevices, device_type, discover


class FakeNvml:
    """Two H200 joined by NVLink; the second says nothing of ECC and power. Names and results are pynvml's."""

    NVMLError = pynvml.NVMLError
    NVML_FEATURE_ENABLED = pynvml.NVML_FEATURE_ENABLED
    NVML_NVLINK_DEVICE_TYPE_SWITCH = pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
    NVML_TEMPERATURE_GPU = pynvml.NVML_TEMPERATURE_GPU
    NVML_CLOCK_SM = pynvml.NVML_CLOCK_SM
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    NVML_MEMORY_ERROR_TYPE_CORRECTED = pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED
    NVML_VOLATILE_ECC = pynvml.NVML_VOLATILE_ECC

    def __init__(self, count: int = 2, links: str = "direct") -> None:
        self._count, self._links = count, links

    def nvmlInit(self) -> None:
        if self._count < 0:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    def nvmlDeviceGetCount(self) -> int:
        return self._count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-0000000{handle}-aaaa-bbbb-cccc-dddddddddddd"

    def nvmlDeviceGetName(self, handle: int) -> str:
        return "NVIDIA H200"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(total=150 * 2**30, used=2**30, free=149 * 2**30)

    def nvmlDeviceGetEccMode(self, handle: int) -> list[int]:
        self._only_first(handle)
        return [1, 1]

    def nvmlDeviceGetPciInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(domain=0, bus=16 + handle, device=0)

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:
        if link >= 2:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return int(self._links != "none")

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: int, link: int) -> int:
        return int(pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH if self._links == "switch" else pynvml.NVML_NVLINK_DEVICE_TYPE_GPU)

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: int, link: int) -> SimpleNamespace:
        return SimpleNamespace(domain=0, bus=200 if self._links == "switch" else 17 - handle, device=0)

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        self._only_first(handle)
        return 123_456

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:
        return 0x04 if handle == 0 else 0x40

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(gpu=87, memory=10)

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        return 61

    def nvmlDeviceGetClockInfo(self, handle: int, clock: int) -> int:
        return 1980

    def nvmlDeviceGetMaxClockInfo(self, handle: int, clock: int) -> int:
        self._only_first(handle)
        return 2010

    def nvmlDeviceGetTotalEccErrors(self, handle: int, kind: int, counter: int) -> int:
        return 7 if kind == self.NVML_MEMORY_ERROR_TYPE_CORRECTED else 0

    def _only_first(self, handle: int) -> None:
        if handle:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


@pytest.fixture(params=["cpu", "nvml", "real"])
def source(request: pytest.FixtureRequest) -> DeviceSource:
    if request.param == "cpu":
        return CpuSlots("n1", 3)
    found = discover(FakeNvml() if request.param == "nvml" else None)
    if found is None:
        pytest.skip("this machine has no accelerator")
    return found


def test_devices_have_distinct_ids_and_indices(source: DeviceSource) -> None:
    devices = source.devices()
    assert devices == source.devices() and [d.index for d in devices] == list(range(len(devices)))
    assert len({d.device_id for d in devices}) == len(devices) > 0
    known = {d.device_id for d in devices}
    assert all(set(d.nvlink_peers) <= known - {d.device_id} for d in devices)


def test_health_is_of_the_same_devices(source: DeviceSource) -> None:
    assert [h.device_id for h in source.health()] == [d.device_id for d in source.devices()]


def test_the_fake_has_the_librarys_surface() -> None:
    for name, member in inspect.getmembers(FakeNvml, inspect.isfunction):
        if name.startswith("nvml"):
            real = getattr(pynvml, name)
            ours = [p for p in inspect.signature(member).parameters if p != "self"]
            required = [
                n for n, p in inspect.signature(real).parameters.items() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD
            ]
            assert len(ours) >= len(required), name


def test_what_the_driver_says() -> None:
    found = discover(FakeNvml())
    assert found is not None and found.accelerators
    first, second = found.devices()
    assert first.type == "nvidia-h200" and first.memory_bytes == 150 * 2**30
    assert first.ecc_enabled is True and second.ecc_enabled is None
    assert first.nvlink_peers == (second.device_id,)
    one, two = found.health()
    assert (one.power_w, two.power_w) == (123.456, None) and (one.throttled, two.throttled) == (False, True)
    assert (one.max_sm_clock_mhz, two.max_sm_clock_mhz, one.ecc_corrected) == (2010.0, None, 7)
    assert (one.utilization_pct, one.temperature_c, one.sm_clock_mhz, one.ecc_uncorrected) == (87.0, 61.0, 1980.0, 0)


def test_peers_by_switch_and_none() -> None:
    switched = NvmlDevices(FakeNvml(count=4, links="switch"))
    assert all(len(d.nvlink_peers) == 3 for d in switched.devices())
    assert all(not d.nvlink_peers for d in NvmlDevices(FakeNvml(links="none")).devices())


def test_no_driver_or_no_device_is_none() -> None:
    assert discover(FakeNvml(count=-1)) is None and discover(FakeNvml(count=0)) is None
    assert device_type("Tesla V100-SXM2-16GB") == "tesla-v100-sxm2-16gb"
