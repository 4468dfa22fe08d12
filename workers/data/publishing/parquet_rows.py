"""Rows of a Parquet file as samples: each column of bytes is a field, all others are in `json`.

Holds: a value is published as it is, whichever libraries are installed, or refused; one batch of rows is in memory at a time.
"""

from collections.abc import Iterator
from datetime import datetime
from math import isfinite
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.publishing.bounded_files import MOST_UNPACKED_RATIO, SURELY_UNPACKED_BYTES, SourceFile
from trainhouse.workers.data.publishing.sample_fields import JSON, Fields, canonical, small_enough

_BATCH_ROWS: Final = 256
_BATCH_BYTES: Final = 64 << 20
_CONVERT: Final = "convert it to text, numbers or bytes"


def parquet_rows(file: SourceFile) -> Iterator[Fields]:
    """Each row's fields. Raises InvalidDataError."""
    with file.open() as raw:
        try:
            parquet = pq.ParquetFile(raw)
        except (pa.ArrowException, OSError) as error:
            raise InvalidDataError(f"{file.where}: it is no Parquet file: {error}") from error
        metadata = parquet.metadata
        unpacked = sum(metadata.row_group(n).total_byte_size for n in range(metadata.num_row_groups))
        if unpacked > MOST_UNPACKED_RATIO * file.size_bytes + SURELY_UNPACKED_BYTES:
            raise InvalidDataError(f"{file.where}: it unpacks to {unpacked} bytes, over {MOST_UNPACKED_RATIO} times its size; rewrite it")
        of_bytes = _columns_of_bytes(parquet.schema_arrow, file)
        # Rows of pictures are large: so many at once as take 64 MiB.
        rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES * metadata.num_rows // max(1, unpacked)))
        try:
            for batch in parquet.iter_batches(batch_size=rows):
                columns = [_values(column, name, file) for name, column in zip(batch.schema.names, batch.columns, strict=True)]
                for values in zip(*columns, strict=True):
                    yield _row_fields(dict(zip(batch.schema.names, values, strict=True)), of_bytes, file)
        except (pa.ArrowException, OSError) as error:
            raise InvalidDataError(f"{file.where}: it is damaged: {error}") from error


def _columns_of_bytes(schema: pa.Schema, file: SourceFile) -> frozenset[str]:
    """Names of the columns of bytes. Raises InvalidDataError where two columns would be one, or one field."""
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise InvalidDataError(f"{file.where}: two columns are called {name!r}; rename one")
    fields = dict[str, str]()
    for column in schema:
        if _holds_bytes(column.type):
            other = fields.setdefault(column.name.lower(), column.name)
            if other != column.name:
                raise InvalidDataError(f"{file.where}: columns {other!r} and {column.name!r} would be one field; rename one")
    if JSON in fields:
        raise InvalidDataError(f"{file.where}: a column of bytes is called {fields[JSON]}, as the field of all others; rename it")
    return frozenset(fields.values())


def _holds_bytes(kind: pa.DataType) -> bool:
    of = pa.types
    if of.is_dictionary(kind):
        return _holds_bytes(kind.value_type)
    return bool(of.is_binary(kind) or of.is_large_binary(kind) or of.is_fixed_size_binary(kind) or of.is_binary_view(kind))


def _row_fields(row: dict[str, Any], of_bytes: frozenset[str], file: SourceFile) -> Fields:
    fields = {name.lower(): row[name] for name in of_bytes if row[name] is not None}
    rest = {name: value for name, value in row.items() if name not in of_bytes}
    try:
        fields[JSON] = canonical(rest)
    except TypeError as error:
        kind = error.__cause__ or error
        raise InvalidDataError(f"{file.where}: a column has values of type {kind}; {_CONVERT}") from error
    # Such numbers are written as null, so a row without one need not be searched.
    if b"null" in fields[JSON]:
        for name, value in rest.items():
            if not _finite(value):
                raise InvalidDataError(
                    f"{file.where}: column {name!r} has a value that is not finite, for which JSON has no number; make it null, or text"
                )
    small_enough(sum(map(len, fields.values())), file.where)
    return fields


def _finite(value: object) -> bool:
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, dict):
        return all(map(_finite, value.values()))
    return not isinstance(value, list | tuple) or all(map(_finite, value))


def _values(column: pa.Array, name: str, file: SourceFile) -> list[Any]:
    """The values of a column, times of nanoseconds as text. Raises InvalidDataError."""
    try:
        if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
            return _nanosecond_texts(column)
        kind = _of_microseconds(column.type)
        values: list[Any] = (column if kind == column.type else column.cast(kind)).to_pylist()
        return values
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise InvalidDataError(f"{file.where}: column {name!r} cannot be read as {column.type}: {error}; {_CONVERT}") from error


def _nanosecond_texts(column: pa.Array) -> list[str | None]:
    """Times in ISO 8601, with nine digits of a second where its nanoseconds are none of a whole microsecond."""
    counts: list[int | None] = column.cast(pa.int64()).to_pylist()
    micros = pa.array([None if n is None else n // 1000 for n in counts], pa.timestamp("us", column.type.tz)).to_pylist()
    return [None if n is None else _nanosecond_text(time, n % 1000) for n, time in zip(counts, micros, strict=True)]


def _nanosecond_text(time: datetime, nanoseconds: int) -> str:
    if not nanoseconds:
        return time.isoformat()
    text = time.isoformat(timespec="microseconds")
    end = len("2026-01-01T00:00:00.123456")
    return f"{text[:end]}{nanoseconds:03d}{text[end:]}"


def _of_microseconds(kind: pa.DataType) -> pa.DataType:
    """The type with microseconds for nanoseconds in it, which Python's times do not have."""
    of = pa.types
    if of.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if of.is_time64(kind) and kind.unit == "ns":
        return pa.time64("us")
    if of.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_of_microseconds(kind.value_type)), kind.list_size)
    if of.is_list(kind):
        return pa.list_(kind.value_field.with_type(_of_microseconds(kind.value_type)))
    if of.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_of_microseconds(kind.value_type)))
    if of.is_struct(kind):
        return pa.struct([kind.field(n).with_type(_of_microseconds(kind.field(n).type)) for n in range(kind.num_fields)])
    if of.is_map(kind):
        return pa.map_(kind.key_type, _of_microseconds(kind.item_type), kind.keys_sorted)
    return kind
