"""Timers of a whole fleet, in one heap.

Holds: things due at the same moment run in the order in which they were set; a cancelled one holds on to nothing, and when most are
cancelled they are thrown out.
Never: reads a clock; the caller says what time it is.
"""

import heapq
from collections.abc import Callable

Due = Callable[[int], None]
MIN_SWEEP = 1_024


class Timer:
    """One thing that is to be done. `cancel` may be called at any time, more than once."""

    __slots__ = ("_do", "_timers", "at_ms")

    def __init__(self, at_ms: int, do: Due, timers: "Timers") -> None:
        self.at_ms = at_ms
        self._do: Due | None = do
        self._timers = timers

    @property
    def waits(self) -> bool:
        """True if it is still to come."""
        return self._do is not None

    def cancel(self) -> None:
        if self._do is not None:
            self._do = None
            self._timers.cancelled += 1

    def take(self) -> Due | None:
        """Returns the callback, once."""
        do, self._do = self._do, None
        return do


class Timers:
    """The heap."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._number = 0
        self.cancelled = 0

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, at_ms: int, do: Due) -> Timer:
        """Calls `do(now_ms)` at the first `run` at or after `at_ms`."""
        timer = Timer(at_ms, do, self)
        self._number += 1
        heapq.heappush(self._heap, (at_ms, self._number, timer))
        if self.cancelled > MIN_SWEEP and self.cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].waits]
            heapq.heapify(self._heap)
            self.cancelled = 0
        return timer

    def next_ms(self) -> int | None:
        """Returns the time of the next timer; None when there is none."""
        while self._heap and not self._heap[0][2].waits:
            heapq.heappop(self._heap)
            self.cancelled = max(0, self.cancelled - 1)
        return self._heap[0][0] if self._heap else None

    def run(self, now_ms: int) -> int:
        """Does all that is due by now, what is set meanwhile included; how many that were."""
        done = 0
        while (due := self.next_ms()) is not None and due <= now_ms:
            do = heapq.heappop(self._heap)[2].take()
            assert do is not None, "next_ms leaves one that waits on top"
            do(now_ms)
            done += 1
        return done
