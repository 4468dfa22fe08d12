"""Victims in the order in which waiting gangs come to lead them: whom a gang is ahead of, and how many devices those have.

Each victim has a rank, each waiting gang a bound (`standing` says both): the gang leads those of at most that rank. One search in a sorted
list shows that a gang leads none, or none with enough devices.

Holds: a victim is named by its ordinal; after `drop` all is as if the victim had never been there.
Never: judges anything but ranks.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate


class Reach:
    """`ranks` and `milli` (thousandths of devices) by ordinal."""

    __slots__ = ("_milli", "_order", "_ranks", "_sums")

    def __init__(self, ranks: Sequence[int], milli: Sequence[int]) -> None:
        self._milli = milli
        self._order = sorted(range(len(ranks)), key=ranks.__getitem__)
        self._ranks = [ranks[i] for i in self._order]
        self._sums = list(accumulate((milli[i] for i in self._order), initial=0))

    def milli(self, bound: int) -> int:
        """Thousandths of devices that victims up to a rank have."""
        return self._sums[bisect_right(self._ranks, bound)]

    def behind(self, bound: int) -> list[int]:
        """The victims up to a rank, in order of their ordinals."""
        return sorted(self._order[: bisect_right(self._ranks, bound)])

    def drop(self, ordinals: Iterable[int]) -> None:
        """These are victims no more."""
        gone = frozenset(ordinals)
        kept = [at for at, i in enumerate(self._order) if i not in gone]
        self._ranks = [self._ranks[at] for at in kept]
        self._order = [self._order[at] for at in kept]
        self._sums = list(accumulate((self._milli[i] for i in self._order), initial=0))
