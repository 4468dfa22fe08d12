"""Members of a shard's tar: their names, and their headers with nothing of the machine in them. Pure.

Holds: WebDataset takes the same key and extension from each name that is given here.
"""

import re
import tarfile
from collections.abc import Mapping

from trainhouse.workers.data.errors import InvalidDataError

BLOCK = tarfile.BLOCKSIZE
END = bytes(2 * BLOCK)
MOST_FIELD_BYTES = 8**11 - 1
"""Bytes that a USTAR header can count."""
MOST_KEY_CHARACTERS = 4096

_KEY = re.compile(r"(?:[^/\x00-\x1f\x7f]+/)*[^/.\x00-\x1f\x7f]+")
_EXTENSION = re.compile(r"(?!__)[a-z0-9_+-]+(?:\.[a-z0-9_+-]+)*")


def member_name(key: str, extension: str) -> str:
    """Name of the field's member. Raises InvalidDataError."""
    if len(key) > MOST_KEY_CHARACTERS or not _KEY.fullmatch(key) or key.startswith("__") or {".", ".."} & set(key.split("/")):
        raise InvalidDataError(
            f"sample key {key[:80]!r}: WebDataset would not read it back; give a relative name of at most {MOST_KEY_CHARACTERS} "
            "characters, without a dot in its last part, control characters, empty parts, '.' or '..', that does not begin with '__'"
        )
    if not _EXTENSION.fullmatch(extension):
        raise InvalidDataError(
            f"sample {key!r}: its field {extension[:80]!r} is no extension that WebDataset reads back; "
            "take lower-case letters, digits, '_', '+', '-', and single dots between them, as 'jpg' or 'seg.png'"
        )
    return f"{key}.{extension}"


def header(name: str, length_bytes: int) -> bytes:
    """The header before a member's bytes: whole blocks."""
    if length_bytes > MOST_FIELD_BYTES:
        raise InvalidDataError(f"{name}: {length_bytes} bytes; a member of a shard holds at most {MOST_FIELD_BYTES}: cut it into samples")
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
    return BLOCK if len(name) <= tarfile.LENGTH_NAME and name.isascii() else len(header(name, length_bytes))
