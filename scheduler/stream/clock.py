"""The machine's clocks, as the shells take them."""

import time

# Counts while the machine is suspended, where there is such a clock.
STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The real ones."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
        return time.time_ns() // 1_000_000

    def steady_s(self) -> float:
        """Seconds of a clock that never goes back."""
        return time.clock_gettime(STEADY)
