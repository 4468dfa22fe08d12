"""Readers of records by aiokafka that no record can stop, whatever the names of its headers, however small it was packed.

Brokers take any bytes as the name of a header, and aiokafka raises on what is no UTF-8: at the same record again and again, so that one
record of somebody who may write to one topic would stop for ever whoever reads it (intake, a scheduler, the detector).

Holds: a batch is read as aiokafka reads it; one that it cannot read is read once more, record by record, with the names that are no UTF-8
replaced. Keys, values and what headers hold are bytes and stay as they are. In place of a batch that would unpack to more than a process
can hold, or that brokers took and we cannot unpack (bytes behind the end of gzip, checksums that brokers do not look at), there is one
record, which says so and which nobody can read, so that it is answered as such; where only the rest cannot be read, behind what can.
Never: passes over a record; sets a batch aside for what this process lacks (memory, a codec).
"""

from collections.abc import Iterator
from typing import Any

import structlog
from aiokafka.consumer import fetcher
from aiokafka.errors import CorruptRecordException, UnsupportedCodecError
from aiokafka.record.default_records import _DefaultRecordBatchPy, _DefaultRecordPy
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import decode_varint

from trainhouse.events.bus.unpacking import too_large
from trainhouse.events.wire.set_aside import too_large_value

log = structlog.get_logger(__name__)
_LENGTH = slice(8, 12)
_OVERHEAD_BYTES = 12
_CODEC_AT, _CODEC, _RECORDS_AT = 22, 0b111, 61


class AnyHeaders:
    """The batches of one fetched piece of a partition."""

    def __init__(self, data: bytes) -> None:
        self._records = MemoryRecords(data)
        self._data = data
        self._begin = 0

    def size_in_bytes(self) -> int:
        """As aiokafka's own."""
        return int(self._records.size_in_bytes())

    def has_next(self) -> bool:
        """As aiokafka's own."""
        return bool(self._records.has_next())

    def next_batch(self) -> Any:
        """The next batch, None behind the last one."""
        batch = self._records.next_batch()
        if batch is None:
            return None
        begin = self._begin
        self._begin += _OVERHEAD_BYTES + int.from_bytes(self._data[begin:][:_OVERHEAD_BYTES][_LENGTH], "big")
        return _Batch(batch, memoryview(self._data)[begin : self._begin])


class _Batch:
    """aiokafka's batch, and its bytes for where that cannot go on."""

    __slots__ = ("_batch", "_data")

    def __init__(self, batch: Any, data: memoryview) -> None:
        self._batch = batch
        self._data = data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    @property
    def size_bytes(self) -> int:
        """As it was sent."""
        return len(self._data)

    def __next__(self) -> Any:
        return next(self._batch)

    def __iter__(self) -> Iterator[Any]:
        kind = self._data[_CODEC_AT] & _CODEC
        first, last = self._batch.base_offset, self._batch.next_offset - 1
        if not (kind and too_large(kind, self._data[_RECORDS_AT:])):
            try:
                for record in self._records():
                    first = record.offset + 1
                    yield record
                return
            except (MemoryError, UnsupportedCodecError):
                raise  # of this process, not of the batch
            except Exception as error:  # what codecs and readers raise on what brokers took: of no common kind
                log.warning("a batch cannot be read to its end", unread_from=first, last_offset=last, error=repr(error))
        if first <= last:
            yield _DefaultRecordPy(last, -1, 0, None, too_large_value(first, last, len(self._data)), [])

    def _records(self) -> Iterator[Any]:
        """Of a batch that may be unpacked."""
        read = -1
        try:
            for record in self._batch:
                read = record.offset
                yield record
            return
        except UnicodeDecodeError:
            pass
        for record in _Tolerant(bytearray(self._data)):
            if record.offset > read:
                yield record


class _Tolerant(_DefaultRecordBatchPy):  # type: ignore[misc]
    """A batch of format 2, in Python, whose headers may have any names."""

    _pos: int

    def _read_msg(self, decode_varint: Any = decode_varint) -> _DefaultRecordPy:
        buffer = self._buffer
        length, pos = decode_varint(buffer, self._pos)
        end = pos + length
        _, pos = decode_varint(buffer, pos)  # attributes: none are used
        ts_delta, pos = decode_varint(buffer, pos)
        offset_delta, pos = decode_varint(buffer, pos)
        key, pos = _bytes(buffer, pos)
        value, pos = _bytes(buffer, pos)
        count, pos = decode_varint(buffer, pos)
        headers = []
        for _ in range(count):
            name, pos = _bytes(buffer, pos)
            held, pos = _bytes(buffer, pos)
            headers.append(((name or b"").decode("utf-8", "replace"), held))
        if pos != end:
            raise CorruptRecordException(f"a record of {length} bytes ends {pos - end} bytes away from that")
        self._pos = pos
        by_broker = self.timestamp_type == self.LOG_APPEND_TIME
        at_ms = self.max_timestamp if by_broker else self.first_timestamp + ts_delta
        return _DefaultRecordPy(self.base_offset + offset_delta, at_ms, self.timestamp_type, key, value, headers)


def _bytes(buffer: Any, pos: int) -> tuple[bytes | None, int]:
    """Bytes after their length; none where that is negative."""
    length, pos = decode_varint(buffer, pos)
    return (None, pos) if length < 0 else (bytes(buffer[pos : pos + length]), pos + length)


def read_any_headers() -> None:
    """Lets every aiokafka consumer of this process read so; aiokafka has no setting for it."""
    fetcher.MemoryRecords = AnyHeaders
