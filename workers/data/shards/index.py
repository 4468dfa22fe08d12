"""The index of one shard: where each sample lies in the tar, and its hash.

Holds: an index of a local folder is a view of the mapped file: opening it reads its header, and locating a sample a few of its pages.
Never: trusts a number in the file before it fits the file's size.
"""

import hashlib
import mmap
import os
import struct
from array import array
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal, NamedTuple

import numpy as np

from trainhouse.workers.data.errors import DamagedShardError, InvalidDataError

HASH_BYTES: Final = 16
MOST_EXTENSIONS: Final = 2**16
MAGIC: Final = b"TRHIDX1\n"
_HEADER: Final = struct.Struct("<8s32s4Q")


class Field(NamedTuple):
    """A field's bytes in the tar."""

    extension: str
    offset: int
    length_bytes: int

    @property
    def end(self) -> int:
        """Offset after its last byte."""
        return self.offset + self.length_bytes


class Located(NamedTuple):
    """A sample's bytes in the tar, from `start` on; the hash and the checksum of all of them."""

    key: str
    fields: tuple[Field, ...]
    digest: bytes
    crc32: int

    @property
    def start(self) -> int:
        """Offset of its first field."""
        return self.fields[0].offset

    @property
    def length_bytes(self) -> int:
        """Bytes up to the end of its last field."""
        return self.fields[-1].end - self.start


def sample_digest(content: bytes | memoryview) -> bytes:
    """Hash of a sample over its bytes of the tar."""
    return hashlib.sha256(content).digest()[:HASH_BYTES]


class ShardIndex:
    """Index of one shard, over the bytes of its file. Raises DamagedShardError where they are none."""

    def __init__(self, content: bytes | memoryview | mmap.mmap, name: str) -> None:
        self.name = name
        self._content = content
        size = len(content)
        if size < _HEADER.size:
            raise self._damaged(f"it has {size} bytes, fewer than its header")
        magic, sha256, self.shard_bytes, self.samples, fields, extension_bytes = _HEADER.unpack_from(content)
        if magic != MAGIC:
            raise self._damaged(f"it begins with {magic!r}, not {MAGIC!r}")
        self.shard_sha256: str = sha256.hex()
        least = _HEADER.size + 16 * (self.samples + 1) + (16 + 2) * fields + (HASH_BYTES + 4) * self.samples + extension_bytes
        if size < least:
            raise self._damaged(f"it has {size} bytes, and its header counts for {least}")
        view = _View(content)
        self._first_field, self._first_key_byte = view.take("Q", self.samples + 1), view.take("Q", self.samples + 1)
        self._offset, self._length = view.take("Q", fields), view.take("Q", fields)
        self._digest, self._crc32 = view.take("B", HASH_BYTES * self.samples), view.take("I", self.samples)
        self._extension = view.take("H", fields)
        self._extensions = _lines(bytes(view.take("B", extension_bytes)))
        self._keys = view.take("B", size - least)
        if self._first_key_byte[-1] != size - least or self._first_field[-1] != fields:
            raise self._damaged(f"it has {size} bytes, and its counts are of another length")

    @classmethod
    def load(cls, path: Path) -> "ShardIndex":
        """Maps the file. Raises DamagedShardError; FileNotFoundError."""
        with path.open("rb") as file:
            if not os.fstat(file.fileno()).st_size:
                raise DamagedShardError(f"{path}: an index of no bytes; fetch it again, or remove it from the store and publish again")
            return cls(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), str(path))

    @property
    def sha256(self) -> str:
        """Hash of the index itself, in hexadecimal."""
        return hashlib.sha256(self._content).hexdigest()

    @property
    def memory_bytes(self) -> int:
        """Bytes of this process's memory that it holds: none where its file is mapped."""
        return 0 if isinstance(self._content, mmap.mmap) else len(self._content)

    def __len__(self) -> int:
        return int(self.samples)

    def check(self, shard_sha256: str, shard_bytes: int, samples: int) -> None:
        """Compares it with what the manifest says of the shard. Raises DamagedShardError."""
        if (self.shard_sha256, self.shard_bytes, self.samples) != (shard_sha256, shard_bytes, samples):
            raise DamagedShardError(
                f"{self.name} is the index of another shard: of {self.shard_sha256[:12]}… with {self.shard_bytes} bytes and "
                f"{self.samples} samples, not of {shard_sha256[:12]}… with {shard_bytes} and {samples}; put its own index beside the shard"
            )

    def locate(self, position: int) -> Located:
        """The sample at `position` of the shard. Raises DamagedShardError; IndexError."""
        if not 0 <= position < self.samples:
            raise IndexError(f"{self.name}: sample {position} of {self.samples}")
        first, after = self._first_field[position], self._first_field[position + 1]
        begin, end = self._first_key_byte[position], self._first_key_byte[position + 1]
        try:
            named, offset, length = self._extensions, self._offset, self._length
            fields = tuple([Field(named[self._extension[n]], offset[n], length[n]) for n in range(first, after)])
            digest = bytes(self._digest[HASH_BYTES * position : HASH_BYTES * (position + 1)])
            located = Located(bytes(self._keys[begin:end]).decode(), fields, digest, self._crc32[position])
            whole = bool(fields) and all(one.end <= other.offset for one, other in pairwise(fields))
        except (UnicodeDecodeError, IndexError):
            whole = False
        if not whole or fields[-1].end > self.shard_bytes:
            raise self._damaged(f"its entry of sample {position} points out of the shard")
        return located

    def _damaged(self, how: str) -> DamagedShardError:
        return DamagedShardError(
            f"{self.name} is no index of a shard: {how}; fetch it again, or remove it from the store and publish again"
        )


class IndexBuilder:
    """Entries of an index under way, sample by sample."""

    def __init__(self) -> None:
        self._first_field, self._first_key_byte = array("Q", [0]), array("Q", [0])
        self._offsets, self._lengths, self._extension = array("Q"), array("Q"), array("I")
        self._numbers: dict[str, int] = {}
        self._keys = bytearray()
        self._digests = bytearray()
        self._crc32 = array("I")

    def __len__(self) -> int:
        return len(self._first_field) - 1

    def add(self, located: Located) -> None:
        """Takes the next sample. Raises InvalidDataError."""
        for field in located.fields:
            self._offsets.append(field.offset)
            self._lengths.append(field.length_bytes)
            self._extension.append(self._numbers.setdefault(field.extension, len(self._numbers)))
        if len(self._numbers) > MOST_EXTENSIONS:
            raise InvalidDataError(f"sample {located.key!r}: more than {MOST_EXTENSIONS} different fields in one shard; take fewer")
        self._first_field.append(len(self._offsets))
        self._keys += located.key.encode()
        self._first_key_byte.append(len(self._keys))
        self._digests += located.digest
        self._crc32.append(located.crc32)

    def content(self, shard_sha256: str, shard_bytes: int) -> bytes:
        """Bytes of the index of the shard that this is."""
        extensions = "".join(f"{extension}\n" for extension in self._numbers).encode()
        sizes = (shard_bytes, len(self), len(self._offsets), len(extensions))
        numbers = (_packed(each, "<u8") for each in (self._first_field, self._first_key_byte, self._offsets, self._lengths))
        head = _HEADER.pack(MAGIC, bytes.fromhex(shard_sha256), *sizes)
        return b"".join(
            (head, *numbers, self._digests, _packed(self._crc32, "<u4"), _packed(self._extension, "<u2"), extensions, self._keys)
        )


class _View:
    """Arrays over the bytes after the header, one after another: views of a few bytes, which give Python's own numbers."""

    def __init__(self, content: bytes | memoryview | mmap.mmap) -> None:
        self._content, self._at = memoryview(content), _HEADER.size

    def take(self, kind: Literal["Q", "I", "H", "B"], count: int) -> "memoryview[int]":
        end = self._at + count * struct.calcsize(kind)
        result = self._content[self._at : end].cast(kind)  # little-endian, as all machines that torch runs on
        self._at = end
        return result


def _packed(numbers: Sequence[int], dtype: str) -> bytes:
    return np.array(numbers, dtype).tobytes()


def _lines(content: bytes) -> tuple[str, ...]:
    return tuple(content.decode(errors="replace").split("\n")[:-1])
