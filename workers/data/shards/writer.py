"""Writer of shards: samples to tars of at most so many bytes, each with its index.

Holds: the same samples give the same files on any machine; a file with a shard's name is whole, and its index is there before it.
Never: holds more of a shard in memory than its index.
"""

import hashlib
import os
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Final, Self

from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.shards import members
from trainhouse.workers.data.shards.index import Field, IndexBuilder, Located, sample_digest

if TYPE_CHECKING:
    from trainhouse.events.model.dataset import DataShard

MOST_BYTES: Final = 128 << 20


@dataclass(frozen=True)
class Shard:
    """Facts of a shard, as a manifest has them."""

    sha256: str
    index_sha256: str
    size_bytes: int
    samples: int

    @classmethod
    def of(cls, listed: "DataShard") -> "Shard":
        """A manifest's."""
        return cls(listed.sha256, listed.index_sha256, listed.bytes, listed.samples)

    @property
    def tar_name(self) -> str:
        """Name of its file."""
        return f"{self.sha256}.tar"

    @property
    def index_name(self) -> str:
        """Name of its index."""
        return f"{self.sha256}.idx"


class ShardWriter:
    """Shards of `folder`, in the order of the samples; those that are whole stand in `shards`.

    A shard ends before the sample that would take it over `most_bytes`, or at `cut`. A sample that is larger alone is a shard of its own.
    """

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        if most_bytes < 1:
            raise InvalidDataError(f"shards of at most {most_bytes} bytes: give at least 1, as {MOST_BYTES}")
        self.shards: list[Shard] = []
        self._folder, self._most_bytes = folder, most_bytes
        self._open: _OpenShard | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.cut()
        elif self._open is not None:
            self._open.drop()

    def add(self, key: str, fields: Mapping[str, bytes]) -> None:
        """Writes a sample after the ones before it, its fields in the order of their names. Raises InvalidDataError."""
        if not fields:
            raise InvalidDataError(f"sample {key!r} has no fields: give it at least one, as {{'txt': b'…'}}")
        parts = [(name, fields[name], members.header(members.member_name(key, name), len(fields[name]))) for name in sorted(fields)]
        length = sum(len(head) + len(content) + -len(content) % members.BLOCK for _, content, head in parts)
        if self._open is not None and self._open.size_bytes + length + len(members.END) > self._most_bytes:
            self.cut()
        if self._open is None:
            self._open = _OpenShard(self._folder)
        self._open.add(key, parts)

    def cut(self) -> None:
        """Ends the shard under way, if there is one; the next sample begins another."""
        if self._open is not None:
            shard, self._open = self._open.finish(), None
            self.shards.append(shard)


class _OpenShard:
    """A tar that grows under a name of its own, which no reader takes for a shard."""

    def __init__(self, folder: Path) -> None:
        self.size_bytes = 0
        self._folder = folder
        self._path = folder / f".{uuid.uuid4().hex}.part"
        self._file: BinaryIO = self._path.open("wb", buffering=1 << 20)
        self._sha256 = hashlib.sha256()
        self._index = IndexBuilder()
        self._keys: set[str] = set()

    def add(self, key: str, parts: list[tuple[str, bytes, bytes]]) -> None:
        if key in self._keys:
            raise InvalidDataError(f"sample {key!r} comes twice in one shard, and would be read as one sample: give each a key of its own")
        self._keys.add(key)
        located: list[Field] = []
        pieces: list[bytes] = []
        at = self.size_bytes
        for extension, content, head in parts:
            length = len(content)
            at += len(head)
            located.append(Field(extension, at, length))
            padding = members.padding(length)
            at += length + len(padding)
            pieces += (head, content, padding)
        whole = b"".join(pieces)
        start, end = located[0].offset - self.size_bytes, located[-1].end - self.size_bytes
        sample = memoryview(whole)[start:end]
        self._index.add(Located(key, tuple(located), sample_digest(sample), zlib.crc32(sample)))
        self._write(whole)

    def finish(self) -> Shard:
        self._write(members.END)
        self._file.close()
        sha256 = self._sha256.hexdigest()
        content = self._index.content(sha256, self.size_bytes)
        shard = Shard(sha256, hashlib.sha256(content).hexdigest(), self.size_bytes, len(self._index))
        beside = self._path.with_suffix(".idx.part")
        beside.write_bytes(content)
        os.replace(beside, self._folder / shard.index_name)
        os.replace(self._path, self._folder / shard.tar_name)
        return shard

    def drop(self) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)

    def _write(self, content: bytes) -> None:
        self._file.write(content)
        self._sha256.update(content)
        self.size_bytes += len(content)
