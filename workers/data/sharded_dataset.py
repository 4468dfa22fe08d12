"""Map-style dataset over the shards of one split of a version.

Holds: a sample is found by its number alone, by a search among the shards and an entry of an index; a few shards are open at a time.
A sample is a dictionary as WebDataset gives it: its key as `__key__`, and the bytes of each field by extension.
Never: carries an open file or connection into another process.
"""

import hashlib
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from trainhouse.events.model.bad_shard import ShardFault
from trainhouse.workers.data.errors import DamagedShardError, InvalidDataError
from trainhouse.workers.data.shard_sources import ShardSource
from trainhouse.workers.data.shards.index import Located, ShardIndex
from trainhouse.workers.data.shards.sample import Sample, ShardBytes, read_sample
from trainhouse.workers.data.shards.writer import Shard

OPEN_SHARDS: Final = 64
MOST_INDEX_BYTES: Final = 128 << 20
"""Of the indexes that one process holds in memory, except that one is always held."""
KEY: Final = "__key__"
AGAIN: Final = 2
"""Reads after the first one: a cache may have a bad copy of the index, and then one of the sample. Also of a shard in quarantine, so that
the places that stay empty do not follow from what was known."""


@dataclass(frozen=True)
class BadSample:
    """The empty place of a sample that could not be read, also again, or not be decoded; the reason, and evidence about its shard.

    `shard`: hash of the shard's tar; empty where it is not known, or not at fault; `version` and `split`: of the dataset.
    """

    index: int
    reason: str
    fault: str = ShardFault.UNDECODABLE
    sample: str = ""
    expected: str = ""
    seen: str = ""
    shard: str = ""
    version: str = ""
    split: str = ""

    @classmethod
    def reported(cls, index: int, error: DamagedShardError, of: "ShardedDataset", more: str = "") -> "BadSample":
        """Makes one, with a line in the program's output. `index`: in the dataset that the loader reads; `more`: for that line alone."""
        print(f"trainhouse: sample {index} of {of.name} is left out: {error}{more}", file=sys.stderr, flush=True)
        evidence = (error.fault, error.sample, error.expected, error.seen, error.shard)
        return cls(index, str(error), *evidence, of.version, of.split)


class ShardedDataset:
    """Samples of `shards`, one shard after another. `name`: what messages call it; `threads`: reads at a time within one batch.

    `version` and `split`: those that it is of, if it was published.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        source: ShardSource,
        name: str = "the dataset",
        threads: int = 0,
        *,
        version: str = "",
        split: str = "",
    ) -> None:
        self.shards = tuple(shards)
        self.name, self.version, self.split = name, version, split
        self._source, self._threads = source, threads
        self._ends = np.cumsum(np.array([shard.samples for shard in self.shards], np.int64))
        if not len(self):
            raise InvalidDataError(f"{name} has no samples: publish a split that has some, or name another one")
        self._reader_of: tuple[int, _Reader] | None = None

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    @property
    def sizes(self) -> list[int]:
        """Samples of each shard."""
        return [shard.samples for shard in self.shards]

    @property
    def identity(self) -> str:
        """Short hash of its contents in their order: the same on any machine, and for any name."""
        return hashlib.sha256("".join(shard.sha256 for shard in self.shards).encode()).hexdigest()[:16]

    def __getitem__(self, index: int) -> dict[str, Any]:
        """The sample. Raises IndexError, DamagedShardError, InvalidDataError."""
        count = len(self)
        if not -count <= index < count:
            raise IndexError(f"{self.name}: sample {index} of {count}")
        return self._reader().sample(*self._place(index % count))

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any] | BadSample]:
        """The samples of a batch; a bad one leaves its place empty. Raises InvalidDataError."""
        reader = self._reader()
        if reader.pool is None:
            return [self._sample_or_empty(reader, index) for index in indices]
        parts = [indices[number :: self._threads] for number in range(self._threads)]
        read = reader.pool.map(lambda part: [self._sample_or_empty(reader, index) for index in part], parts)
        result: list[dict[str, Any] | BadSample] = [{}] * len(indices)
        for number, part in enumerate(read):
            result[number :: self._threads] = part
        return result

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_reader_of": None}

    def _sample_or_empty(self, reader: "_Reader", index: int) -> dict[str, Any] | BadSample:
        try:
            return reader.sample(*self._place(index))
        except DamagedShardError as error:
            return BadSample.reported(index, error, self)

    def _place(self, index: int) -> tuple[Shard, int]:
        number = int(np.searchsorted(self._ends, index, "right"))
        shard = self.shards[number]
        return shard, index - (int(self._ends[number]) - shard.samples)

    def _reader(self) -> "_Reader":
        """Open shards of this process."""
        pid = os.getpid()
        if self._reader_of is None or self._reader_of[0] != pid:
            self._reader_of = (pid, _Reader(self._source, self._threads))
        return self._reader_of[1]


class _Reader:
    """Open shards of one process: those used last. A closed one goes when no thread reads it any longer."""

    def __init__(self, source: ShardSource, threads: int) -> None:
        self.pool = ThreadPoolExecutor(threads, "trainhouse-data") if threads > 1 else None
        self._source = source
        self._lock = threading.Lock()
        self._open: OrderedDict[str, tuple[ShardIndex, ShardBytes]] = OrderedDict()

    def sample(self, shard: Shard, position: int) -> dict[str, Any]:
        """The sample, read again where its shard or its index seems damaged: off its source then, not off a cache."""
        left = AGAIN
        while True:
            located: Located | None = None
            try:
                index, content = self._opened(shard)
                located = index.locate(position)
                return _as_dict(read_sample(content, located))
            except DamagedShardError as error:
                self._source.forget(shard, located)
                with self._lock:
                    self._open.pop(shard.sha256, None)
                if not left:
                    error.shard = shard.sha256
                    raise
                left -= 1

    def _opened(self, shard: Shard) -> tuple[ShardIndex, ShardBytes]:
        with self._lock:
            found = self._open.get(shard.sha256)
            if found is not None:
                self._open.move_to_end(shard.sha256)
                return found
        found = self._source.index(shard), self._source.content(shard)
        with self._lock:
            self._open[shard.sha256] = found
            while len(self._open) > 1 and (len(self._open) > OPEN_SHARDS or self._memory_bytes() > MOST_INDEX_BYTES):
                self._open.popitem(last=False)
        return found

    def _memory_bytes(self) -> int:
        return sum(index.memory_bytes for index, _ in self._open.values())


def _as_dict(sample: Sample) -> dict[str, Any]:
    return {KEY: sample.key, **sample.fields}
