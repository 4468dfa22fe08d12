"""Clocks: the wall clock, the steady one, and a wall clock without steps.

Holds: a `SteadyWall` goes on by the steady clock, at most `SLEW` faster or slower until it agrees with the wall clock again; so a wall
clock that is set moves a deadline of this process by at most `SLEW` of its length. Safe to share by threads.
"""

import threading
import time
from collections.abc import Callable

SLEW = 0.05
# Counts while the machine is suspended, where there is such a clock; the same for all processes of a machine.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def steady_s() -> float:
    """Seconds of a clock that never goes back and that nobody sets."""
    return time.clock_gettime(_STEADY)


def wall_ms() -> int:
    """Milliseconds since 1970 by the machine's wall clock."""
    return time.time_ns() // 1_000_000


class SystemClock:
    """The wall clock and the steady one, as a shell takes them."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
        return wall_ms()

    def steady_s(self) -> float:
        """Seconds of a clock that never goes back, and counts while the machine is suspended."""
        return steady_s()


class SteadyWall:
    """A clock of the day, in milliseconds since 1970, that begins with the wall clock's time."""

    def __init__(self, wall_ms: Callable[[], int] = wall_ms, steady_s: Callable[[], float] = steady_s) -> None:
        self._wall_ms = wall_ms
        self._steady_s = steady_s
        self._lock = threading.Lock()
        self._at_s = steady_s()
        self._at_ms = float(wall_ms())

    def __call__(self) -> int:
        """Now; never less than before."""
        with self._lock:
            now_s = self._steady_s()
            passed_ms = max(0.0, now_s - self._at_s) * 1000
            off_ms = self._wall_ms() - (self._at_ms + passed_ms)
            self._at_s = now_s
            self._at_ms += passed_ms + min(max(off_ms, -SLEW * passed_ms), SLEW * passed_ms)
            return int(self._at_ms)
