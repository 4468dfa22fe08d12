"""Order of samples as a function: (seed, data pass, position) to the index of a sample. Pure.

A pass is a keyed permutation of [0, samples): a Feistel network (Luby and Rackoff 1988) over a rectangle that is little larger than the
dataset, with cycle walking for what falls outside (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002). The same idea
shuffles on GPUs in Mitchell et al., "Bandwidth-Optimal Random Shuffling for GPUs" (2022), whose 24 rounds are used here. The round
function is the finalizer of SplitMix64 (Steele et al. 2014). All of it is arithmetic of 64-bit integers, alike on every machine.

Holds: each pass has each sample exactly once; any position costs the same time, and no memory that grows with the dataset.
Never: holds a list of the samples; draws from a generator of the process.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trainhouse.workers.data.errors import InvalidDataError

Positions = NDArray[np.int64]
Keys = NDArray[np.uint64]

MOST_SAMPLES = 2**62
MOST_WEIGHT = 2**20
ROUNDS = 24
PASSES_KEPT = 3
_WORD = 2**64
_GOLDEN = 0x9E3779B97F4A7C15
_HALF = np.uint64(32)


class Order(Protocol):
    """Order of an endless sequence of data passes, each of `samples` positions."""

    samples: int

    def indices(self, data_pass: Positions, position: Positions) -> Positions:
        """Index of the sample at each position of its pass."""
        ...

    def identity(self) -> dict[str, Any]:
        """Few JSON values that the order follows from: equal ones mean the same order."""
        ...


@dataclass(frozen=True)
class Blocks:
    """Shuffle with neighbouring reads: blocks of `samples` neighbours in shuffled order, samples shuffled within `window` blocks."""

    samples: int = 1024
    window: int = 16

    def __post_init__(self) -> None:
        if self.samples < 1 or self.window < 1:
            raise InvalidDataError(f"Blocks(samples={self.samples}, window={self.window}): give numbers of at least 1")


class Sequential:
    """The dataset's own order, pass after pass."""

    def __init__(self, samples: int) -> None:
        self.samples = _checked(samples)

    def indices(self, data_pass: Positions, position: Positions) -> Positions:
        return position

    def identity(self) -> dict[str, Any]:
        return {"samples": self.samples, "seed": None, "shuffle": False}


class Shuffled:
    """Another permutation of all samples in each pass."""

    def __init__(self, samples: int, seed: int) -> None:
        self.samples, self.seed = _checked(samples), seed

    def indices(self, data_pass: Positions, position: Positions) -> Positions:
        return permuted(position, self.samples, _keys(self.seed, data_pass))

    def identity(self) -> dict[str, Any]:
        return {"samples": self.samples, "seed": self.seed, "shuffle": True}


class BlockShuffled:
    """Another order of the blocks in each pass, and of the samples within each window of blocks."""

    def __init__(self, samples: int, seed: int, blocks: Blocks) -> None:
        self.samples, self.seed, self.blocks = _checked(samples), seed, blocks

    def indices(self, data_pass: Positions, position: Positions) -> Positions:
        keys = _keys(self.seed, data_pass)
        return self._of_blocks(self._within_windows(position, keys), keys)

    def identity(self) -> dict[str, Any]:
        return {"samples": self.samples, "seed": self.seed, "shuffle": [self.blocks.samples, self.blocks.window]}

    def _within_windows(self, position: Positions, keys: Keys) -> Positions:
        """Permutes the positions of each window of `window` blocks among themselves."""
        length = self.blocks.samples * self.blocks.window
        window, offset = position // length, position % length
        whole = self.samples // length  # windows before the last, shorter one
        keys = _derived(keys, window.astype(np.uint64) + np.uint64(1))
        result = np.empty_like(position)
        for of_it, size in ((window < whole, length), (window >= whole, self.samples - whole * length)):
            if of_it.any():
                result[of_it] = permuted(offset[of_it], size, keys[of_it]) + window[of_it] * length
        return result

    def _of_blocks(self, position: Positions, keys: Keys) -> Positions:
        """Reads the blocks in shuffled order. The shorter block at the end of the dataset, if there is one, comes at a place of its own."""
        size = self.blocks.samples
        full, rest = divmod(self.samples, size)
        place = (_mixed(_derived(keys, 2 * _GOLDEN)) % np.uint64(full + 1)).astype(np.int64) * size if rest else None
        in_rest = np.zeros(position.shape, bool) if place is None else (position >= place) & (position < place + rest)
        slot = position if place is None else np.where(position >= place + rest, position - rest, position)
        result = np.empty_like(position)
        if place is not None:
            result[in_rest] = full * size + (position - place)[in_rest]
        others = ~in_rest
        if others.any():
            result[others] = permuted(slot[others] // size, full, keys[others]) * size + slot[others] % size
        return result


class ShardShuffled:
    """Another order of the shards in each pass; of the blocks in each group of `window` shards, and of the samples in each window of
    blocks. So a group's shards are read before the next group's, and a position costs one search among the shards.

    Indices count through the shards one after another. Holds one table of the shards for each of the last few passes.
    """

    def __init__(self, sizes: Sequence[int], seed: int, blocks: Blocks) -> None:
        self._sizes = np.array(sizes, np.int64)
        if (self._sizes < 0).any():
            raise InvalidDataError("a shard with fewer than 0 samples: give the number of samples of each shard")
        self._sizes_digest = hashlib.sha256(self._sizes.astype("<i8").tobytes()).hexdigest()[:16]
        self._begin = np.cumsum(self._sizes) - self._sizes
        self.samples, self.seed, self.blocks = _checked(int(self._sizes.sum())), seed, blocks
        self._tables: dict[int, tuple[Positions, Positions, Positions]] = {}

    def indices(self, data_pass: Positions, position: Positions) -> Positions:
        result = np.empty_like(position)
        for number in np.unique(data_pass).tolist():
            of_it = np.flatnonzero(data_pass == number)
            result[of_it] = self._of_pass(number, position[of_it])
        return result

    def identity(self) -> dict[str, Any]:
        return {
            "samples": self.samples,
            "seed": self.seed,
            "shuffle": ["shards", self.blocks.samples, self.blocks.window],
            "shards": self._sizes_digest,
        }

    def _of_pass(self, number: int, position: Positions) -> Positions:
        shards, ends, groups = self._table(number)
        group = np.searchsorted(groups, position, "right")
        place = np.empty_like(position)  # among the samples of the shuffled shards
        for each in np.unique(group).tolist():
            of_it = np.flatnonzero(group == each)
            begin = int(groups[each - 1]) if each else 0
            seed = int(_keys(self.seed, np.array([each + 1], np.int64))[0])
            order = BlockShuffled(int(groups[each]) - begin, seed, self.blocks)
            place[of_it] = begin + order.indices(np.full(of_it.shape, number), position[of_it] - begin)
        at = np.searchsorted(ends, place, "right")
        shard = shards[at]
        return self._begin[shard] + place - (ends[at] - self._sizes[shard])

    def _table(self, number: int) -> tuple[Positions, Positions, Positions]:
        """The shards in the order of the pass, the end of each of them, and the end of each group that has samples."""
        table = self._tables.pop(number, None)
        if table is None:
            count = len(self._sizes)
            keys = _derived(_keys(self.seed, np.full(count, number)), 3 * _GOLDEN)
            shards = permuted(np.arange(count), count, keys)
            ends = np.cumsum(self._sizes[shards])
            groups = np.unique(np.append(ends[self.blocks.window - 1 :: self.blocks.window], ends[-1]))
            table = (shards, ends, groups[groups > 0])
        self._tables[number] = table  # the last that was used is the last that goes
        if len(self._tables) > PASSES_KEPT:
            del self._tables[next(iter(self._tables))]
        return table


class OfDataset:
    """The order of one dataset's samples: of another dataset it is another order, though all sizes be alike."""

    def __init__(self, order: Order, dataset: str) -> None:
        self.samples = order.samples
        self._order, self._dataset = order, dataset

    def indices(self, data_pass: Positions, position: Positions) -> Positions:
        return self._order.indices(data_pass, position)

    def identity(self) -> dict[str, Any]:
        return self._order.identity() | {"dataset": self._dataset}


class Mixed:
    """Several orders mixed by whole weights: each cycle of `sum(weights)` positions has exactly `weight` samples of each.

    A cycle is one shuffled pattern of the parts, turned by another amount each time. Each part goes through passes of its own, in its own
    order; the mixture is one endless pass. Indices count through all parts, one after another.
    """

    samples = MOST_SAMPLES

    def __init__(self, parts: Sequence[Order], weights: Sequence[int], seed: int) -> None:
        whole = all(weight >= 1 and int(weight) == weight for weight in weights)
        if not parts or len(parts) != len(weights) or not whole or sum(weights) > MOST_WEIGHT:
            raise InvalidDataError(
                f"a mixture of {len(parts)} datasets with weights {list(weights)}: give each a whole number of at least 1, "
                f"as 7 and 3 for 0.7 and 0.3, and all together at most {MOST_WEIGHT:,}"
            )
        self._parts, self._weights, self._seed = tuple(parts), tuple(map(int, weights)), seed
        self._length = sum(self._weights)
        slots = permuted(np.arange(self._length), self._length, _keys(seed, np.zeros(self._length, np.int64)))
        self._pattern = np.repeat(np.arange(len(parts)), self._weights)[slots]
        self._slots = [np.flatnonzero(self._pattern == number) for number in range(len(parts))]
        self._offsets = np.array([0, *accumulate(part.samples for part in parts)], np.int64)

    def indices(self, data_pass: Positions, position: Positions) -> Positions:
        cycle, offset = np.divmod(position, self._length)
        turn = (_keys(self._seed, cycle + 1) % np.uint64(self._length)).astype(np.int64)
        slot = (offset + turn) % self._length
        part = self._pattern[slot]
        result = np.empty_like(position)
        for number, order in enumerate(self._parts):
            of_it = part == number
            if of_it.any():
                slots, weight = self._slots[number], self._weights[number]
                before = (np.searchsorted(slots, slot[of_it]) - np.searchsorted(slots, turn[of_it])) % weight
                passes, at = np.divmod(cycle[of_it] * weight + before, order.samples)
                result[of_it] = order.indices(passes, at) + self._offsets[number]
        return result

    def identity(self) -> dict[str, Any]:
        parts = [[part.identity(), weight] for part, weight in zip(self._parts, self._weights, strict=True)]
        digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
        return {"samples": int(self._offsets[-1]), "seed": self._seed, "shuffle": True, "mixture": digest}


def permuted(position: Positions, samples: int, keys: Keys) -> Positions:
    """Images of `position`, each within [0, samples), under the permutation of its key."""
    low_bits = max(1, ((samples - 1).bit_length() + 1) // 2)
    columns = 1 << low_bits  # even, so that odd permutations come up as well
    rows = -(-samples // columns)
    result = _feistel(position.astype(np.uint64), low_bits, rows, keys)
    outside = np.flatnonzero(result >= np.uint64(samples))
    while outside.size:
        result[outside] = _feistel(result[outside], low_bits, rows, keys[outside])
        outside = outside[result[outside] >= np.uint64(samples)]
    return result.astype(np.int64)


def _feistel(value: Keys, low_bits: int, rows: int, keys: Keys) -> Keys:
    """One application over the rectangle of `rows` and 2 ** low_bits columns; its halves take turns."""
    mask, bits, modulus = np.uint64((1 << low_bits) - 1), np.uint64(low_bits), np.uint64(rows)
    row, column = value >> bits, value & mask
    for number in range(0, ROUNDS, 2):
        column = (column + _mixed(_derived(keys, _GOLDEN * (2 * number + 1)) + row)) & mask
        shift = ((_mixed(_derived(keys, _GOLDEN * (2 * number + 3)) + column) >> _HALF) * modulus) >> _HALF  # below `rows`
        row = row + shift
        row = np.where(row >= modulus, row - modulus, row)
    return (row << bits) | column


def _keys(seed: int, number: Positions) -> Keys:
    """Keys of data passes, or of anything else that is numbered."""
    base = np.full(1, seed % _WORD, np.uint64)
    return _mixed(_mixed(base + np.uint64(_GOLDEN)) + number.astype(np.uint64) * np.uint64(_GOLDEN))


def _derived(keys: Keys, number: int | Keys) -> Keys:
    return keys + (np.uint64(number % _WORD) if isinstance(number, int) else _mixed(number))


def _mixed(value: Keys) -> Keys:
    """The finalizer of SplitMix64."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def _checked(samples: int) -> int:
    if not 0 < samples < MOST_SAMPLES:
        raise InvalidDataError(f"the dataset has {samples} samples: give one that has at least 1 and fewer than 2 ** 62")
    return samples
