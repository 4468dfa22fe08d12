"""Work of a session's processes: seconds of processors since its start, and whether a device is busy.

Holds: this process itself does not count. Processes whose parent ended become children of this one, and so still count.
"""

import ctypes
import os
from contextlib import suppress
from typing import Any, Final

import psutil

BUSY_DEVICE_PCT: Final = 1
_SUBREAPER: Final = 36


class WorkMeter:
    """Meter of the processes below this one."""

    def __init__(self) -> None:
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
        self._own = psutil.Process()
        self._zombies: frozenset[int] = frozenset()
        self._handles: list[Any] | None = None

    def cpu_s(self) -> float:
        """Seconds of processors of all processes below this one, ended ones included. Reads the table of processes."""
        ended = os.times()
        total = ended.children_user + ended.children_system
        for process in self._own.children(recursive=True):
            with suppress(psutil.Error):
                total += sum(process.cpu_times()[:4])
        return total

    def is_device_busy(self) -> bool:
        """Whether a device that this job sees works now; False where there is none."""
        try:
            import pynvml as nvml
        except ImportError:
            return False
        try:
            if self._handles is None:
                self._handles = _handles(nvml)
            return any(nvml.nvmlDeviceGetUtilizationRates(handle).gpu >= BUSY_DEVICE_PCT for handle in self._handles)
        except nvml.NVMLError:
            self._handles = self._handles or []
            return False

    def reap(self) -> None:
        """Collects children that were adopted and ended: those that nothing collected since the call before."""
        found = set()
        for child in self._own.children():
            with suppress(psutil.Error):
                if child.status() == psutil.STATUS_ZOMBIE:
                    found.add(child.pid)
        for pid in self._zombies & found:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        self._zombies = frozenset(found - self._zombies)

    def below(self) -> list[psutil.Process]:
        """Processes below this one."""
        return self._own.children(recursive=True)


def _handles(nvml: Any) -> list[Any]:
    """NVML's handles of the devices that CUDA_VISIBLE_DEVICES names, by UUID or number."""
    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    if not named:
        return []
    nvml.nvmlInit()
    found = []
    for name in named:
        with suppress(nvml.NVMLError):
            found.append(nvml.nvmlDeviceGetHandleByIndex(int(name)) if name.isdecimal() else nvml.nvmlDeviceGetHandleByUUID(name))
    return found
