"""Plans of the files of an export: which bytes are known at once, and where pieces of tensors go.

Holds: a file's size and every place in it are known before the first byte is read, so that pieces may be written in any order. Pure.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from trainhouse.checkpointing.chain.manifest import Piece, Span, TensorRecord


@dataclass(frozen=True)
class Placed:
    """A piece of a tensor (named `tensor`), and its place in a row-major box of `shape` that begins at byte `start` of a file."""

    tensor: str
    piece: Piece
    item_bytes: int
    start: int
    shape: tuple[int, ...]
    at: tuple[int, ...]

    def runs(self, first: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Bytes `first` to `end` of the piece as `(offset in the piece, offset in the file, length)`, each contiguous in both."""
        sizes = self.piece.sizes
        outer = len(sizes)
        while outer > 0 and sizes[outer:] == self.shape[outer:]:
            outer -= 1
        run_bytes = math.prod(sizes[outer:]) * self.item_bytes
        while first < end:
            row, within = divmod(first, run_bytes)
            length = min(run_bytes - within, end - first)
            yield first, self.start + self._element(row, outer) * self.item_bytes + within, length
            first += length

    def _element(self, row: int, outer: int) -> int:
        """Element of the box at which a run begins; runs are counted over the first `outer` dimensions of the piece."""
        place = list(self.at)
        for dim in reversed(range(outer)):
            row, index = divmod(row, self.piece.sizes[dim])
            place[dim] += index
        element = 0
        for size, index in zip(self.shape, place, strict=True):
            element = element * size + index
        return element


@dataclass(frozen=True)
class Checksum:
    """CRC-32 of some bytes of a file, which is written at several places of it once these are there."""

    start: int
    size_bytes: int
    places: tuple[int, ...]


@dataclass
class FilePlan:
    """One file. `literals`: bytes by offset. Grows by what is appended."""

    name: str
    size_bytes: int = 0
    literals: list[tuple[int, bytes]] = field(default_factory=list)
    placed: list[Placed] = field(default_factory=list)
    checksums: list[Checksum] = field(default_factory=list)

    def append(self, content: bytes) -> int:
        """Appends known bytes; returns where they begin."""
        start = self.size_bytes
        self.literals.append((start, content))
        self.size_bytes += len(content)
        return start

    def append_tensor(self, name: str, record: TensorRecord, item_bytes: int) -> int:
        """Appends a whole tensor; returns where it begins."""
        start = self.size_bytes
        self.placed += [Placed(name, piece, item_bytes, start, record.shape, piece.offsets) for piece in record.pieces]
        self.size_bytes += math.prod(record.shape) * item_bytes
        return start

    def append_piece(self, name: str, piece: Piece, item_bytes: int) -> int:
        """Appends a piece as a tensor of its own; returns where it begins."""
        start = self.size_bytes
        self.placed.append(Placed(name, piece, item_bytes, start, piece.sizes, (0,) * len(piece.sizes)))
        self.size_bytes += math.prod(piece.sizes) * item_bytes
        return start

    def append_span(self, name: str, span: Span) -> int:
        """Appends bytes of a chunk as they are."""
        return self.append_piece(name, Piece(offsets=(0,), sizes=(span.size_bytes,), span=span), 1)

    def by_chunk(self) -> Mapping[int, Sequence[Placed]]:
        """Pieces by the chunk that they are in, in the order of its bytes."""
        found: dict[int, list[Placed]] = {}
        for placed in self.placed:
            if placed.piece.span.size_bytes:
                found.setdefault(placed.piece.span.chunk, []).append(placed)
        return {number: sorted(of_it, key=lambda p: p.piece.span.offset) for number, of_it in found.items()}
