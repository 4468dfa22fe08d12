"""Prepared rows between the two passes: those of one unit in one object, by split and bucket, and a record of it.

Holds: the same unit gives the same bytes; a unit without a whole record is not there. Of a unit no more than one buffer is in memory, the
rest lies in files without a name. A run that is read back has the checksum of its record.
"""

import struct
import tempfile
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import IO, Final, NamedTuple

import orjson
from pydantic import Field

from trainhouse.checkpointing.stores.object_store import ObjectStore
from trainhouse.events.model.base import Model
from trainhouse.events.model.dataset_names import FieldName
from trainhouse.workers.data.errors import DamagedShardError
from trainhouse.workers.data.outputs.written_once import put_record, read_record, without_turn
from trainhouse.workers.data.prepare.row_steps import Moments
from trainhouse.workers.data.publishing.sample_fields import Fields
from trainhouse.workers.data.shards.members import sample_bytes

FORMAT: Final = 1
"""Is part of the names: rows that another form of this module wrote are not read."""
_ROW: Final = struct.Struct("<QIIHH")
_FIELD: Final = struct.Struct("<HI")
_BUFFER_BYTES: Final = 32 << 20


class Run(NamedTuple):
    """Rows of one split and bucket, one after another in the object of their unit. `shard_bytes`: those that they take in a shard."""

    split: str
    bucket: int
    offset: int
    bytes: int
    rows: int
    shard_bytes: int
    crc32: int


class UnitRecord(Model):
    """Facts of one unit whose rows are there."""

    read: int = Field(ge=0, description="samples of the source that were read")
    runs: tuple[Run, ...] = Field((), description="runs in the order of their offsets")
    moments: dict[FieldName, tuple[int, str, str]] = Field(
        default_factory=dict,
        description="of columns that are normalised, over rows of the split train: count, sum and sum of squares, as hexadecimal numbers",
    )

    @property
    def written(self) -> int:
        """Rows that stay."""
        return sum(run.rows for run in self.runs)

    def moments_of(self) -> dict[str, Moments]:
        """Moments by column."""
        return {column: Moments(count, int(total, 16), int(squares, 16)) for column, (count, total, squares) in self.moments.items()}


@dataclass(frozen=True)
class StoredRow:
    """A row as it was kept. `place`: by which rows are sorted in a shuffle."""

    place: int
    shard_bytes: int
    key: str
    fields: Fields


class WorkStore:
    """Place of rows between the passes: below `prefix` of an object store. All methods block."""

    def __init__(self, objects: ObjectStore, prefix: str) -> None:
        self._objects, self._prefix = objects, prefix

    def names(self) -> frozenset[str]:
        """Units whose records are there, be they whole or torn."""
        ending = f".{FORMAT}.json"
        keys = (without_turn(stat.key).removeprefix(self._prefix) for stat in self._objects.list(self._prefix))
        return frozenset(key.removesuffix(ending) for key in keys if key.endswith(ending))

    def put(self, name: str, rows: memoryview, record: UnitRecord) -> None:
        """Keeps a unit: its rows, then its record. Of two whole records the first one counts; they are equal."""
        self._objects.put(self._rows_key(name), rows)
        content = orjson.dumps(record.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS)
        put_record(self._objects, self._record_key(name), content, _parsed)

    def has(self, name: str) -> bool:
        """Whether a whole record of a unit is there."""
        return read_record(self._objects, self._record_key(name), _parsed) is not None

    def record(self, name: str) -> UnitRecord:
        """The record of a unit that is there. Raises DamagedShardError."""
        found = read_record(self._objects, self._record_key(name), _parsed)
        if found is None:
            raise DamagedShardError(f"{self._objects.uri(self._record_key(name))} is not there, or torn, after its unit was done")
        return found

    def runs(self, name: str, runs: Sequence[Run]) -> bytes:
        """The rows of runs that lie one after another. Raises DamagedShardError."""
        key, first = self._rows_key(name), runs[0].offset
        content = self._objects.get_range(key, first, sum(run.bytes for run in runs))
        view = memoryview(content)
        for run in runs:
            if zlib.crc32(view[run.offset - first : run.offset - first + run.bytes]) != run.crc32:
                raise DamagedShardError(
                    f"{self._objects.uri(key)} is damaged from byte {run.offset} on; remove it and its record beside it"
                )
        return content

    def _rows_key(self, name: str) -> str:
        return f"{self._prefix}{name}.{FORMAT}.rows"

    def _record_key(self, name: str) -> str:
        return f"{self._prefix}{name}.{FORMAT}.json"


def _parsed(content: bytes) -> UnitRecord:
    return UnitRecord.model_validate(orjson.loads(content))


class RunWriter:
    """Writes the rows of one unit, by split and bucket. As a context manager it leaves nothing on disk."""

    def __init__(self, folder: Path | None = None) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by __exit__
        self._buffer, self._at = bytearray(), 0
        self._rows: dict[tuple[str, int], array[int]] = {}
        self._shard_bytes = dict[tuple[str, int], int]()

    def __enter__(self) -> "RunWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, split: str, bucket: int, place: int, key: str, fields: Fields) -> int:
        """Takes a row; returns the bytes that it has in a shard. Raises InvalidDataError for a key or field that no shard takes."""
        size = sample_bytes(key, fields)
        name = key.encode()
        parts = [name]
        for extension, content in fields.items():
            label = extension.encode()
            parts += (_FIELD.pack(len(label), len(content)), label, content)
        length = _ROW.size + sum(map(len, parts))
        self._buffer += _ROW.pack(place, length, size, len(name), len(fields))
        self._buffer += b"".join(parts)
        run = (split, bucket)
        self._rows.setdefault(run, array("Q")).extend((self._at, length))
        self._shard_bytes[run] = self._shard_bytes.get(run, 0) + size
        self._at += length
        if len(self._buffer) >= _BUFFER_BYTES:
            self._flush()
        return size

    def send(self, work: WorkStore, name: str, read: int, moments: dict[str, Moments]) -> UnitRecord:
        """Puts the rows in the order of their runs, and the record. Blocks."""
        self._flush()
        with tempfile.TemporaryFile() as ordered:
            runs = tuple(self._ordered(ordered))
            ordered.flush()
            stated = {column: (m.count, f"{m.total:x}", f"{m.squares:x}") for column, m in sorted(moments.items())}
            record = UnitRecord(read=read, runs=runs, moments=stated)
            if not runs:
                work.put(name, memoryview(b""), record)
                return record
            with mmap(ordered.fileno(), 0, access=ACCESS_READ) as content, memoryview(content) as body:
                work.put(name, body, record)
        return record

    def _ordered(self, file: IO[bytes]) -> Iterator[Run]:
        if not self._at:
            return
        offset = 0
        with mmap(self._file.fileno(), 0, access=ACCESS_READ) as content:
            for split, bucket in sorted(self._rows):
                places = self._rows[split, bucket]
                whole = b"".join(content[at : at + size] for at, size in zip(places[::2], places[1::2], strict=True))
                file.write(whole)
                yield Run(split, bucket, offset, len(whole), len(places) // 2, self._shard_bytes[split, bucket], zlib.crc32(whole))
                offset += len(whole)

    def _flush(self) -> None:
        self._file.write(self._buffer)
        self._file.flush()
        self._buffer = bytearray()


def row_heads(content: bytes) -> Iterator[tuple[int, int, int]]:
    """Place in a shuffle, start and bytes of each row of runs."""
    at = 0
    while at < len(content):
        place, length, *_ = _ROW.unpack_from(content, at)
        yield place, at, length
        at += length


def read_row(content: bytes | memoryview) -> StoredRow:
    """The row that has these bytes."""
    content = bytes(content)
    place, _, size, key_bytes, count = _ROW.unpack_from(content)
    at = _ROW.size + key_bytes
    key, fields = content[_ROW.size : at].decode(), Fields()
    for _ in range(count):
        label_bytes, length = _FIELD.unpack_from(content, at)
        start = at + _FIELD.size + label_bytes
        fields[content[at + _FIELD.size : start].decode()] = content[start : start + length]
        at = start + length
    return StoredRow(place, size, key, fields)
