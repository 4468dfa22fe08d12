"""One sample of a shard, by one read of its bytes.

Holds: a sample that is returned has the checksum that the index gives it.
"""

import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trainhouse.events.model.bad_shard import ShardFault
from trainhouse.workers.data.errors import DamagedShardError
from trainhouse.workers.data.shards.index import Located


@dataclass(frozen=True)
class Sample:
    """A sample's key, and the bytes of each of its fields by extension."""

    key: str
    fields: dict[str, bytes]


class ShardBytes(Protocol):
    """Bytes of a shard's tar. Safe to share by threads."""

    @property
    def name(self) -> str:
        """Its path or address, for messages."""
        ...

    def read(self, start: int, length_bytes: int) -> bytes:
        """`length_bytes` from `start`, fewer at the end."""
        ...


class ShardFile:
    """A shard in a local file, by `pread`."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._file = path.open("rb", buffering=0)  # closed with the last reference, so never under a thread that reads

    def read(self, start: int, length_bytes: int) -> bytes:
        fd = self._file.fileno()
        content = os.pread(fd, length_bytes, start)
        while len(content) < length_bytes and (more := os.pread(fd, length_bytes - len(content), start + len(content))):
            content += more
        return content


def read_sample(shard: ShardBytes, located: Located) -> Sample:
    """Reads one sample and compares its checksum. Raises DamagedShardError."""
    start, length = located.start, located.length_bytes
    content = shard.read(start, length)
    if len(content) < length:
        raise DamagedShardError(
            f"{shard.name} is truncated: sample {located.key!r} is {length} bytes from byte {start} on, and {len(content)} are there; "
            "fetch the shard again, or remove it from the store and publish the version again",
            ShardFault.TRUNCATED,
            sample=located.key,
            expected=f"{length} bytes from byte {start} on",
            seen=f"{len(content)} bytes",
        )
    crc32 = zlib.crc32(content)
    if crc32 != located.crc32:
        raise DamagedShardError(
            f"{shard.name} is damaged: the {length} bytes of sample {located.key!r} from byte {start} on have another checksum than the "
            "index gives; fetch the shard again, or remove it from the store and publish the version again",
            sample=located.key,
            expected=f"CRC-32 {located.crc32:08x} of {length} bytes from byte {start} on",
            seen=f"CRC-32 {crc32:08x}",
        )
    if len(located.fields) == 1:
        return Sample(located.key, {located.fields[0].extension: content})
    return Sample(located.key, {field.extension: content[field.offset - start : field.end - start] for field in located.fields})
