"""System metrics of a rank: what its process, its machine and its device are doing, as points beside the program's own.

Holds: a sample costs a few ms and is taken seldom; rates are over the time since the sample before. The first rank of a machine tells of
the machine, each rank of its own process and device. What the driver does not tell is left out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import psutil

from trainhouse.workers.session.logging.device_activity import DeviceActivity


@dataclass(frozen=True)
class Counters:
    """Bytes that the machine has moved since it started, at a time in seconds."""

    at_s: float
    sent: int
    received: int
    read: int
    written: int


def rates(before: Counters, after: Counters) -> dict[str, float]:
    """Bytes a second between two looks; nothing where no time has passed or counters began anew."""
    passed_s = after.at_s - before.at_s
    moved = {
        "system/network_sent_bytes_per_s": after.sent - before.sent,
        "system/network_received_bytes_per_s": after.received - before.received,
        "system/disk_read_bytes_per_s": after.read - before.read,
        "system/disk_written_bytes_per_s": after.written - before.written,
    }
    return {name: change / passed_s for name, change in moved.items() if passed_s > 0 and change >= 0}


class SystemMetrics:
    """Takes samples. Make it in the process that it is to tell of."""

    def __init__(self, local_rank: int, environ: Mapping[str, str]) -> None:
        self._process = psutil.Process()
        self._process.cpu_percent(None)
        self._machine = local_rank == 0
        self._before: Counters | None = None
        self._device = _Device.of(local_rank, environ)
        if self._machine:
            psutil.cpu_percent(None)

    def sample(self, now_s: float) -> dict[str, float]:
        """Points by name, of the time since the sample before. Raises psutil.Error."""
        found = {
            "system/process_cpu_pct": self._process.cpu_percent(None),
            "system/process_memory_bytes": float(self._process.memory_info().rss),
        }
        if self._machine:
            found |= {"system/node_cpu_pct": psutil.cpu_percent(None), "system/node_memory_used_bytes": float(psutil.virtual_memory().used)}
            after = counters(now_s)
            found |= rates(self._before, after) if self._before is not None else {}
            self._before = after
        return found | (self._device.sample() if self._device is not None else {})


def counters(now_s: float) -> Counters:
    """The machine's counters by now; zeros where it has none."""
    network, disk = psutil.net_io_counters(), psutil.disk_io_counters()
    return Counters(
        now_s,
        network.bytes_sent if network else 0,
        network.bytes_recv if network else 0,
        disk.read_bytes if disk else 0,
        disk.write_bytes if disk else 0,
    )


class _Device:
    """This rank's accelerator, by NVIDIA's management library: no context is made on it."""

    def __init__(self, library: Any, handle: Any) -> None:
        self._nvml = library
        self._handle = handle
        self._activity = DeviceActivity(library, handle)

    @classmethod
    def of(cls, local_rank: int, environ: Mapping[str, str]) -> "_Device | None":
        import pynvml

        visible = [d for d in environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if d]
        try:
            pynvml.nvmlInit()
            if local_rank < len(visible) and not visible[local_rank].isdigit():
                return cls(pynvml, pynvml.nvmlDeviceGetHandleByUUID(visible[local_rank]))
            index = int(visible[local_rank]) if local_rank < len(visible) else local_rank
            return cls(pynvml, pynvml.nvmlDeviceGetHandleByIndex(index))
        except pynvml.NVMLError:
            return None

    def sample(self) -> dict[str, float]:
        nvml, handle = self._nvml, self._handle
        asked: dict[str, Callable[[], float]] = {
            "system/device_utilization_pct": lambda: float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
            "system/device_memory_used_bytes": lambda: float(nvml.nvmlDeviceGetMemoryInfo(handle).used),
            "system/device_power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            "system/device_temperature_c": lambda: float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
        }
        found = {}
        for name, question in asked.items():
            try:
                found[name] = question()
            except nvml.NVMLError:
                continue
        return found | self._activity.means()


def interval_of(environ: Mapping[str, str], default_s: float) -> float:
    """Seconds between samples, by TRAINHOUSE_SYSTEM_METRICS_S; 0: none. At least a second."""
    text = environ.get("TRAINHOUSE_SYSTEM_METRICS_S", "")
    try:
        asked_s = float(text) if text else default_s
    except ValueError:
        return default_s
    return max(1.0, asked_s) if 0 < asked_s < 86_400 else 0.0


def environment_wanted(environ: Mapping[str, str]) -> bool:
    """Returns whether the environment is captured: TRAINHOUSE_CAPTURE_ENVIRONMENT=0 turns it off."""
    return environ.get("TRAINHOUSE_CAPTURE_ENVIRONMENT", "1") not in ("0", "false", "no")
