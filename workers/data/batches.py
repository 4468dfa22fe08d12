"""Batches of one rank: its share of each global batch, from any position on. Pure.

Holds: the shares of a global batch, put one after another, are the same samples in the same order for any number of shares.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.order import Order

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
        """Beginning of the batch at `cursor`: there, or the next pass."""
        used = cursor.position + (self._share.batch - 1 if self._last == "drop" else 0)
        return cursor if used < self._order.samples else Cursor(cursor.data_pass + 1, 0)

    def after(self, cursor: Cursor) -> Cursor:
        """The cursor after the batch at `cursor`."""
        begun = self.begin(cursor)
        end = begun.position + self._share.batch
        if self._last is None:
            more, end = divmod(end, self._order.samples)
            return Cursor(begun.data_pass + more, end)
        return self.begin(Cursor(begun.data_pass, end))

    def span(self, cursor: Cursor) -> Span:
        """Positions of the whole batch at `cursor`, of all shares."""
        begun, samples = self.begin(cursor), self._order.samples
        padded = self._last is not None and begun.position + self._share.batch > samples
        return Span(begun.data_pass * samples + begun.position, self._share.batch, padded)

    def indices(self, cursor: Cursor) -> Iterator[list[int]]:
        """Yields the indices of each batch's share from `cursor` on, without end."""
        of_rank, samples = self._share.of_rank, self._order.samples
        offsets = self._share.rank * of_rank + np.arange(of_rank, dtype=np.int64)
        most = max(1, AT_ONCE // of_rank)
        together = 1  # twice as many each time: the first batch comes at once, and no more is computed in vain than was used
        while True:
            passes, positions = np.empty(together, np.int64), np.empty(together, np.int64)
            for number in range(together):
                begun = self.begin(cursor)
                passes[number], positions[number] = begun.data_pass, begun.position
                cursor = self.after(begun)
            over, at = np.divmod(positions[:, None] + offsets, samples)
            data_pass = passes[:, None] + (over if self._last is None else 0)  # padded from the beginning of the same pass
            data_pass = np.broadcast_to(data_pass, at.shape)
            indices = self._order.indices(data_pass.ravel(), at.ravel())
            yield from (row.tolist() for row in indices.reshape(at.shape))
            together = min(2 * together, most)
