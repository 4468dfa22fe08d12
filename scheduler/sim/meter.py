"""What a simulation measures as time goes on: devices in use and in service, jobs waiting, and what they ask for.

Holds: integrals are exact; the timeline has at most so many points of equal width, each the mean over its time: when it is full,
neighbours are joined. Times are whole seconds, never going back.
"""

from trainhouse.scheduler.sim.types import Point

Sums = list[int]
"""Integrals over one width: busy (thousandths of devices), in service (thousandths), waiting, asked (thousandths)."""


class Meter:
    """Set the four levels after `to(now_s)`."""

    __slots__ = ("_areas", "_first_s", "_last_s", "_most", "_sums", "_width_s", "asked", "busy", "served", "waiting")

    def __init__(self, first_s: int, points: int) -> None:
        self.busy = self.served = self.waiting = self.asked = 0
        self._first_s = self._last_s = first_s
        self._most = max(2, points)
        self._width_s = 1
        self._sums: list[Sums] = []
        self._areas = [0, 0, 0, 0]

    def to(self, now_s: int) -> None:
        """Counts the levels until now."""
        last_s = self._last_s
        if now_s <= last_s:
            return
        levels = (self.busy, self.served, self.waiting, self.asked)
        for i, level in enumerate(levels):
            self._areas[i] += level * (now_s - last_s)
        while (now_s - self._first_s - 1) // self._width_s >= self._most:
            self._join()
        while last_s < now_s:
            at = (last_s - self._first_s) // self._width_s
            until = min(now_s, self._first_s + (at + 1) * self._width_s)
            while len(self._sums) <= at:
                self._sums.append([0, 0, 0, 0])
            here = self._sums[at]
            for i, level in enumerate(levels):
                here[i] += level * (until - last_s)
            last_s = until
        self._last_s = now_s

    def _join(self) -> None:
        pairs = [self._sums[i : i + 2] for i in range(0, len(self._sums), 2)]
        self._sums = [[sum(column) for column in zip(*pair, strict=True)] for pair in pairs]
        self._width_s *= 2

    @property
    def busy_gpu_s(self) -> float:
        """Device-seconds in use so far."""
        return self._areas[0] / 1000

    @property
    def open_gpu_s(self) -> float:
        """Device-seconds in service so far."""
        return self._areas[1] / 1000

    def points(self) -> list[Point]:
        """The timeline so far."""
        out = []
        for at, (busy, served, waiting, asked) in enumerate(self._sums):
            from_s = self._first_s + at * self._width_s
            to_s = min(from_s + self._width_s, self._last_s)
            width = to_s - from_s
            out.append(Point(from_s, to_s, busy / width / 1000, served / width / 1000, waiting / width, asked / width / 1000))
        return out
