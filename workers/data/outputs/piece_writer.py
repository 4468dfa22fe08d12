"""Writer of one piece of an output: samples to shards, which are sent as they become whole.

Holds: the same samples give the same shards on any machine; of a piece no more than a shard of each split lies on disk; until `close` there
is no record of it, so that it is whole or not there.
Never: belongs to two threads.
"""

import contextlib
import hashlib
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

import orjson

from trainhouse.events.model.dataset import DataShard, NamedArtifact
from trainhouse.events.model.version_names import SPLIT_PATTERN
from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.outputs.piece_profiles import PieceProfiles
from trainhouse.workers.data.outputs.pieces import Piece, PieceField, PieceSplit
from trainhouse.workers.data.outputs.staged_shard import MOST_INDEX_BYTES, MOST_SHARD_BYTES
from trainhouse.workers.data.publishing.bounded_files import LocalRoot
from trainhouse.workers.data.publishing.field_profiles import FieldProfiles
from trainhouse.workers.data.publishing.sample_fields import canonical, small_enough
from trainhouse.workers.data.publishing.sample_schema import FieldFigures, SampleSchema, columns_of
from trainhouse.workers.data.publishing.sources import source_of
from trainhouse.workers.data.shards import Shard, ShardWriter

TRAIN: Final = "train"


class PieceStore(Protocol):
    """Place that shards and the record of a piece go to. Both methods block."""

    def send(self, shard: Shard, folder: Path) -> None:
        """Takes the shard's two files, in `folder`."""
        ...

    def profile(self, sha256: str, content: bytes) -> None:
        """Takes the distributions of the piece's samples."""
        ...

    def record(self, piece: Piece) -> None:
        """Makes the piece whole."""
        ...


class PieceWriter:
    """One piece; as a context manager it is closed at the end of the block, and dropped if that raises."""

    def __init__(
        self, store: PieceStore, key_prefix: str, shard_bytes: int, artifacts: Callable[[], tuple[NamedArtifact, ...]] = lambda: ()
    ) -> None:
        if shard_bytes > MOST_SHARD_BYTES:
            raise InvalidDataError(f"shards of {shard_bytes} bytes: those of an output have {MOST_SHARD_BYTES} at most")
        self._store, self._key_prefix, self._shard_bytes = store, key_prefix, shard_bytes
        self._artifacts = artifacts
        self._folder = Path(tempfile.mkdtemp(prefix="trainhouse-output-"))
        self._writers = dict[str, ShardWriter]()
        self._folders = dict[str, Path]()
        self._sent = dict[str, int]()
        self._figures = dict[str, FieldFigures]()
        self._profiles = dict[str, FieldProfiles]()
        self._schema = SampleSchema()
        self._count = 0
        self.closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.drop()

    def add(self, sample: Mapping[str, Any], *, key: str | None = None, split: str = TRAIN) -> None:
        """Writes a sample: bytes by extension as they are, text in UTF-8, all else as JSON. Blocks where a shard is full, and goes to the
        store. `key` is by default the number of the sample, with the piece or the rank before it. Raises InvalidDataError."""
        if self.closed:
            raise InvalidDataError("this piece of the output is closed; begin another one")
        name = f"{self._key_prefix}-{self._count:08d}" if key is None else key
        fields = {extension: _content(name, extension, value) for extension, value in sample.items()}
        small_enough(sum(map(len, fields.values())), f"sample {name!r}")
        writer = self._writer_of(split)
        columns = columns_of(name, fields)
        writer.add(name, fields)
        self._schema.add(name, fields, columns)
        self._figures[split].add(fields)
        self._profiles[split].add(fields, columns)
        self._count += 1
        self._send(split)

    def add_files(self, path: Path, *, split: str = TRAIN) -> int:
        """Writes the samples of a folder or file, in the formats that `trainhouse data publish` reads. Returns their number.
        Raises InvalidDataError."""
        before = self._count
        for key, fields in source_of(LocalRoot(path)).samples():
            self.add(fields, key=key, split=split)
        return self._count - before

    def cut(self, split: str = TRAIN) -> None:
        """Ends the shard of a split that is under way; the next sample begins another. Blocks while it goes to the store."""
        if split in self._writers:
            self._writers[split].cut()
            self._send(split)

    def close(self) -> None:
        """Sends what is left, then the record. Blocks; a second call does nothing."""
        if self.closed:
            return
        for split, writer in self._writers.items():
            writer.cut()
            self._send(split)
        profiles = PieceProfiles(splits={split: each.kept() for split, each in self._profiles.items()}).content()
        sha256 = None
        if profiles is not None:
            sha256 = hashlib.sha256(profiles).hexdigest()
            self._store.profile(sha256, profiles)
        self._store.record(self.piece(sha256))
        self._end()

    def drop(self) -> None:
        """Removes what is on disk; the piece is not there."""
        for writer in self._writers.values():
            with contextlib.suppress(OSError):
                writer.__exit__(RuntimeError, None, None)
        self._end()

    def piece(self, profiles: str | None) -> Piece:
        """The record of what was sent. `profiles`: hash of the distributions."""
        splits = {
            split: PieceSplit(shards=tuple(map(_listed, writer.shards)), statistics=self._figures[split].statistics())
            for split, writer in sorted(self._writers.items())
        }
        fields = {name: PieceField(samples=count, types=types) for name, (count, types) in self._schema.seen().items()}
        return Piece(splits=splits, fields=fields, artifacts=self._artifacts(), profiles=profiles)

    def _writer_of(self, split: str) -> ShardWriter:
        if split not in self._writers:
            if not re.fullmatch(SPLIT_PATTERN, split):
                raise InvalidDataError(f"split {split!r}: its name must fit {SPLIT_PATTERN}")
            folder = self._folders[split] = self._folder / f"split-{len(self._writers)}"
            folder.mkdir()
            self._writers[split] = ShardWriter(folder, self._shard_bytes)
            self._figures[split] = FieldFigures()
            self._profiles[split] = FieldProfiles()
        return self._writers[split]

    def _send(self, split: str) -> None:
        writer = self._writers[split]
        for shard in writer.shards[self._sent.get(split, 0) :]:
            folder = self._folders[split]
            if (size := (folder / shard.index_name).stat().st_size) > MOST_INDEX_BYTES:
                raise InvalidDataError(f"a shard's index of {size} bytes: it may have {MOST_INDEX_BYTES}; give a smaller shard_bytes")
            self._store.send(shard, folder)
            for name in (shard.tar_name, shard.index_name):
                (folder / name).unlink(missing_ok=True)
            self._sent[split] = self._sent.get(split, 0) + 1

    def _end(self) -> None:
        self.closed = True
        shutil.rmtree(self._folder, ignore_errors=True)


def _listed(shard: Shard) -> DataShard:
    return DataShard(sha256=shard.sha256, index_sha256=shard.index_sha256, bytes=shard.size_bytes, samples=shard.samples)


def _content(key: str, extension: str, value: Any) -> bytes:
    match value:
        case bytes() | bytearray() | memoryview():
            return bytes(value)
        case str():
            return value.encode()
    try:
        return canonical(value)
    except (TypeError, orjson.JSONEncodeError) as error:
        raise InvalidDataError(
            f"sample {key!r}, field {extension!r}: {type(value).__name__} is no bytes, no text, nor what JSON has ({error}); encode it"
        ) from error
