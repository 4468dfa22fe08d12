"""Files of a source: listed in one order, opened with a bound on what they unpack to, and compared at the end.

Holds: no file outside the source is read, not by a link either; a compressed file that unpacks to more than its bound is refused before it
does.
"""

import gzip
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from trainhouse.workers.data.errors import InvalidDataError

MOST_UNPACKED_RATIO: Final = 200
SURELY_UNPACKED_BYTES: Final = 64 << 20
MOST_SAMPLE_BYTES: Final = 512 << 20


class SourceChangedError(InvalidDataError):
    """A source that changed while it was published."""


@dataclass(frozen=True)
class SourceFile:
    """A file, and its name within the source, by `/`."""

    path: Path
    name: str


def files_of(root: Path) -> list[SourceFile]:
    """The files of a folder in the order of their names, or the one file that `root` is. Raises InvalidDataError."""
    if not root.exists():
        raise InvalidDataError(f"{root}: there is no such file or folder")
    if root.is_file():
        return [SourceFile(root, root.name)]
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
                found.append(SourceFile(path, path.relative_to(root).as_posix()))
    if not found:
        raise InvalidDataError(f"{root}: no files in it")
    return sorted(found, key=lambda file: file.name)


def is_utf_8(name: str) -> bool:
    """Whether a name that was read as UTF-8 was in it, with no bytes escaped."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse(error: OSError) -> None:
    raise InvalidDataError(f"{error.filename}: it cannot be read: {error.strerror}") from error


def states_of(files: list[SourceFile]) -> list[tuple[int, int, int]]:
    """Inode, size and time of change of each file. Raises SourceChangedError for one that is gone."""
    states = []
    for file in files:
        try:
            stat = file.path.stat()
        except FileNotFoundError as error:
            raise SourceChangedError(f"{file.path} vanished while it was published; publish again") from error
        states.append((stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return states


@contextmanager
def as_it_is(file: SourceFile) -> Iterator[IO[bytes]]:
    """The bytes of a file. Raises InvalidDataError for those that cannot be read, and FileNotFoundError."""
    try:
        with file.path.open("rb") as raw:
            yield raw
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InvalidDataError(f"{file.path}: it cannot be read: {error.strerror or error}") from error


@contextmanager
def opened(file: SourceFile) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked where its name ends in `.gz`. Raises InvalidDataError and FileNotFoundError."""
    with as_it_is(file) as raw:
        if not file.name.endswith(".gz"):
            yield raw
            return
        packed = file.path.stat().st_size
        with gzip.GzipFile(fileobj=raw) as unpacked:
            bounded = _Bounded(unpacked, MOST_UNPACKED_RATIO * packed + SURELY_UNPACKED_BYTES, file)
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
            raise InvalidDataError(f"{self._file.path}: it cannot be unpacked: {error}; pack it again") from error
        self._read += len(content)
        if self._read > self._most:
            raise InvalidDataError(
                f"{self._file.path}: it unpacks to more than {self._most} bytes, {MOST_UNPACKED_RATIO} times its size and 64 MiB; "
                "unpack it yourself if that is right"
            )
        buffer[: len(content)] = content
        return len(content)


def ending(name: str) -> str:
    """The lower-case extension of a file's name, without `.gz`."""
    return Path(name.lower().removesuffix(".gz")).suffix.removeprefix(".")
