"""Layout of what one rank stages: bodies of chunks, large things alone and small ones packed together. Pure.

Holds: the same sizes give the same bodies, so that unchanged content has unchanged chunks. Bodies begin at multiples of ALIGN_BYTES.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

PACK_BELOW_BYTES = 256 * 2**10
PACK_BYTES = 8 * 2**20
ALIGN_BYTES = 64


@dataclass(frozen=True)
class LocalSpan:
    """Bytes within what one rank staged; `body` counts that rank's bodies."""

    rank: int
    body: int
    offset: int
    size_bytes: int


@dataclass(frozen=True)
class Layout:
    """`spans`: by item, in order. `bodies`: their sizes in bytes."""

    spans: tuple[LocalSpan, ...]
    bodies: tuple[int, ...]

    @property
    def total_bytes(self) -> int:
        """Memory that all bodies take."""
        return sum(map(aligned, self.bodies))

    @property
    def largest_bytes(self) -> int:
        """Memory that the largest body takes."""
        return max(map(aligned, self.bodies), default=0)


def lay_out(rank: int, sizes: Sequence[int]) -> Layout:
    """Places items of these sizes, in order."""
    bodies: list[int] = []
    spans: list[LocalSpan] = []
    pack = -1
    for size in sizes:
        if size >= PACK_BELOW_BYTES:
            spans.append(LocalSpan(rank, len(bodies), 0, size))
            bodies.append(size)
            continue
        if pack < 0:
            pack = len(bodies)
            bodies.append(0)
        spans.append(LocalSpan(rank, pack, bodies[pack], size))
        bodies[pack] += size
        if bodies[pack] >= PACK_BYTES:
            pack = -1
    return Layout(tuple(spans), tuple(bodies))


def waves(bodies: Sequence[int], limit_bytes: int) -> Iterator[range]:
    """Runs of bodies that fit into so much memory together, in order; one body at least in each."""
    first, used = 0, 0
    for body, size in enumerate(map(aligned, bodies)):
        if used + size > limit_bytes and body > first:
            yield range(first, body)
            first, used = body, 0
        used += size
    if first < len(bodies):
        yield range(first, len(bodies))


def aligned(size_bytes: int) -> int:
    """Memory that a body of this size takes."""
    return -(-size_bytes // ALIGN_BYTES) * ALIGN_BYTES
