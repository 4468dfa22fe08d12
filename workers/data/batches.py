"""Batches of one rank: its share of each global batch, from any position on. Pure.

Holds: the shares of a global batch, put one after another, are the same samples in the same order for any number of shares. What is left
out is of no batch; a pass has the others as if it were so much shorter.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.order import Order, Positions
from trainhouse.workers.data.skips import Skips

Last = Literal["drop", "pad"] | None
AT_ONCE = 2048
"""Most positions that are computed together, so that one batch costs little; a bound of the memory."""


@dataclass(frozen=True)
class Cursor:
    """Position of the next sample: a data pass, and how many positions of it were used."""

    data_pass: int = 0
    position: int = 0


@dataclass(frozen=True, slots=True)
class Span:
    """Positions of one batch, counted through the passes. `padded`: those beyond the pass are the same pass's, from its beginning again."""

    begin: int
    positions: int
    padded: bool = False


@dataclass(frozen=True)
class Share:
    """Number of an equal share, of `size`, of each batch of `batch` samples."""

    batch: int
    rank: int = 0
    size: int = 1

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise InvalidDataError(f"batch={self.batch}: give at least 1")
        if self.batch % self.size:
            raise InvalidDataError(
                f"a batch of {self.batch} samples does not divide over {self.size} data ranks: it is the batch of all data ranks; "
                f"take a multiple of {self.size}"
            )

    @property
    def of_rank(self) -> int:
        """Samples of one share."""
        return self.batch // self.size


class Batches:
    """Batches of one share of an order. `last`: what becomes of the batch that a pass does not fill; None: it runs over into the next."""

    def __init__(self, order: Order, share: Share, last: Last = None) -> None:
        self._order, self._share, self._last = order, share, last
        self.skips = Skips()
        """Positions that are left out."""
        if last not in (None, "drop", "pad"):
            raise InvalidDataError(f"last={last!r}: give 'drop', 'pad' or None, which runs over into the next pass")
        if order.samples < share.size:
            raise InvalidDataError(f"the dataset has {order.samples} samples and the gang {share.size} data ranks: take fewer ranks")
        if last == "drop" and order.samples < share.batch:
            raise InvalidDataError(
                f"the dataset has {order.samples} samples, so last='drop' would drop every batch of {share.batch}: take a smaller batch"
            )

    @property
    def rank(self) -> int:
        """Number of the share."""
        return self._share.rank

    @property
    def of_rank(self) -> int:
        """Samples of the share of a batch."""
        return self._share.of_rank

    def begin(self, cursor: Cursor) -> Cursor:
        """Beginning of the batch at `cursor`: there, behind what is left out, or in the next pass."""
        samples, needed = self._order.samples, self._share.batch if self._last == "drop" else 1
        if self._last is None and self._skipping(cursor):
            at = cursor.data_pass * samples + cursor.position
            return Cursor(*divmod(self.skips.place(self.skips.remaining(at)), samples))
        while self._skipping(cursor):
            skips = self._of_pass(cursor.data_pass)
            before = skips.remaining(cursor.position)
            if skips.remaining(samples) - before >= needed:
                return Cursor(cursor.data_pass, skips.place(before))
            cursor = Cursor(cursor.data_pass + 1, 0)
        return cursor if cursor.position + needed <= samples else Cursor(cursor.data_pass + 1, 0)

    def after(self, cursor: Cursor) -> Cursor:
        """The cursor after the batch at `cursor`."""
        begun, samples, batch = self.begin(cursor), self._order.samples, self._share.batch
        if self._last is None:
            begin = begun.data_pass * samples + begun.position
            end = self._end(self.skips, begin) if self._skipping(begun) else begin + batch
            return Cursor(*divmod(end, samples))
        end = begun.position + batch
        if self._skipping(begun):
            skips = self._of_pass(begun.data_pass)
            fits = skips.remaining(begun.position) + batch <= skips.remaining(samples)
            end = self._end(skips, begun.position) if fits else samples
        return self.begin(Cursor(begun.data_pass, min(end, samples)))

    def _end(self, skips: Skips, begin: int) -> int:
        """The position after the last one of a batch."""
        return skips.place(skips.remaining(begin) + self._share.batch - 1) + 1

    def _skipping(self, cursor: Cursor) -> bool:
        """Whether anything is left out in the cursor's pass or later, or, where no batch looks back, from the cursor on."""
        position = cursor.position if self._last is None else 0
        return cursor.data_pass * self._order.samples + position < self.skips.end

    def _of_pass(self, data_pass: int) -> Skips:
        return self.skips.within(data_pass * self._order.samples, (data_pass + 1) * self._order.samples)

    def _places(self, begun: Cursor, offsets: Positions) -> tuple[Positions, Positions]:
        """Passes and positions of some places of the batch at `begun`, near to what is left out."""
        samples = self._order.samples
        if self._last is None:
            begin = begun.data_pass * samples + begun.position
            return np.divmod(self.skips.places(self.skips.remaining(begin) + offsets), samples)
        skips = self._of_pass(begun.data_pass)
        numbers = (skips.remaining(begun.position) + offsets) % skips.remaining(samples)
        return np.full_like(offsets, begun.data_pass), skips.places(numbers)

    def spans(self, cursor: Cursor) -> list[Span]:
        """Positions of the whole batch at `cursor`, of all shares: one span, unless something within it is left out."""
        begun, samples, batch = self.begin(cursor), self._order.samples, self._share.batch
        begin = begun.data_pass * samples + begun.position
        padded = self._last is not None and begun.position + batch > samples
        if not self._skipping(begun):
            return [Span(begin, batch, padded)]
        passes, positions = self._places(begun, np.arange(batch, dtype=np.int64))
        counted = passes * samples + positions
        breaks = np.flatnonzero(np.diff(counted) != 1) + 1
        return [Span(int(run[0]), len(run)) for run in np.split(counted, breaks)]

    def indices(self, cursor: Cursor) -> Iterator[list[int]]:
        """Yields the indices of each batch's share from `cursor` on, without end."""
        of_rank, samples = self._share.of_rank, self._order.samples
        offsets = self._share.rank * of_rank + np.arange(of_rank, dtype=np.int64)
        most = max(1, AT_ONCE // of_rank)
        together = 1  # twice as many each time: the first batch comes at once, and no more is computed in vain than was used
        while True:
            passes, positions = np.empty(together, np.int64), np.empty(together, np.int64)
            near: list[tuple[int, Cursor]] = []
            for number in range(together):
                begun = self.begin(cursor)
                passes[number], positions[number] = begun.data_pass, begun.position
                if self._skipping(begun):
                    near.append((number, begun))
                cursor = self.after(begun)
            over, at = np.divmod(positions[:, None] + offsets, samples)
            data_pass = passes[:, None] + (over if self._last is None else 0)  # padded from the beginning of the same pass
            data_pass = np.broadcast_to(data_pass, at.shape)
            if near:
                data_pass = data_pass.copy()
                for number, begun in near:
                    data_pass[number], at[number] = self._places(begun, offsets)
            indices = self._order.indices(data_pass.ravel(), at.ravel())
            yield from (row.tolist() for row in indices.reshape(at.shape))
            together = min(2 * together, most)
