"""Samples of a WebDataset tar, read as a stream from its first byte to its last.

Holds: a tar that is damaged, cut short, or goes on after its end is refused, where tarfile takes what it cannot read for the end; headers
and samples are of bounded size; members are not kept.
"""

import io
import tarfile
from collections.abc import Iterator
from functools import partial
from pathlib import PurePosixPath
from typing import IO, Final

from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.publishing.bounded_files import SourceFile
from trainhouse.workers.data.publishing.sample_fields import Fields, key_and_extension, small_enough
from trainhouse.workers.data.publishing.seen_keys import SeenKeys

MOST_HEADER_BYTES: Final = 1 << 20
_PIECE_BYTES: Final = 1 << 20
_END_BLOCK: Final = bytes(tarfile.BLOCKSIZE)


def tar_samples(stream: IO[bytes], file: SourceFile) -> Iterator[tuple[str, Fields]]:
    """Each sample's key and fields. Raises InvalidDataError."""
    try:
        yield from _samples(_ForwardStream(stream, file), file)
    except (tarfile.TarError, ValueError, RecursionError) as error:
        raise InvalidDataError(f"{file.where}: it is no whole tar: {error}") from error


def _samples(stream: "_ForwardStream", file: SourceFile) -> Iterator[tuple[str, Fields]]:
    key, fields = "", Fields()
    seen = SeenKeys()
    with tarfile.TarFile(fileobj=stream) as tar:
        while True:
            stream.allow(MOST_HEADER_BYTES)
            member = tar.next()
            if member is None:
                break
            tar.members.clear()  # type: ignore[attr-defined]  # else it holds each
            if member.isdir():
                continue
            where = f"{file.where}: member {member.name[:200]!r}"
            if not member.isfile():
                raise InvalidDataError(f"{where} is a link or a device; a sample's fields are files")
            small_enough(member.size + sum(map(len, fields.values())), where)
            name = member.name.removeprefix("./")
            if name.startswith("/") or ".." in PurePosixPath(name).parts:
                raise InvalidDataError(f"{where} leads out of the tar; pack it again with relative names")
            each, extension = key_and_extension(name, where)
            if each != key and fields:
                yield key, fields
                fields = {}
            if not fields:
                seen.add(each)
            key = each
            if extension in fields:
                raise InvalidDataError(f"{where}: sample {key!r} has a field {extension} already; give each sample a key of its own")
            content = tar.extractfile(member)
            assert content is not None, "a file has content"
            stream.allow(member.size)
            fields[extension] = b"".join(iter(partial(content.read, _PIECE_BYTES), b""))
        _check_end(stream, file, tar.offset)
    if apart := seen.repeated():
        raise InvalidDataError(
            f"{file.where}: the files of {apart} samples are apart, and each part would be a sample of its own; "
            "sort the tar by name, as `tar --sort=name` does"
        )
    if fields:
        yield key, fields


def _check_end(stream: "_ForwardStream", file: SourceFile, offset: int) -> None:
    """Demands two blocks of zeros at `offset`, of which the first was just read, and only zeros after them."""
    first = stream.last
    stream.allow(tarfile.BLOCKSIZE)
    if first != _END_BLOCK or len(second := stream.read(tarfile.BLOCKSIZE)) < tarfile.BLOCKSIZE:
        raise InvalidDataError(
            f"{file.where}: it is damaged or cut short at byte {offset}: it has no whole header there, nor the two blocks of zeros that "
            "end a tar; pack it again"
        )
    if second != _END_BLOCK or any(piece.strip(b"\0") for piece in stream.rest()):
        raise InvalidDataError(
            f"{file.where}: it goes on after its end at byte {offset}; publish tars that were put together as a folder of them"
        )


class _ForwardStream(io.RawIOBase):
    """A stream for tarfile, read forward only, and no further than is allowed."""

    def __init__(self, stream: IO[bytes], file: SourceFile) -> None:
        self._stream, self._file = stream, file
        self._at = 0
        self._allowed = MOST_HEADER_BYTES
        self.last = b""
        """What the last call of `read` returned."""

    def allow(self, size: int) -> None:
        """Lets so many bytes be read from here on."""
        self._allowed = size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_CUR:
            offset += self._at
        if whence == io.SEEK_END or offset < self._at:
            raise tarfile.StreamError("a header leads backwards")
        while self._at < offset and (piece := self._stream.read(min(_PIECE_BYTES, offset - self._at))):
            self._at += len(piece)
        return self._at

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= self._allowed:
            raise InvalidDataError(f"{self._file.where}: a header of more than {MOST_HEADER_BYTES} bytes at byte {self._at}; pack it again")
        self._allowed -= size
        self.last = self._stream.read(size)
        self._at += len(self.last)
        return self.last

    def rest(self) -> Iterator[bytes]:
        """All that is left, in pieces."""
        return iter(partial(self._stream.read, _PIECE_BYTES), b"")
