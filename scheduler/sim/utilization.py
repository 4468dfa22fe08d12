"""Measurements of a simulation over time: devices in use and in service, jobs waiting, and the devices that they ask for.

Holds: integrals are exact; the timeline has at most so many points of equal width, each the mean over its time: when it is full,
neighbours are joined. Times are whole seconds, never going back.
"""

from trainhouse.scheduler.sim.types import Point

Sums = list[int]
"""Integrals over one width: busy (thousandths of devices), in service (thousandths), waiting, asked (thousandths)."""


class Meter:
    """Set the four levels after `to(now_s)`."""

    __slots__ = ("_first_s", "_last_s", "_most", "_sums", "_until_s", "_width_s", "asked", "busy", "served", "waiting")

    def __init__(self, first_s: int, points: int) -> None:
        self.busy = self.served = self.waiting = self.asked = 0
        self._first_s = self._last_s = first_s
        self._most = max(2, points)
        self._width_s = 1
        self._sums: list[Sums] = [[0, 0, 0, 0]]
        self._until_s = first_s + 1
        """Where the last of the widths ends."""

    def to(self, now_s: int) -> None:
        """Counts the levels until now."""
        if now_s <= self._last_s:
            return
        while (now_s - self._first_s - 1) // self._width_s >= self._most:
            self._join()
        while now_s > self._until_s:
            self._add(self._until_s)
            self._sums.append([0, 0, 0, 0])
            self._until_s += self._width_s
        self._add(now_s)

    def _add(self, until_s: int) -> None:
        """The levels until a time within the last width."""
        here, span_s = self._sums[-1], until_s - self._last_s
        here[0] += self.busy * span_s
        here[1] += self.served * span_s
        here[2] += self.waiting * span_s
        here[3] += self.asked * span_s
        self._last_s = until_s

    def _join(self) -> None:
        pairs = [self._sums[i : i + 2] for i in range(0, len(self._sums), 2)]
        self._sums = [[sum(column) for column in zip(*pair, strict=True)] for pair in pairs]
        self._width_s *= 2
        self._until_s = self._first_s + len(self._sums) * self._width_s

    @property
    def busy_gpu_s(self) -> float:
        """Device-seconds in use so far."""
        return sum(sums[0] for sums in self._sums) / 1000

    @property
    def open_gpu_s(self) -> float:
        """Device-seconds in service so far."""
        return sum(sums[1] for sums in self._sums) / 1000

    def points(self) -> list[Point]:
        """The timeline so far."""
        out = []
        for at, (busy, served, waiting, asked) in enumerate(self._sums):
            from_s = self._first_s + at * self._width_s
            to_s = min(from_s + self._width_s, self._last_s)
            width = to_s - from_s
            if width <= 0:  # no time has passed at all
                break
            out.append(Point(from_s, to_s, busy / width / 1000, served / width / 1000, waiting / width, asked / width / 1000))
        return out
