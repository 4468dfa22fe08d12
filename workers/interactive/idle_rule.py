"""Rule by which an interactive session is idle: no bytes between it and its users, no work of its processors or devices.

Holds: pure; time comes with each observation. An attached terminal alone is no activity: what is typed or printed is. Time without
observations counts as idle only from the last one on.
"""

from dataclasses import dataclass
from typing import Final

BUSY_CORES: Final = 0.1
"""Average use of processors, in cores, from which a session works: an editor's server that waits uses less."""
WARN_S: Final = 300.0
WARN_SHARE: Final = 0.2
"""A session warns WARN_S before its end, or this share of its limit where that is less."""


@dataclass(frozen=True, slots=True)
class Activity:
    """Observation of a session: bytes and processor seconds since its start, and whether a device works."""

    at_s: float
    traffic_bytes: int = 0
    cpu_s: float = 0.0
    device_busy: bool = False


@dataclass(frozen=True, slots=True)
class Idleness:
    """Seconds without activity; seconds that are left once a warning is due, else None."""

    idle_s: float
    is_over: bool = False
    warned_left_s: float | None = None


class IdleRule:
    """Rule for one session of a limit in seconds."""

    def __init__(self, limit_s: float, began_s: float) -> None:
        self._limit_s = limit_s
        self._warn_at_s = limit_s - min(WARN_S, WARN_SHARE * limit_s)
        self._active_s = began_s
        self._last = Activity(began_s)
        self._warned = False

    def observe(self, now: Activity) -> Idleness:
        """Judges the time up to an observation; gives a warning once for each idle time."""
        last, self._last = self._last, now
        took_s = now.at_s - last.at_s
        works = took_s > 0 and (now.cpu_s - last.cpu_s) / took_s >= BUSY_CORES
        if works or now.device_busy or now.traffic_bytes > last.traffic_bytes:
            self._active_s, self._warned = now.at_s, False
        idle_s = max(0.0, now.at_s - self._active_s)
        if idle_s >= self._limit_s:
            return Idleness(idle_s, is_over=True)
        if idle_s < self._warn_at_s or self._warned:
            return Idleness(idle_s)
        self._warned = True
        return Idleness(idle_s, warned_left_s=self._limit_s - idle_s)
