"""Publication of one version: the source is measured, then written to shards of equal size, which go to the store, and the manifest last.

Holds: what was measured and what was written have one hash, and no file changed meanwhile, else nothing is published; an object that the
store has is not sent again.
"""

import hashlib
import mmap
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from trainhouse.checkpointing.stores.object_store import Body, ObjectStat
from trainhouse.events.model.dataset import DataShard, DataSource, DataSplit, Manifest
from trainhouse.events.model.dataset_keys import index_key, manifest_key, profiles_key, shard_key
from trainhouse.events.model.dataset_profile import VersionProfiles
from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.publishing.bounded_files import SourceChangedError
from trainhouse.workers.data.publishing.field_profiles import FieldProfiles
from trainhouse.workers.data.publishing.sample_fields import Fields
from trainhouse.workers.data.publishing.sample_schema import FieldFigures, SampleSchema, columns_of
from trainhouse.workers.data.publishing.sources import Source
from trainhouse.workers.data.publishing.split_rule import OF_FOLDER, OF_SAMPLE, SplitRule
from trainhouse.workers.data.publishing.time_split import TimeSplitRule
from trainhouse.workers.data.shards import Shard, ShardWriter
from trainhouse.workers.data.shards.members import sample_bytes
from trainhouse.workers.data.shards.writer import MOST_BYTES
from trainhouse.workers.data.stored_versions import MOST_MANIFEST_BYTES, sha256_of

Progress = Callable[[int, int], None]
"""Is called with samples and bytes that were written so far."""
_EVERY: Final = 1000
# Shards are cut here, by what is measured, and never by their writer.
_UNCUT_BYTES: Final = 1 << 62


class Receiver(Protocol):
    """Part of an object store that a publication needs."""

    def stat(self, key: str) -> ObjectStat | None: ...

    def put(self, key: str, body: Body) -> None: ...

    def get_range(self, key: str, start: int, length_bytes: int) -> bytes: ...


@dataclass(frozen=True)
class Terms:
    """Terms of use that a manifest names."""

    licence: str = ""
    purposes: tuple[str, ...] = ()


@dataclass
class _Measured:
    """One split, as the first reading found it."""

    samples: int = 0
    bytes: int = 0
    figures: FieldFigures = field(default_factory=FieldFigures)
    profiles: FieldProfiles = field(default_factory=FieldProfiles)


class Publication:
    """One run over a source; `publish` may be called once."""

    def __init__(self, source: Source, rule: SplitRule | TimeSplitRule, terms: Terms, shard_bytes: int = MOST_BYTES) -> None:
        self._source, self._rule, self._terms, self._shard_bytes = source, rule, terms, shard_bytes
        self._schema = SampleSchema()
        self._splits = {name: _Measured() for name in rule.names}
        self._content_bytes = 0

    def publish(self, objects: Receiver, project: str, progress: Progress = lambda samples, size: None) -> Manifest:
        """Shards, profiles and manifest into the store, below the project's prefix. Raises InvalidDataError, SourceChangedError, and what
        the store raises."""
        measured = self._measure()
        with tempfile.TemporaryDirectory(prefix="trainhouse-publish-") as folder:
            shards, written = self._write(objects, project, Path(folder), progress)
        changed = self._source.changed()
        if written != measured or changed:
            named = ", ".join(changed) or str(self._source.root)
            raise SourceChangedError(f"{named} changed while it was published, so nothing was; publish again once it is whole")
        manifest = self._manifest(shards, measured)
        size = len(manifest.canonical_json())
        if size > MOST_MANIFEST_BYTES:
            raise InvalidDataError(f"the manifest would have {size} bytes, and may have {MOST_MANIFEST_BYTES}; publish larger shards")
        sha256 = manifest.sha256()
        profiles = VersionProfiles(splits={name: split.profiles.profiles() for name, split in self._splits.items()}).bounded()
        _put_once(objects, profiles_key(project, sha256), profiles.canonical_json())
        _put_once(objects, manifest_key(project, sha256), manifest.canonical_json())
        return manifest

    def _measure(self) -> str:
        """Sizes of the splits, schema and figures. Returns the hash of all samples."""
        digest = _SamplesDigest()
        for key, fields, columns in self._read():
            digest.add(key, fields)
            self._schema.add(key, fields, columns)
            split = self._splits[self._split_of(key, fields, columns)]
            split.samples += 1
            split.bytes += sample_bytes(key, fields)
            split.figures.add(fields)
            split.profiles.add(fields, columns)
            self._content_bytes += sum(map(len, fields.values()))
        total = sum(split.samples for split in self._splits.values())
        for name, split in self._splits.items():
            if not split.samples:
                raise InvalidDataError(
                    f"split {name} of {self._source.root} is empty: it gets none of {total} samples; leave it out, or enlarge its share"
                )
        return digest.hexdigest()

    def _write(self, objects: Receiver, project: str, folder: Path, progress: Progress) -> tuple[dict[str, list[Shard]], str]:
        """The shards of each split, sent one by one. Returns them, with the hash of all samples."""
        digest, samples, size = _SamplesDigest(), 0, 0
        with ExitStack() as writers:
            cutters = dict[str, _Cutter]()
            for name, measured in self._splits.items():
                writer = writers.enter_context(ShardWriter(folder, most_bytes=_UNCUT_BYTES))
                cutters[name] = _Cutter(objects, project, folder, writer, measured, self._shard_bytes)
            for key, fields, columns in self._read():
                digest.add(key, fields)
                size += cutters[self._split_of(key, fields, columns)].add(key, fields)
                samples += 1
                if samples % _EVERY == 0:
                    progress(samples, size)
            return {name: cutter.finish() for name, cutter in cutters.items()}, digest.hexdigest()

    def _read(self) -> Iterator[tuple[str, Fields, dict[str, Any] | None]]:
        for key, fields in self._source.samples():
            yield key, fields, columns_of(key, fields)

    def _split_of(self, key: str, fields: Fields, columns: dict[str, Any] | None) -> str:
        if isinstance(self._rule, TimeSplitRule):
            return self._rule.split_of(key, columns)
        by = self._rule.by
        if len(self._rule.shares) == 1:
            return self._rule.shares[0][0]
        if by == OF_FOLDER:
            return self._rule.split_of(key.rpartition("/")[0].encode())
        if by != OF_SAMPLE:
            value = None if columns is None else columns.get(by)
            if value is None or isinstance(value, dict | list):
                raise InvalidDataError(f"sample {key!r} has no value {by!r} in its json to be split by; name a column that each sample has")
            return self._rule.split_of(f"{type(value).__name__}:{value}".encode())
        # A row has no name of its own: by its content it stays in its split when others come before it.
        named = self._source.kind in ("folder", "webdataset")
        return self._rule.split_of(key.encode() if named else b"\0".join(fields[name] for name in sorted(fields)))

    def _manifest(self, shards: dict[str, list[Shard]], content_sha256: str) -> Manifest:
        splits = {name: _split(shards[name], self._splits[name]) for name in sorted(shards)}
        source = DataSource(kind=self._source.kind, sha256=content_sha256, bytes=self._content_bytes, files=len(self._source.files))
        return Manifest.of(
            self._schema.fields(),
            splits,
            self._rule.canonical_json(),
            sources=(source,),
            licence=self._terms.licence,
            purposes=tuple(sorted(set(self._terms.purposes))),
        )


class _Cutter:
    """Shards of one split, all of about one size; each is sent when it is whole, and removed here."""

    def __init__(self, objects: Receiver, project: str, folder: Path, writer: ShardWriter, measured: _Measured, most_bytes: int) -> None:
        self._objects, self._project, self._folder, self._writer = objects, project, folder, writer
        self._total_bytes, self._most_bytes = measured.bytes, most_bytes
        self._at_bytes = 0
        self._sent = 0
        self._share_out()

    def add(self, key: str, fields: Fields) -> int:
        size = sample_bytes(key, fields)
        # Cut where the line of the next share is nearest; the last share has no line.
        line = self._first_bytes + self._under_way * self._share_bytes
        if self._under_way < self._count and self._at_bytes + size / 2 > line:
            self._writer.cut()
            self._under_way += 1
            self._send()
            # So far beyond its line leads only a sample that is larger than a share.
            if self._at_bytes > line + self._share_bytes / 2:
                self._share_out()
        self._writer.add(key, fields)
        self._at_bytes += size
        return size

    def _share_out(self) -> None:
        """Draws lines of equal shares from here to the end."""
        self._first_bytes, left = self._at_bytes, self._total_bytes - self._at_bytes
        self._count = -(-left // self._most_bytes)
        self._share_bytes = left / self._count
        self._under_way = 1

    def finish(self) -> list[Shard]:
        self._writer.cut()
        self._send()
        return self._writer.shards

    def _send(self) -> None:
        for shard in self._writer.shards[self._sent :]:
            # The index first: a tar that is there has one.
            for name, key, sha256 in (
                (shard.index_name, index_key(self._project, shard.sha256), shard.index_sha256),
                (shard.tar_name, shard_key(self._project, shard.sha256), None),
            ):
                path = self._folder / name
                if not path.exists():
                    continue  # an equal shard of another split was sent
                with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content, memoryview(content) as body:
                    _put_once(self._objects, key, body, sha256)
                path.unlink()
            self._sent += 1


class _SamplesDigest:
    """Hash over keys and fields, in order."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()

    def add(self, key: str, fields: Fields) -> None:
        self._sha256.update(b"%d %d\n%b" % (len(key.encode()), len(fields), key.encode()))
        for name in sorted(fields):
            self._sha256.update(b"%d %d\n%b" % (len(name.encode()), len(fields[name]), name.encode()))
            self._sha256.update(fields[name])

    def hexdigest(self) -> str:
        return self._sha256.hexdigest()


def _split(shards: list[Shard], measured: _Measured) -> DataSplit:
    listed = tuple(DataShard(sha256=s.sha256, index_sha256=s.index_sha256, bytes=s.size_bytes, samples=s.samples) for s in shards)
    return DataSplit(
        shards=listed,
        samples=sum(s.samples for s in listed),
        bytes=sum(s.bytes for s in listed),
        statistics=measured.figures.statistics(),
    )


def _put_once(objects: Receiver, key: str, body: bytes | memoryview, sha256: str | None = None) -> None:
    """Puts what is not there, or has another size; with a hash, also what has other contents."""
    stat = objects.stat(key)
    if stat is None or stat.size_bytes != len(body) or (sha256 is not None and sha256_of(objects, key, len(body)) != sha256):
        objects.put(key, body)
