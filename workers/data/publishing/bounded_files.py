"""Files of a source: listed in one order, opened with a bound on what they unpack to, and compared at the end.

Holds: no file outside the source is read, not by a link either; a compressed file that unpacks to more than its bound is refused before it
does.
"""

import gzip
import io
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final, Protocol

from trainhouse.workers.data.errors import InvalidDataError

MOST_UNPACKED_RATIO: Final = 200
SURELY_UNPACKED_BYTES: Final = 64 << 20
MOST_SAMPLE_BYTES: Final = 512 << 20


class SourceChangedError(InvalidDataError):
    """A source that changed while it was published."""


class SourceFile(Protocol):
    """A file of a source as it was when the source was listed: another state of it is another file."""

    @property
    def name(self) -> str:
        """Its name within the source, by `/`."""
        ...

    @property
    def where(self) -> str:
        """Its path or address, for messages."""
        ...

    @property
    def size_bytes(self) -> int:
        """Its size when it was listed."""
        ...

    def open(self) -> AbstractContextManager[IO[bytes]]:
        """Its bytes, which may be sought in. Raises InvalidDataError, SourceChangedError; blocks."""
        ...


class SourceRoot(Protocol):
    """The place of a source's files. Its text is for messages."""

    def files(self) -> list[SourceFile]:
        """All files, in the order of their names. Raises InvalidDataError, also where there are none; blocks."""
        ...


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file of this machine, with its inode and time of change."""

    path: Path
    name: str
    size_bytes: int
    inode: int
    changed_ns: int

    @property
    def where(self) -> str:
        return str(self.path)

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        try:
            with self.path.open("rb") as raw:
                yield raw
        except FileNotFoundError as error:
            raise _vanished(self.path) from error
        except OSError as error:
            raise InvalidDataError(f"{self.path}: it cannot be read: {error.strerror or error}") from error


@dataclass(frozen=True)
class LocalRoot:
    """A folder of this machine, or one file."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def files(self) -> list[SourceFile]:
        if not self.path.exists():
            raise InvalidDataError(f"{self.path}: there is no such file or folder")
        if self.path.is_file():
            return [_local_file(self.path, self.path.name)]
        return sorted(_files_in(self.path), key=lambda file: file.name)


def _files_in(root: Path) -> list[SourceFile]:
    inside = root.resolve()
    found: list[SourceFile] = []
    for folder, folders, names in os.walk(root, onerror=_refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in (*names, *(n for n in folders if (Path(folder) / n).is_symlink())):
            path = Path(folder) / name
            if name.startswith("."):
                continue
            if path.is_symlink() and not path.resolve().is_relative_to(inside):
                raise InvalidDataError(f"{path}: a link that leads out of {root}; copy what it leads to into the folder, or remove it")
            if not is_utf_8(name):
                raise InvalidDataError(f"{os.fspath(path)!r}: its name is not in UTF-8; rename it")
            if path.is_file():
                found.append(_local_file(path, path.relative_to(root).as_posix()))
    if not found:
        raise InvalidDataError(f"{root}: no files in it")
    return found


def _local_file(path: Path, name: str) -> LocalFile:
    try:
        stat = path.stat()
    except FileNotFoundError as error:
        raise _vanished(path) from error
    return LocalFile(path, name, stat.st_size, stat.st_ino, stat.st_mtime_ns)


def _vanished(path: Path) -> SourceChangedError:
    return SourceChangedError(f"{path} vanished while it was published; publish again")


def is_utf_8(name: str) -> bool:
    """Whether a name that was read as UTF-8 was in it, with no bytes escaped."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse(error: OSError) -> None:
    raise InvalidDataError(f"{error.filename}: it cannot be read: {error.strerror}") from error


@contextmanager
def opened(file: SourceFile) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked where its name ends in `.gz`. Raises InvalidDataError, SourceChangedError."""
    with file.open() as raw:
        if not file.name.endswith(".gz"):
            yield raw
            return
        with gzip.GzipFile(fileobj=raw) as unpacked:
            bounded = _Bounded(unpacked, MOST_UNPACKED_RATIO * file.size_bytes + SURELY_UNPACKED_BYTES, file)
            yield io.BufferedReader(bounded, 1 << 20)


class _Bounded(io.RawIOBase):
    """A stream that ends in an error beyond so many bytes."""

    def __init__(self, stream: gzip.GzipFile, most_bytes: int, file: SourceFile) -> None:
        self._stream, self._most, self._file = stream, most_bytes, file
        self._read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            content = self._stream.read(len(buffer))
        except (OSError, EOFError) as error:
            raise InvalidDataError(f"{self._file.where}: it cannot be unpacked: {error}; pack it again") from error
        self._read += len(content)
        if self._read > self._most:
            raise InvalidDataError(
                f"{self._file.where}: it unpacks to more than {self._most} bytes, {MOST_UNPACKED_RATIO} times its size and 64 MiB; "
                "unpack it yourself if that is right"
            )
        buffer[: len(content)] = content
        return len(content)


def ending(name: str) -> str:
    """The lower-case extension of a file's name, without `.gz`."""
    return PurePosixPath(name.lower().removesuffix(".gz")).suffix.removeprefix(".")
