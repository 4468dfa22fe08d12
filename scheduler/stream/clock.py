"""The machine's clocks, as the shells take them."""

from trainhouse.events.runtime.clock import steady_s, wall_ms


class SystemClock:
    """The real ones."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
        return wall_ms()

    def steady_s(self) -> float:
        """Seconds of a clock that never goes back, and counts while the machine is suspended."""
        return steady_s()
