"""An owner's clock, kept within bounds of the log's own.

Holds: the time in a record is within `TOLERANCE_MS` of the time at which the log appended it, whatever the machine's clock says. A clock
that was set since the last append counts as if it had not been, until the log has said which of the two is right: time in a journal never
goes back, so one record an hour ahead would stop all that waits for time (timers, what a project's rate refills) for an hour.
Never: reads a clock.
"""

from dataclasses import dataclass

TOLERANCE_MS = 5_000


@dataclass(slots=True)
class LogTime:
    """Learns from each append how far this machine's clock is off. `correction_ms` is 0 while it is within the tolerance."""

    correction_ms: int = 0
    # The clock at the last append, and the steady one.
    _seen: tuple[int, float] | None = None

    def observe(self, acked_at_ms: int, took_ms: int, appended_at_ms: int, steady_s: float) -> bool:
        """Compares; True when the correction changed by more than the tolerance (tell a person). Unknown append times are negative.

        `took_ms`: by a steady clock, so that one which was set meanwhile is found out.
        """
        if appended_at_ms < 0:
            return False
        before, sent_at_ms = self.correction_ms, acked_at_ms - took_ms
        self._seen = acked_at_ms, steady_s
        if appended_at_ms < sent_at_ms - TOLERANCE_MS:
            self.correction_ms = appended_at_ms - sent_at_ms
        elif appended_at_ms > acked_at_ms + TOLERANCE_MS:
            self.correction_ms = appended_at_ms - acked_at_ms
        else:
            self.correction_ms = 0
        return abs(before - self.correction_ms) > TOLERANCE_MS

    def now_ms(self, clock_ms: int, steady_s: float) -> int:
        """The machine's time, corrected."""
        return clock_ms + self.correction_ms - self._set_by_ms(clock_ms, steady_s)

    def _set_by_ms(self, clock_ms: int, steady_s: float) -> int:
        """By how much the clock was set since the last append; 0 within the tolerance."""
        if self._seen is None:
            return 0
        seen_ms, seen_s = self._seen
        off_ms = clock_ms - seen_ms - round((steady_s - seen_s) * 1000)
        return off_ms if abs(off_ms) > TOLERANCE_MS else 0
