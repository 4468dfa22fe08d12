"""Plan of a preparation's second pass: the runs of all units, shared out to pieces of about equal size. Pure.

Holds: the plan follows from the records of the units alone; each run is in one piece. The name of a piece has a hash of the whole plan,
so that pieces of two plans have no name in common. In a shuffle, buckets follow each other by the hash
of a row, and all runs of a bucket are in one piece, so that pieces that are sorted by it are sorted together.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from trainhouse.workers.data.prepare.row_runs import Run

MOST_BUCKETS: Final = 1024
RUNS_PER_SHARD: Final = 32
"""Runs or buckets that a shard is composed of, where they are not too many: by half of one it may be larger or smaller than others."""
PLAN_CHARS: Final = 12
_LEAST_RUNS: Final = 16
_PLACES: Final = 1 << 64
OfUnit = tuple[int, Run]


@dataclass(frozen=True)
class PlannedPiece:
    """One unit of work of the second pass: rows of one split, to be cut into so many shards. `runs`: with the number of their unit.
    `plan`: hash of all pieces."""

    number: int
    split: str
    shards: int
    runs: tuple[OfUnit, ...]
    plan: str = ""

    @property
    def name(self) -> str:
        """The name of the piece; pieces stand in the version in the order of their names."""
        return f"{self.number:07d}-{self.plan}"

    @property
    def shard_bytes(self) -> int:
        """Bytes of its rows in shards."""
        return sum(run.shard_bytes for _, run in self.runs)


def bucket_count(source_bytes: int, shard_bytes: float) -> int:
    """Buckets of a shuffle."""
    return min(MOST_BUCKETS, RUNS_PER_SHARD * max(1, math.ceil(source_bytes / shard_bytes)))


def bucket_of(place: int, buckets: int) -> int:
    """The bucket of a row; buckets are in the order of places."""
    return place * buckets // _PLACES


def planned_pieces(units: Sequence[Sequence[Run]], shard_bytes: float, *, shuffled: bool) -> list[PlannedPiece]:
    """The pieces of all splits, by the runs of each unit."""
    runs = [(number, run) for number, of_unit in enumerate(units) for run in of_unit]
    pieces = list[PlannedPiece]()
    for split in sorted({run.split for _, run in runs}):
        atoms = _atoms([each for each in runs if each[1].split == split], shuffled)
        for shards, part in _shared_out(atoms, shard_bytes):
            pieces.append(PlannedPiece(len(pieces), split, shards, part))
    plan = hashlib.sha256(repr([(piece.split, piece.shards, [(n, *run) for n, run in piece.runs]) for piece in pieces]).encode())
    return [replace(piece, plan=plan.hexdigest()[:PLAN_CHARS]) for piece in pieces]


def _atoms(runs: list[OfUnit], shuffled: bool) -> list[list[OfUnit]]:
    """Runs that stay together, in their order in the version."""
    if not shuffled:
        return [[each] for each in sorted(runs, key=lambda each: (each[0], each[1].bucket))]
    ordered = sorted(runs, key=lambda each: (each[1].bucket, each[0]))
    return [list(group) for _, group in groupby(ordered, key=lambda each: each[1].bucket)]


def _shared_out(atoms: list[list[OfUnit]], shard_bytes: float) -> Iterator[tuple[int, tuple[OfUnit, ...]]]:
    """Shards and runs of each piece of a split. A piece is of one shard where that has enough runs to be as large as others."""
    sizes = [sum(run.shard_bytes for _, run in atom) for atom in atoms]
    total = sum(sizes)
    shards = max(1, math.ceil(total / shard_bytes))
    pieces = min(shards, len(atoms), max(1, len(atoms) // _LEAST_RUNS, shards // 8))
    shards_each = math.ceil(shards / pieces)
    share = total / math.ceil(shards / shards_each)
    part, at, line = list[OfUnit](), 0, 1
    for atom, size in zip(atoms, sizes, strict=True):
        if part and at + size / 2 > line * share:
            yield shards_each, tuple(part)
            part = []
            line = max(line, math.floor((at + size / 2) / share)) + 1
        part += atom
        at += size
    yield shards_each, tuple(part)
