"""Members of a shard's tar: their names, and their headers with nothing of the machine in them. Pure.

Holds: WebDataset takes the same key and extension from each name that is given here.
"""

import re
import tarfile
from collections.abc import Mapping
from functools import lru_cache

from trainhouse.workers.data.errors import InvalidDataError

BLOCK = tarfile.BLOCKSIZE
END = bytes(2 * BLOCK)
MOST_FIELD_BYTES = 8**11 - 1
"""Bytes that a USTAR header can count."""
MOST_KEY_CHARACTERS = 4096

# Parts of a header without name and size, by the offsets of POSIX.
_EMPTY = tarfile.TarInfo("").tobuf(tarfile.PAX_FORMAT)
_BEFORE_SIZE, _BEFORE_CHECKSUM, _AFTER_CHECKSUM = _EMPTY[100:124], _EMPTY[135:148], _EMPTY[154:]
_EMPTY_SUM, _EMPTY_SIZE_SUM = int(_EMPTY[148:154], 8), sum(_EMPTY[124:135])

_KEY = re.compile(r"(?:[^/\x00-\x1f\x7f]+/)*[^/.\x00-\x1f\x7f]+")
_EXTENSION = re.compile(r"(?!__)[a-z0-9_+-]+(?:\.[a-z0-9_+-]+)*")


def member_name(key: str, extension: str) -> str:
    """Name of the field's member. Raises InvalidDataError."""
    if not _is_key(key):
        raise InvalidDataError(
            f"sample key {key[:80]!r}: WebDataset would not read it back; give a relative name of at most {MOST_KEY_CHARACTERS} "
            "characters, without a dot in its last part, control characters, empty parts, '.' or '..', that does not begin with '__'"
        )
    if not _is_extension(extension):
        raise InvalidDataError(
            f"sample {key!r}: its field {extension[:80]!r} is no extension that WebDataset reads back; "
            "take lower-case letters, digits, '_', '+', '-', and single dots between them, as 'jpg' or 'seg.png'"
        )
    return f"{key}.{extension}"


def header(name: str, length_bytes: int) -> bytes:
    """The header before a member's bytes: whole blocks."""
    if length_bytes > MOST_FIELD_BYTES:
        raise InvalidDataError(f"{name}: {length_bytes} bytes; a member of a shard holds at most {MOST_FIELD_BYTES}: cut it into samples")
    if _fits_ustar(name):
        return _ustar(name.encode("ascii"), length_bytes)
    info = tarfile.TarInfo(name)
    info.size = length_bytes
    return info.tobuf(tarfile.PAX_FORMAT)


def padding(length_bytes: int) -> bytes:
    """Zeros after a member's bytes, up to whole blocks."""
    return bytes(-length_bytes % BLOCK)


def sample_bytes(key: str, fields: Mapping[str, bytes]) -> int:
    """Bytes of a sample in a shard: those of its members, with their headers. Raises InvalidDataError."""
    return sum(_header_bytes(member_name(key, name), len(c)) + len(c) + -len(c) % BLOCK for name, c in fields.items())


def _header_bytes(name: str, length_bytes: int) -> int:
    """Bytes of a member's header: one block, where USTAR holds the name."""
    return BLOCK if _fits_ustar(name) else len(header(name, length_bytes))


def _fits_ustar(name: str) -> bool:
    return len(name) <= tarfile.LENGTH_NAME and name.isascii()


def _ustar(name: bytes, length_bytes: int) -> bytes:
    """The block that tarfile writes, whose fields are the same but for name, size and checksum: a tenth of the time."""
    size = b"%011o" % length_bytes
    checksum = _EMPTY_SUM + sum(name) + sum(size) - _EMPTY_SIZE_SUM
    return b"".join((name.ljust(tarfile.LENGTH_NAME, b"\0"), _BEFORE_SIZE, size, _BEFORE_CHECKSUM, b"%06o" % checksum, _AFTER_CHECKSUM))


@lru_cache(64)  # of a sample's fields the key is the same
def _is_key(key: str) -> bool:
    return not (len(key) > MOST_KEY_CHARACTERS or not _KEY.fullmatch(key) or key.startswith("__") or {".", ".."} & set(key.split("/")))


@lru_cache(1024)
def _is_extension(extension: str) -> bool:
    return _EXTENSION.fullmatch(extension) is not None
