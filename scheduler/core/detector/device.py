"""One device: errors of its memory, throttling, and a clock that fell.

Holds: a count that went back (a reset, a new driver) is a new beginning, no error. A clock says something only while the device is busy.
"""

from dataclasses import dataclass, field
from typing import Final

from trainhouse.events import DeviceHealth
from trainhouse.events.model.failure_policy import Detection
from trainhouse.scheduler.core.detector.hysteresis import Sustained

BUSY_PCT: Final = 80.0
MAX_RISES: Final = 32


@dataclass(slots=True)
class DeviceWatch:
    """`counted_ms`: since when its errors are counted. `rises`: when their count rose, and by how much, within the window."""

    uncorrected: int | None = None
    counted_ms: int = 0
    rises: list[tuple[int, int]] = field(default_factory=list)
    best_clock_mhz: float = 0.0
    clock_share: float = 1.0
    throttled: Sustained = field(default_factory=Sustained)
    slow: Sustained = field(default_factory=Sustained)


def watch_device(watch: DeviceWatch, health: DeviceHealth, limits: Detection, at_ms: int, seen_ms: int | None) -> None:
    """Takes in a heartbeat. `seen_ms`: as in `Sustained.see`."""
    _errors(watch, health.ecc_uncorrected, limits, at_ms)
    if health.throttled is not None:
        watch.throttled.see(health.throttled, at_ms, seen_ms)
    if health.sm_clock_mhz is None:
        return
    watch.best_clock_mhz = max(watch.best_clock_mhz, health.sm_clock_mhz)
    full_mhz = health.max_sm_clock_mhz or watch.best_clock_mhz
    if full_mhz <= 0 or health.utilization_pct is None:
        return
    if health.utilization_pct >= BUSY_PCT:
        watch.clock_share = health.sm_clock_mhz / full_mhz
        watch.slow.see(watch.clock_share < limits.clock_share, at_ms, seen_ms)
    elif watch.slow.bad:
        watch.slow.held_ms, watch.slow.since_ms = 0, at_ms


def _errors(watch: DeviceWatch, count: int | None, limits: Detection, at_ms: int) -> None:
    if count is None:
        return
    if watch.uncorrected is None or at_ms < watch.counted_ms:
        watch.counted_ms = at_ms
    if watch.uncorrected is not None and count > watch.uncorrected:
        watch.rises.append((at_ms, count - watch.uncorrected))
        if len(watch.rises) > MAX_RISES:
            watch.rises[:2] = [(watch.rises[1][0], watch.rises[0][1] + watch.rises[1][1])]
    watch.uncorrected = count
    while watch.rises and not 0 <= at_ms - watch.rises[0][0] <= 1000 * limits.device_window_s:
        del watch.rises[0]


def error_free(watch: DeviceWatch, limits: Detection, at_ms: int) -> bool:
    """Whether no error came for a whole window in which they were counted."""
    return watch.uncorrected is not None and not watch.rises and at_ms - watch.counted_ms >= 1000 * limits.device_window_s


def new_errors(watch: DeviceWatch) -> int:
    """Uncorrected errors that came within the window."""
    return sum(n for _, n in watch.rises) if watch.rises else 0
