"""Positions that an order leaves out, and how those that remain are counted. Pure.

Holds: ranges are sorted, disjoint and not empty; the remaining positions keep their order.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from trainhouse.workers.data.order import Positions


@dataclass(frozen=True, slots=True)
class Skips:
    """Ranges from a position up to another, which is not in it, counted through the passes."""

    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, ranges: Iterable[tuple[int, int]]) -> "Skips":
        """Ranges in any order, which may overlap."""
        merged: list[tuple[int, int]] = []
        for begin, end in sorted((begin, end) for begin, end in ranges if begin < end):
            if merged and begin <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((begin, end))
        return cls(tuple(merged))

    def __bool__(self) -> bool:
        return bool(self.ranges)

    @property
    def end(self) -> int:
        """The position from which on nothing is left out."""
        return self.ranges[-1][1] if self.ranges else 0

    def and_also(self, others: Iterable[tuple[int, int]]) -> "Skips":
        """These and others."""
        return Skips.of((*self.ranges, *others))

    def within(self, begin: int, end: int) -> "Skips":
        """Their parts from `begin` up to `end`, counted from `begin`."""
        return Skips.of((max(first, begin) - begin, min(last, end) - begin) for first, last in self.ranges)

    def remaining(self, position: int) -> int:
        """The number of positions before this one that are not left out."""
        return position - sum(min(end, position) - begin for begin, end in self.ranges if begin < position)

    def place(self, number: int) -> int:
        """The position that so many of the remaining ones come before."""
        return int(self.places(np.array([number], np.int64))[0])

    def places(self, numbers: Positions) -> Positions:
        """As `place`, of several."""
        found = numbers
        for begin, end in self.ranges:
            found = np.where(found >= begin, found + (end - begin), found)
        return found
