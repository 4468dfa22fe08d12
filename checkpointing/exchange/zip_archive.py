"""Plan of an uncompressed zip archive whose large records are filled in later, as `torch.save` lays one out.

Holds: records of data begin at multiples of ALIGNMENT, so that they can be mapped into memory; sizes beyond 4 GiB are zip64's. Pure.
"""

import struct
import zlib
from dataclasses import dataclass

from trainhouse.checkpointing.exchange.file_plan import Checksum, FilePlan

ALIGNMENT = 64
_LOCAL = struct.Struct("<IHHHHHIIIHH")
_CENTRAL = struct.Struct("<IHHHHHHIIIHHHHHII")
_END64 = struct.Struct("<IQHHIIQQQQ")
_LOCATOR64 = struct.Struct("<IIQI")
_END = struct.Struct("<IHHHHIIH")
_EXTRA = struct.Struct("<HH")
_ZIP64, _PADDING = 0x0001, 0x4246
_MOST, _VERSION, _UTF8 = 0xFFFFFFFF, 45, 0x0800
_CRC_IN_LOCAL, _CRC_IN_CENTRAL = 14, 16
_EPOCH_DATE = 0x21  # 1 January 1980: no time, so that equal contents are equal files


@dataclass(frozen=True)
class _Entry:
    name: bytes
    header: int
    data: int
    size_bytes: int
    crc: int | None


class ZipArchive:
    """An archive within a file's plan: offsets in it count from where it begins."""

    def __init__(self, plan: FilePlan, folder: str) -> None:
        self._plan = plan
        self._folder = folder
        self._base = plan.size_bytes
        self._entries: list[_Entry] = []

    def add(self, name: str, content: bytes) -> None:
        """Adds a record whose bytes are known."""
        self._header(name, len(content), zlib.crc32(content))
        self._plan.append(content)

    def add_later(self, name: str, size_bytes: int) -> None:
        """Begins a record whose `size_bytes` are the next thing that the caller appends to the plan."""
        self._header(name, size_bytes, None)

    def close(self) -> None:
        """Appends the directory of the archive."""
        start = self._plan.size_bytes
        for entry in self._entries:
            at = self._plan.append(_central(entry))
            if entry.crc is None:
                self._plan.checksums.append(
                    Checksum(entry.data, entry.size_bytes, (self._base + entry.header + _CRC_IN_LOCAL, at + _CRC_IN_CENTRAL))
                )
        size, offset, count = self._plan.size_bytes - start, start - self._base, len(self._entries)
        end64 = self._plan.size_bytes - self._base
        self._plan.append(_END64.pack(0x06064B50, _END64.size - 12, _VERSION, _VERSION, 0, 0, count, count, size, offset))
        self._plan.append(_LOCATOR64.pack(0x07064B50, 0, end64, 1))
        few = min(count, 0xFFFF)
        self._plan.append(_END.pack(0x06054B50, 0, 0, few, few, min(size, _MOST), min(offset, _MOST), 0))

    def _header(self, name: str, size_bytes: int, crc: int | None) -> None:
        encoded = f"{self._folder}/{name}".encode()
        header = self._plan.size_bytes - self._base
        extra = _EXTRA.pack(_ZIP64, 16) + struct.pack("<QQ", size_bytes, size_bytes) if size_bytes >= _MOST else b""
        unpadded = header + _LOCAL.size + len(encoded) + len(extra) + _EXTRA.size
        padding = -unpadded % ALIGNMENT
        extra += _EXTRA.pack(_PADDING, padding) + b"Z" * padding
        shown = min(size_bytes, _MOST)
        fields = (_VERSION, _UTF8, 0, 0, _EPOCH_DATE, crc or 0, shown, shown, len(encoded), len(extra))
        self._plan.append(_LOCAL.pack(0x04034B50, *fields) + encoded + extra)
        self._entries.append(_Entry(encoded, header, self._plan.size_bytes, size_bytes, crc))


def _central(entry: _Entry) -> bytes:
    large = [n for n in (entry.size_bytes, entry.size_bytes, entry.header) if n >= _MOST]
    extra = _EXTRA.pack(_ZIP64, 8 * len(large)) + struct.pack(f"<{len(large)}Q", *large) if large else b""
    shown = min(entry.size_bytes, _MOST)
    fields = (_VERSION, _VERSION, _UTF8, 0, 0, _EPOCH_DATE, entry.crc or 0, shown, shown, len(entry.name), len(extra), 0, 0, 0, 0)
    return _CENTRAL.pack(0x02014B50, *fields, min(entry.header, _MOST)) + entry.name + extra
