"""Journal time of one partition: the last journal time plus the steady clock's time since.

Holds: deciding processes advance it by their steady clock alone, so a step of a wall clock moves it not at all and freezes nothing. Its
drift is the median of three clocks (its own, the owner's wall clock, the brokers' append times): where only one of the other two is off, it
stays; where both are off to one side, it runs at most `SLEW` faster or slower until the nearer one agrees. So a deadline moves by at most
`SLEW` of its length. A process that followed the journal takes over without a look at any wall clock; one that just started takes the time
that passed from the brokers (append time of its claim, less that of the last record with a newer time) or from its own clock, the shorter
one: a clock that stepped ahead meanwhile fires nothing early; only if both did, it looks as if the partition had been down for so long.
Never: reads a clock; goes back.
"""

from dataclasses import dataclass

TOLERANCE_MS = 5_000
"""A difference from which on a clock is reported as off."""
SLEW = 0.05
# What one correction may make up for, however long ago the last one was.
_MOST_S = 60.0


@dataclass(slots=True)
class LogTime:
    """Journal time as this process knows it. `anchored`: exactly, by records that it saw come or by its own."""

    anchored: bool = False
    clock_off_ms: int = 0
    broker_off_ms: int = 0
    # Journal time less the steady clock's.
    _offset_ms: float | None = None
    _corrected_s: float = 0.0

    def now_ms(self, steady_s: float) -> int:
        """Journal time at an instant of the steady clock."""
        return int((self._offset_ms or 0.0) + steady_s * 1000)

    def follow(self, now_ms: int, steady_s: float, *, live: bool) -> None:
        """A record with a newer time was read: journal time is at least that. `live`: it came after this process had read all."""
        seen_ms = now_ms - steady_s * 1000
        if self._offset_ms is None or not self.anchored:
            self._offset_ms = seen_ms if self._offset_ms is None else max(seen_ms, self._offset_ms)
        else:
            # What was read fastest is the nearest; its owner may have slowed down since.
            self._offset_ms = max(seen_ms, self._offset_ms - self._most_ms(steady_s))
        self.anchored = self.anchored or live
        self._corrected_s = steady_s

    def resume(self, now_ms: int, timed_ms: int, claimed_ms: int, clock_ms: int, steady_s: float) -> None:
        """A process that was not there takes over. `now_ms`: the last journal time; other arguments as in `elapsed_ms`."""
        if not self.anchored:
            resumed_ms = now_ms + elapsed_ms(timed_ms or now_ms, claimed_ms, clock_ms) if now_ms else _begin_ms(claimed_ms, clock_ms)
            self.follow(resumed_ms, steady_s, live=True)

    def observe(self, sent_s: float, acked_s: float, appended_ms: int, clock_ms: int) -> bool:
        """Compares the clocks after an own append; True when one is off that was not, or no longer. A negative append time is unknown."""
        before = self.off
        early_ms, late_ms = self.now_ms(sent_s), self.now_ms(acked_s)
        known = appended_ms >= 0
        self.broker_off_ms = min(appended_ms - early_ms, 0) or max(appended_ms - late_ms, 0) if known else 0
        self.clock_off_ms = clock_ms - late_ms
        most_ms = self._most_ms(acked_s)
        median_ms = sorted((0, self.broker_off_ms, self.clock_off_ms))[1]
        self._offset_ms = (self._offset_ms or 0.0) + min(max(median_ms, -most_ms), most_ms)
        self._corrected_s = acked_s
        return before != self.off

    @property
    def off(self) -> tuple[bool, bool]:
        """Whether the owner's wall clock and the brokers' differ by more than the tolerance."""
        return abs(self.clock_off_ms) > TOLERANCE_MS, abs(self.broker_off_ms) > TOLERANCE_MS

    def _most_ms(self, steady_s: float) -> float:
        return SLEW * 1000 * min(max(0.0, steady_s - self._corrected_s), _MOST_S)


def elapsed_ms(timed_ms: int, claimed_ms: int, clock_ms: int) -> int:
    """The time since the last record, as a process that was not there finds it: the shorter of what the brokers' clock and its own say.

    `timed_ms`, `claimed_ms`: append times of the last record with a newer journal time and of the own claim, negative where unknown. A
    clock that says that time went back is off, and does not count.
    """
    known = ([claimed_ms - timed_ms] if claimed_ms >= 0 else []) + [clock_ms - timed_ms]
    return max(0, min((passed for passed in known if passed >= -TOLERANCE_MS), default=0))


def _begin_ms(claimed_ms: int, clock_ms: int) -> int:
    """Returns the begin of an empty journal's time: the log's own time, or the clock's if there is none."""
    return claimed_ms if claimed_ms >= 0 else clock_ms
