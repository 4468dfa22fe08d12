"""Files of a source in an object store, read in pieces.

Holds: what is read of an object is the content that was listed: each piece is asked for by its ETag; one piece of an open file is in
memory.
Never: writes.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any, Final, Protocol

from trainhouse.checkpointing.errors import ObjectChangedError
from trainhouse.checkpointing.stores.object_store import ObjectStat
from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.publishing.bounded_files import SourceChangedError, SourceFile

PIECE_BYTES: Final = 8 << 20


class ListedObjects(Protocol):
    """Part of an object store that a source needs."""

    def uri(self, key: str) -> str: ...

    def stat(self, key: str) -> ObjectStat | None: ...

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectStat]: ...

    def get_same_range(self, key: str, start: int, length_bytes: int, etag: str) -> bytes: ...


@dataclass(frozen=True, slots=True)
class StoredFile:
    """An object, with its ETag and time of change in seconds since 1970."""

    objects: ListedObjects = field(compare=False, repr=False)
    key: str
    name: str
    size_bytes: int
    changed_s: float
    etag: str

    @property
    def where(self) -> str:
        return self.objects.uri(self.key)

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        # No buffer is larger than the file: a folder may be a million small ones.
        with io.BufferedReader(_Pieces(self), max(1, min(PIECE_BYTES, self.size_bytes))) as stream:
            yield stream


@dataclass(frozen=True)
class StoredRoot:
    """All objects below a prefix that ends in no slash, as a folder; or the one object that has it as its key."""

    objects: ListedObjects
    prefix: str

    def __str__(self) -> str:
        return self.objects.uri(self.prefix)

    def files(self) -> list[SourceFile]:
        only = self.objects.stat(self.prefix)
        if only is not None:
            return [self._file(only, self.prefix.rpartition("/")[2])]
        below = f"{self.prefix}/"
        found: list[SourceFile] = []
        for stat in self.objects.list(below):
            name = stat.key.removeprefix(below)
            if name.endswith("/") or not name:
                continue  # a folder, as consoles of S3 mark one
            parts = name.split("/")
            if any(part in ("", ".", "..") for part in parts):
                raise InvalidDataError(f"{self.objects.uri(stat.key)} cannot be a file in a folder; rename it, or name another prefix")
            if not any(part.startswith(".") for part in parts):
                found.append(self._file(stat, name))
        if not found:
            raise InvalidDataError(f"{self}: there is no such object, and none below {below}")
        return sorted(found, key=lambda file: file.name)

    def _file(self, stat: ObjectStat, name: str) -> StoredFile:
        return StoredFile(self.objects, stat.key, name, stat.size_bytes, stat.modified_s, stat.etag)


class _Pieces(io.RawIOBase):
    """An object as a file: each read is one request."""

    def __init__(self, file: StoredFile) -> None:
        self._file, self._at = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size_bytes}[whence]
        if start + offset < 0:
            raise ValueError(f"a seek to {start + offset}, before the beginning")
        self._at = start + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        size = min(len(buffer), PIECE_BYTES, self._file.size_bytes - self._at)
        if size <= 0:
            return 0
        try:
            piece = self._file.objects.get_same_range(self._file.key, self._at, size, self._file.etag)
        except ObjectChangedError as error:
            raise SourceChangedError(f"{error}, while it was published; nothing was: publish again once it is whole") from error
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)
