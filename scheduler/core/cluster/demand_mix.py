"""Recent demand distribution: how often each need was requested of late. Fragmentation is scored by it.

Holds: bounded in entries and in counts; equal histories give equal mixes; a mix made from another's table goes on exactly like it.
Never: knows jobs or time. It lasts as long as its table is kept.
"""

from dataclasses import dataclass

from trainhouse.scheduler.core.cluster.shape import Shape

MAX_ENTRIES = 512
MAX_COUNT = 8192
REVIEW_EVERY = 256
COVERED_PERCENT = 99


@dataclass(frozen=True, slots=True, order=True)
class Usual:
    """Need of a typical job on one node. `types` empty: any. Cpus in thousandths, memory in bytes, of all its ranks there together."""

    types: tuple[str, ...]
    ranks: int
    milli: int
    cpus_milli: int = 0
    memory_bytes: int = 0


Table = tuple[int, tuple[tuple[Usual, int], ...], tuple[tuple[Usual, int], ...]]


class Mix:
    """Counts of usual needs. All are halved when they grow beyond `MAX_COUNT` together: what was asked long ago counts less and less."""

    __slots__ = ("asked", "counts", "typical")

    def __init__(self, table: Table = (0, (), ())) -> None:
        self.asked = table[0]
        self.counts: dict[Usual, int] = dict(table[1])
        self.typical: tuple[tuple[Usual, int], ...] = table[2]
        """The most usual needs with their weights, reviewed every so many jobs, so that judgements stay comparable in between."""

    def fork(self) -> "Mix":
        """Equal now, apart from then on."""
        new = Mix.__new__(Mix)
        new.asked, new.counts, new.typical = self.asked, self.counts.copy(), self.typical
        return new

    def table(self) -> Table:
        """All that must be kept to go on later."""
        return self.asked, tuple(sorted(self.counts.items())), self.typical

    def seen(self, shape: Shape) -> None:
        """A job asked for this shape. Its first block speaks for it."""
        block = shape.blocks[0]
        ranks = block.ranks
        usual = Usual(tuple(sorted(block.types)), ranks, shape.milli, round(block.cpus * 1000) * ranks, block.memory_bytes * ranks)
        self.counts[usual] = self.counts.get(usual, 0) + 1
        self.asked += 1
        if len(self.counts) > MAX_ENTRIES:
            del self.counts[min(self.counts, key=lambda u: (self.counts[u], u == usual, u))]
        if self.asked % MAX_COUNT == 0:
            self.counts = {u: n // 2 for u, n in sorted(self.counts.items()) if n > 1}
        if self.asked % REVIEW_EVERY == 0 or not self.typical:
            self.review()

    def review(self) -> None:
        """Takes the most usual needs, until they cover nearly all that was asked. Their weights are the devices that they ask for together.

        The paper weighs needs by how many jobs have them. By devices, allocation on the openb trace comes out 0.2 points higher.
        """
        ordered = sorted(self.counts.items(), key=lambda e: (-e[1], e[0]))
        enough, out = sum(self.counts.values()) * COVERED_PERCENT, []
        covered = 0
        for usual, count in ordered:
            if covered * 100 >= enough:
                break
            out.append((usual, count * usual.ranks * usual.milli))
            covered += count
        self.typical = tuple(out)
