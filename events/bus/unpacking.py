"""Whether the records of a compressed batch are of a size that a process can hold.

Brokers bound a batch as it is sent, and pass it on as it is: 16 KB of zstd are 512 MiB for who reads them, so that one record of somebody
who may write to one topic would end whoever reads it, at each start again.

Holds: no more than `MOST_UNPACKED_BYTES` are unpacked to find out, and nothing where the codec could not make that much of the bytes.
"""

import gzip
import io
import zlib
from typing import Any, Final

from aiokafka import codec

from trainhouse.events.wire.topics import MOST_UNPACKED_BYTES

GZIP, LZ4, ZSTD = 1, 3, 4
# Most batches fit into the first one; the greater ones cost time to make.
_ROOM_BYTES: Final = (256 * 1024, 4 * 1024 * 1024, MOST_UNPACKED_BYTES)
# What one byte becomes at most; snappy's 21 times what brokers take is no danger.
_RATIO: Final = {GZIP: 1032.0, LZ4: 255.0, ZSTD: float("inf")}


def too_large(kind: int, data: memoryview) -> bool:
    """Whether a batch's records, packed by this codec, are too many bytes."""
    if kind not in _RATIO or len(data) * _RATIO[kind] <= MOST_UNPACKED_BYTES:
        return False
    if kind == GZIP:
        return _gzip_is(data)
    cramjam: Any = codec.cramjam
    if cramjam is None:
        return False  # aiokafka itself says that it cannot read this codec
    unpack = (cramjam.lz4 if kind == LZ4 else cramjam.zstd).decompress_into
    return not any(_fits(unpack, data, room) for room in _ROOM_BYTES)


def _fits(unpack: Any, data: memoryview, room_bytes: int) -> bool:
    try:
        unpack(bytes(data), bytearray(room_bytes))
    except Exception:  # damaged, or more than the room: cramjam tells no difference
        return False
    return True


def _gzip_is(data: memoryview) -> bool:
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as unpacked:
        try:
            left = MOST_UNPACKED_BYTES
            while left >= 0 and (part := unpacked.read(min(left + 1, 1024 * 1024))):
                left -= len(part)
        except (OSError, EOFError, zlib.error):
            return True
    return left < 0
