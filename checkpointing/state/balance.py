"""Distribution of replicated state over the ranks that write it. Pure.

Holds: every item is written by exactly one of the ranks that have it; the answer depends on nothing but the arguments, whatever
their order. Longest-processing-time rule (Graham 1969): the largest item first, to the least loaded rank; at most 4/3 of the best.
"""

import heapq
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

MAX_PIECE_BYTES = 32 * 2**20
MIN_PIECE_BYTES = 256 * 2**10
K = TypeVar("K", bound=Hashable)


def split_rows(shape: Sequence[int], item_bytes: int, ranks: int) -> list[tuple[int, int]]:
    """`(first row, rows)` of pieces along dimension 0: about one a rank, no larger than MAX_PIECE_BYTES where rows allow it.

    A tensor smaller than MIN_PIECE_BYTES a rank is cut into fewer pieces. Without rows there is one piece, `(0, rows)`.
    """
    if not shape or shape[0] <= 1:
        return [(0, shape[0] if shape else 0)]
    total = item_bytes
    for size in shape:
        total *= size
    target = min(MAX_PIECE_BYTES, max(MIN_PIECE_BYTES, -(-total // max(1, ranks))))
    pieces = min(shape[0], -(-total // target)) if total else 1
    base, extra = divmod(shape[0], pieces)
    cuts, start = [], 0
    for piece in range(pieces):
        rows = base + (1 if piece < extra else 0)
        cuts.append((start, rows))
        start += rows
    return cuts


def share(holders: Mapping[K, Sequence[int]], size_bytes: Mapping[K, int], order: Mapping[K, Hashable]) -> dict[K, int]:
    """Assigns each item to the rank that writes it. `holders`: the ranks that have it; `order`: a sortable name that breaks ties."""
    load: dict[int, int] = {}
    written_by: dict[K, int] = {}
    everywhere = _Heap()
    items = sorted(holders, key=lambda item: (len(holders[item]) > 1, -size_bytes[item], order[item]))
    for item in items:
        ranks = holders[item]
        rank = ranks[0] if len(ranks) == 1 else everywhere.least(ranks, load)
        written_by[item] = rank
        load[rank] = load.get(rank, 0) + max(1, size_bytes[item])
        everywhere.changed(rank, load[rank])
    return written_by


class _Heap:
    """The least loaded of a set of ranks: by a heap where the set is the usual one, else by looking."""

    def __init__(self) -> None:
        self._ranks: tuple[int, ...] = ()
        self._heap: list[tuple[int, int]] = []

    def least(self, ranks: Sequence[int], load: Mapping[int, int]) -> int:
        if tuple(ranks) != self._ranks:
            self._ranks = tuple(ranks)
            self._heap = [(load.get(rank, 0), rank) for rank in ranks]
            heapq.heapify(self._heap)
        while self._heap[0][0] != load.get(self._heap[0][1], 0):
            heapq.heappop(self._heap)
        return self._heap[0][1]

    def changed(self, rank: int, load: int) -> None:
        if rank in self._ranks:
            heapq.heappush(self._heap, (load, rank))
