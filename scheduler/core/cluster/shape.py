"""Needs of a gang, in the form in which placement compares them, and the placement of a gang.

Holds: equal needs are equal shapes with equal hashes; a placement's parts are in rank order, and name each node once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import lcm

WHOLE = 1000
"""Thousandths of one device."""
ANY = "any"
"""The type of devices whose type does not matter, or is not chosen yet."""
GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Block:
    """Ranks with equal needs, one device (or share of one) each. `types` empty: any type."""

    ranks: int
    types: tuple[str, ...] = ()
    device_memory_bytes: int = 0
    cpus: float = 0
    memory_bytes: int = 0
    role: str = ""


@dataclass(frozen=True, slots=True)
class Shape:
    """All needs of a gang. `group`: so many consecutive ranks (a tensor-parallel group) share one NVLink domain.

    `require` and `prefer` name a topology level ("nvlink", "node", "rack", "pod"; "" for none): all ranks in one domain of it.
    `milli` < WHOLE: one rank on a share of a device. `min_ranks` < `ranks`: elastic; blocks then have one block only. `replica`: so many
    ranks hold one replica of the model, and the size of the gang changes by whole ones. `batch` > 0: each size divides it, so that the gang
    keeps its global batch.
    """

    pool: str
    blocks: tuple[Block, ...]
    milli: int = WHOLE
    require: str = ""
    prefer: str = ""
    group: int = 1
    labels: tuple[tuple[str, str], ...] = ()
    spot: bool = True
    min_ranks: int = 0
    replica: int = 1
    batch: int = 0
    _hash: int = field(init=False, compare=False, repr=False)
    ranks: int = field(init=False, compare=False, repr=False)
    """The whole gang; of an elastic one, the most that it takes."""
    least_ranks: int = field(init=False, compare=False, repr=False)
    """The fewest ranks with which it runs."""
    elastic: bool = field(init=False, compare=False, repr=False)
    """Whether its size may change."""
    step: int = field(init=False, compare=False, repr=False)
    """Ranks by which its size changes: whole groups, and whole replicas. With `batch` a size is a multiple of it, but not every one is."""
    hosted: bool = field(init=False, compare=False, repr=False)
    """Whether it asks for cpus or memory of its nodes."""

    def __post_init__(self) -> None:
        key = (
            self.pool,
            self.blocks,
            self.milli,
            self.require,
            self.prefer,
            self.group,
            self.labels,
            self.spot,
            self.min_ranks,
            self.replica,
            self.batch,
        )
        ranks = sum(b.ranks for b in self.blocks)
        object.__setattr__(self, "_hash", hash(key))
        object.__setattr__(self, "ranks", ranks)
        object.__setattr__(self, "least_ranks", self.min_ranks or ranks)
        object.__setattr__(self, "elastic", 0 < self.min_ranks < ranks)
        object.__setattr__(self, "step", lcm(self.group, self.replica))
        object.__setattr__(self, "hosted", any(b.cpus or b.memory_bytes for b in self.blocks))

    def __hash__(self) -> int:
        return self._hash

    def sizes(self, least: int, most: int) -> Sequence[int]:
        """Numbers of ranks that an elastic gang may have, from `least` to `most`, ascending."""
        first = -(-least // self.step) * self.step
        return _divisors(self.batch, first, most, self.step) if self.batch else range(first, most + 1, self.step)


@dataclass(frozen=True, slots=True)
class Part:
    """A gang's devices on one node: bits of `devices` are positions in the node's list. `milli` < WHOLE: a share of the one device."""

    node: int
    devices: int
    milli: int = WHOLE

    @property
    def ranks(self) -> int:
        return self.devices.bit_count()


@lru_cache(maxsize=4096)
def _divisors(number: int, first: int, most: int, step: int) -> tuple[int, ...]:
    return tuple(size for size in range(first, most + 1, step) if number % size == 0)


Placement = tuple[Part, ...]


def ranks_of(placement: Placement) -> int:
    """Returns the number of ranks in a placement."""
    count = 0
    for part in placement:
        count += part.devices.bit_count()
    return count


def by_block(placement: Placement, blocks: tuple[Block, ...]) -> list[tuple[int, Block, int]]:
    """(node, block, ranks) for each stretch of ranks on one node with one block's needs, in the order of ranks, all of them covered."""
    out: list[tuple[int, Block, int]] = []
    at, left = 0, blocks[0].ranks
    for part in placement:
        ranks = part.ranks
        while ranks:
            if not left and at + 1 < len(blocks):
                at += 1
                left = blocks[at].ranks
                continue
            here = min(ranks, left) if left else ranks
            out.append((part.node, blocks[at], here))
            ranks, left = ranks - here, max(0, left - here)
    return out
