"""An owner's clock, kept within bounds of the log's own.

Holds: the time in a record is within `TOLERANCE_MS` of the time at which the log appended it, whatever the machine's clock says.
Never: reads a clock.
"""

from dataclasses import dataclass

TOLERANCE_MS = 5_000


@dataclass(slots=True)
class LogTime:
    """Learns from each append how far this machine's clock is off. `correction_ms` is 0 while it is within the tolerance."""

    correction_ms: int = 0

    def observe(self, sent_at_ms: int, acked_at_ms: int, appended_at_ms: int) -> bool:
        """Compares; True when the correction changed by more than the tolerance (tell a person). Unknown append times are negative."""
        if appended_at_ms < 0:
            return False
        before = self.correction_ms
        if appended_at_ms < sent_at_ms - TOLERANCE_MS:
            self.correction_ms = appended_at_ms - sent_at_ms
        elif appended_at_ms > acked_at_ms + TOLERANCE_MS:
            self.correction_ms = appended_at_ms - acked_at_ms
        else:
            self.correction_ms = 0
        return abs(before - self.correction_ms) > TOLERANCE_MS

    def now_ms(self, clock_ms: int) -> int:
        """The machine's time, corrected."""
        return clock_ms + self.correction_ms
