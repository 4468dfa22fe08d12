"""Accelerators as NVIDIA's management library sees them.

Holds: a field that the driver does not tell is None, never a guess; NVML is opened once and stays open.
Never: changes a setting of a device.
"""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import structlog

from trainhouse.events import Device, DeviceHealth, DeviceId

MAX_NVLINKS = 18
THROTTLE_REASONS = 0x08 | 0x20 | 0x40 | 0x80  # slowdowns by hardware, and by heat in hardware or software; not by power caps
OF_DRIVER = (
    "/dev/nvidiactl",
    "/dev/nvidia-uvm",
    "/dev/nvidia-uvm-tools",
    "/dev/nvidia-modeset",
    "/dev/nvidia-caps-imex-channels",
    "/dev/infiniband",
    "/dev/gdrdrv",
)
T = TypeVar("T")
log = structlog.get_logger(__name__)


def discover(library: Any = None) -> "NvmlDevices | None":
    """All devices, or None where there is no driver or no device. `library` has pynvml's surface; pynvml by default."""
    if library is None:
        import pynvml as library  # type: ignore[no-redef]
    try:
        library.nvmlInit()
        return NvmlDevices(library) if library.nvmlDeviceGetCount() else None
    except library.NVMLError as error:
        log.info("no accelerators", reason=str(error))
        return None


class NvmlDevices:
    """The node's accelerators."""

    accelerators = True

    def __init__(self, library: Any) -> None:
        self._nvml = library
        self._handles = [library.nvmlDeviceGetHandleByIndex(i) for i in range(library.nvmlDeviceGetCount())]
        self._ids = [DeviceId.parse(_text(library.nvmlDeviceGetUUID(h))) for h in self._handles]
        self._max_clocks = [self._best_clock(h) for h in self._handles]
        self._devices = tuple(self._device(i) for i in range(len(self._handles)))

    def devices(self) -> tuple[Device, ...]:
        """By index."""
        return self._devices

    def health(self) -> tuple[DeviceHealth, ...]:
        """Returns the driver's current state: some ms a device."""
        return tuple(self._health(i) for i in range(len(self._handles)))

    def nodes(self, device_id: str) -> tuple[str, ...]:
        """Its own, and those of the driver for all. Without the device's number, those for all only."""
        handle = next((h for h, i in zip(self._handles, self._ids, strict=True) if str(i) == device_id), None)
        minor = None if handle is None else self._ask(lambda: int(self._nvml.nvmlDeviceGetMinorNumber(handle)))
        return (*OF_DRIVER, *(() if minor is None else (f"/dev/nvidia{minor}",)))

    def _device(self, index: int) -> Device:
        handle, nvml = self._handles[index], self._nvml
        memory = self._ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total)
        ecc = self._ask(lambda: bool(nvml.nvmlDeviceGetEccMode(handle)[0]))
        return Device(
            device_id=self._ids[index],
            index=index,
            type=device_type(_text(nvml.nvmlDeviceGetName(handle))),
            memory_bytes=memory or 0,
            nvlink_peers=self._peers(index),
            ecc_enabled=ecc,
        )

    def _peers(self, index: int) -> tuple[DeviceId, ...]:
        """Devices of this node at the other end of an active NVLink, directly or (all of them) through a switch."""
        handle, nvml = self._handles[index], self._nvml
        by_bus = {_bus(nvml.nvmlDeviceGetPciInfo(h)): i for i, h in enumerate(self._handles)}
        found: set[int] = set()
        for link in range(MAX_NVLINKS):
            if self._ask(lambda link=link: nvml.nvmlDeviceGetNvLinkState(handle, link)) != nvml.NVML_FEATURE_ENABLED:  # type: ignore[misc]
                continue
            if self._ask(lambda link=link: nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)) == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:  # type: ignore[misc]
                found.update(range(len(self._handles)))
            remote = self._ask(lambda link=link: _bus(nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link)))  # type: ignore[misc]
            if remote in by_bus:
                found.add(by_bus[remote])
        return tuple(self._ids[i] for i in sorted(found - {index}))

    def _health(self, index: int) -> DeviceHealth:
        handle, nvml = self._handles[index], self._nvml
        power_mw = self._ask(lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        reasons = self._ask(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
        return DeviceHealth(
            device_id=self._ids[index],
            utilization_pct=self._ask(lambda: float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)),
            memory_used_bytes=self._ask(lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).used)),
            temperature_c=self._ask(lambda: float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))),
            power_w=None if power_mw is None else power_mw / 1000,
            sm_clock_mhz=self._ask(lambda: float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))),
            max_sm_clock_mhz=self._max_clocks[index],
            ecc_corrected=self._errors(handle, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
            ecc_uncorrected=self._errors(handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
            throttled=None if reasons is None else bool(reasons & THROTTLE_REASONS),
        )

    def _errors(self, handle: Any, kind: int) -> int | None:
        """Errors of the device's memory since the driver was loaded."""
        return self._ask(lambda: int(self._nvml.nvmlDeviceGetTotalEccErrors(handle, kind, self._nvml.NVML_VOLATILE_ECC)))

    def _best_clock(self, handle: Any) -> float | None:
        return self._ask(lambda: float(self._nvml.nvmlDeviceGetMaxClockInfo(handle, self._nvml.NVML_CLOCK_SM)))

    def _ask(self, question: Callable[[], T]) -> T | None:
        """The driver's answer, or None where it has none for this device."""
        try:
            return question()
        except self._nvml.NVMLError:
            return None


def device_type(name: str) -> str:
    """A product's name as a type that a spec can ask for: `NVIDIA H200` is `nvidia-h200`."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-") or "accelerator"


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _bus(info: Any) -> tuple[int, int, int]:
    return int(info.domain), int(info.bus), int(info.device)
