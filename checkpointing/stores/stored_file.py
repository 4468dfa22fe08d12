"""An object as a file that is read at places, such as the list at the end of an archive, without the rest of it.

Holds: bytes that were read once are kept as `io.BufferedReader` does; nothing is written. No more is read at once than fits a bound,
whatever the file says of its own parts.
"""

import errno
import io
from typing import Final

from trainhouse.checkpointing.stores.object_store import ObjectStore

READ_BYTES: Final = 256 << 10
MOST_READ_BYTES: Final = 16 << 20


class _Ranges(io.RawIOBase):
    """Reads by ranges. Raises what the store raises."""

    def __init__(self, objects: ObjectStore, key: str, size_bytes: int) -> None:
        self._objects, self._key, self._size_bytes = objects, key, size_bytes
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size_bytes}[whence]
        if begin + offset < 0:
            raise OSError(errno.EINVAL, f"{begin + offset} is before the beginning of {self._key}")  # as of a file on disk
        self._at = begin + offset
        return self._at

    def readinto(self, room: memoryview, /) -> int:  # type: ignore[override]  # of BufferedReader it is a memoryview
        length_bytes = min(len(room), self._size_bytes - self._at)
        if length_bytes <= 0:
            return 0
        piece = self._objects.get_range(self._key, self._at, length_bytes)
        room[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)


class StoredFile(io.BufferedReader):
    """An object, open to be read. A read raises ValueError where it would be of more than MOST_READ_BYTES."""

    def __init__(self, objects: ObjectStore, key: str, size_bytes: int) -> None:
        super().__init__(_Ranges(objects, key, size_bytes), READ_BYTES)
        self._key, self._size_bytes = key, size_bytes

    def read(self, size: int | None = -1, /) -> bytes:
        there_bytes = max(0, self._size_bytes - self.tell())
        wanted_bytes = there_bytes if size is None or size < 0 else min(size, there_bytes)
        if wanted_bytes > MOST_READ_BYTES:
            raise ValueError(f"{wanted_bytes} bytes at once are more than the {MOST_READ_BYTES} that are read of {self._key}")
        return super().read(wanted_bytes)
