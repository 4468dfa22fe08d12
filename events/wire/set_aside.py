"""Placeholder of a batch that was not unpacked: one record at its last offset, which cannot be decoded as an event.

Holds: it names the offsets that it stands for, so a reader that counts them sees that none is missing.
Never: imports a client of Kafka.
"""

import re
from typing import Final

from trainhouse.events.wire.topics import MOST_UNPACKED_BYTES

_PREFIX: Final = b"a batch that cannot be unpacked, or to more than %d MiB, was not read: " % (MOST_UNPACKED_BYTES // 1024**2)
_OFFSETS: Final = re.compile(re.escape(_PREFIX) + rb"offsets (\d{1,19}) to \d{1,19}, \d{1,19} bytes as it was sent")


def too_large_value(first: int, last: int, packed_bytes: int) -> bytes:
    """Value of the placeholder for a batch of these offsets."""
    return _PREFIX + b"offsets %d to %d, %d bytes as it was sent" % (first, last, packed_bytes)


def is_too_large(value: bytes | None) -> bool:
    """Whether this stands in the place of a batch."""
    return value is not None and bytes(value[: len(_PREFIX)]) == _PREFIX


def first_offset(value: bytes | None) -> int | None:
    """The first offset that this stands for; None where it is a record like others."""
    found = _OFFSETS.fullmatch(value) if value is not None else None
    return None if found is None else int(found[1])
