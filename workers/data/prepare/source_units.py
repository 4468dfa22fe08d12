"""Units of work of a preparation's first pass: samples of the source, in its order, of about one size; and their reading.

Holds: units follow from the source's manifest and the size of shards alone; each sample is in one of them. Small shards are joined, and big
ones cut.
Never: reads a sample twice, unless it seems damaged.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from trainhouse.checkpointing.stores.object_store import ObjectStore
from trainhouse.events.model.dataset import DataShard, Manifest
from trainhouse.events.model.spec import DataReference
from trainhouse.events.model.version_names import VersionName
from trainhouse.workers.data.errors import DamagedShardError
from trainhouse.workers.data.shard_sources import StoreSource
from trainhouse.workers.data.sharded_dataset import KEY, ShardedDataset
from trainhouse.workers.data.shards import Shard
from trainhouse.workers.data.shards.sample import ShardBytes, read_sample
from trainhouse.workers.data.stored_versions import read_manifest, shards_of

MOST_UNITS: Final = 1024
"""Of a unit there is a run of rows in each bucket, so that their number grows with the product."""
WINDOW_BYTES: Final = 8 << 20


@dataclass(frozen=True)
class Part:
    """Samples of one shard of the source, from `first` up to before `after`."""

    split: str
    shard: DataShard
    first: int
    after: int

    @property
    def bytes(self) -> float:
        """About how many bytes of the shard they are."""
        return self.shard.bytes * (self.after - self.first) / max(1, self.shard.samples)


@dataclass(frozen=True)
class SourceUnit:
    """One unit of work."""

    number: int
    parts: tuple[Part, ...]

    @property
    def name(self) -> str:
        """The name under which its rows are kept."""
        return f"unit-{self.number:07d}"

    @property
    def samples(self) -> int:
        """Samples of the source in it."""
        return sum(part.after - part.first for part in self.parts)


def units_of(manifest: Manifest, shard_bytes: float) -> list[SourceUnit]:
    """The units of a version: of half a shard each, and larger where they were too many. Pure."""
    unit_bytes = max(shard_bytes / 2, sum(shard.bytes for _, shard in shards_of(manifest)) / MOST_UNITS)
    units, parts, size = list[SourceUnit](), list[Part](), 0.0
    for split, shard in shards_of(manifest):
        for part in _cut(split, shard, unit_bytes):
            if parts and size + part.bytes / 2 > unit_bytes:
                units.append(SourceUnit(len(units), tuple(parts)))
                parts, size = [], 0.0
            parts.append(part)
            size += part.bytes
    return [*units, SourceUnit(len(units), tuple(parts))] if parts else units


def _cut(split: str, shard: DataShard, unit_bytes: float) -> Iterator[Part]:
    count = max(1, round(shard.bytes / unit_bytes))
    for number in range(count):
        first, after = (shard.samples * n // count for n in (number, number + 1))
        if first < after:
            yield Part(split, shard, first, after)


class UnitReader:
    """The samples of a version of `project`, unit by unit."""

    def __init__(self, objects: ObjectStore, project: str, version: str, shard_bytes: float) -> None:
        sha256 = VersionName.parse(version).sha256
        self.manifest = read_manifest(objects, project, sha256)
        self.units = units_of(self.manifest, shard_bytes)
        self._source = StoreSource(objects, project, None, manifest_sha256=sha256)
        self._version = version

    @classmethod
    def of(cls, data: DataReference, project: str, objects: ObjectStore, shard_bytes: float) -> "UnitReader":
        """Of the version that a job of `project` names, which may be another project's."""
        assert data.dataset is not None
        return cls(objects, data.owner or project, data.dataset, shard_bytes)

    @property
    def source_bytes(self) -> int:
        """Bytes of all shards."""
        return sum(shard.bytes for _, shard in shards_of(self.manifest))

    def samples(self, unit: SourceUnit) -> Iterator[tuple[str, dict[str, Any]]]:
        """Samples of one unit in their order, each with its split. Blocks. Raises DamagedShardError."""
        for part in unit.parts:
            yield from ((part.split, sample) for sample in self._of_part(part))

    def _of_part(self, part: Part) -> Iterator[dict[str, Any]]:
        shard = Shard.of(part.shard)
        again = ShardedDataset([shard], self._source, f"{self._version}, split {part.split}", version=self._version, split=part.split)
        try:
            index = self._source.index(shard)
            content = _Window(self._source.content(shard))
        except DamagedShardError:
            yield from (again[position] for position in range(part.first, part.after))
            return
        for position in range(part.first, part.after):
            try:
                sample = read_sample(content, index.locate(position))
                yield {KEY: sample.key, **sample.fields}
            except DamagedShardError:
                yield again[position]


class _Window:
    """Bytes of a shard that is read forward: one request for many samples."""

    def __init__(self, content: ShardBytes) -> None:
        self.name = content.name
        self._content = content
        self._held, self._start = b"", 0

    def read(self, start: int, length_bytes: int) -> bytes:
        first = start - self._start
        if first < 0 or first + length_bytes > len(self._held):
            self._held, self._start, first = self._content.read(start, max(length_bytes, WINDOW_BYTES)), start, 0
        return self._held[first : first + length_bytes]
