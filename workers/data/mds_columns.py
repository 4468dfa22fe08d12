"""Columns of MDS for the fields of a version, and its samples in them. Pure.

Holds: a value is written so that Streaming reads it as it is, or refused.
"""

import struct
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final

import orjson

from trainhouse.events.model.dataset import Manifest
from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.mds_format import MdsColumn, encoded
from trainhouse.workers.data.publishing.sample_fields import JSON
from trainhouse.workers.data.sharded_dataset import KEY
from trainhouse.workers.data.shards import Sample

_COLUMN: Final = f"{JSON}."
_AS_WDS: Final = "export it as wds"
_NUMBERS: Final = {"int": "int", "float": "float64", "float|int": "float64", "text": "str"}
_ENDINGS: Final = {"jpg": "jpeg", "jpeg": "jpeg", "png": "png"}


def mds_columns(manifest: Manifest) -> tuple[MdsColumn, ...]:
    """The key, each field and each column of `json`, by name. A column that some samples lack is JSON, for which lacking is null. Raises
    InvalidDataError for two of one name, and a field that some samples lack."""
    of_json = any(field.name.startswith(_COLUMN) for field in manifest.fields)
    columns = [MdsColumn(KEY, "str")]
    for field in manifest.fields:
        if field.name.startswith(_COLUMN):
            encoding = "json" if field.optional else _NUMBERS.get(field.type, "json")
            columns.append(MdsColumn(field.name.removeprefix(_COLUMN), encoding))
        elif field.name == JSON and of_json:
            continue
        elif field.optional:
            raise InvalidDataError(f"field {field.name!r} is not in each sample, and MDS has each column in each; {_AS_WDS}, or as parquet")
        elif field.name == JSON:
            columns.append(MdsColumn(JSON, "json"))
        else:
            text = "str" if field.type == "text" else "bytes"
            columns.append(MdsColumn(field.name, _ENDINGS.get(field.name.rpartition(".")[2], text)))
    names = sorted(column.name for column in columns)
    if twice := next((name for name, after in pairwise(names) if name == after), None):
        raise InvalidDataError(f"{twice!r} would be two columns: key, fields and columns of json need names of their own; {_AS_WDS}")
    return tuple(sorted(columns, key=lambda column: column.name))


def encoded_sample(sample: Sample, columns: Sequence[MdsColumn]) -> bytes:
    """A sample in these columns. Raises InvalidDataError."""
    content = sample.fields.get(JSON)
    of_json = any(column.name not in sample.fields and column.name != KEY for column in columns)
    row = orjson.loads(content) if content is not None and of_json else {}
    if not isinstance(row, dict):
        raise InvalidDataError(f"sample {sample.key!r}: its json is no object with columns; {_AS_WDS}")
    return encoded(columns, [_value(sample, column, row) for column in columns])


def _value(sample: Sample, column: MdsColumn, row: dict[str, Any]) -> bytes:
    if column.name == KEY:
        return sample.key.encode()
    if column.name in sample.fields and column.name not in row:
        value = sample.fields[column.name]
        if column.encoding == "str":
            _utf_8(sample.key, column.name, value)
        return value
    try:
        return _ENCODE[column.encoding](row.get(column.name))
    except (ValueError, TypeError, struct.error, OverflowError, orjson.JSONEncodeError) as error:
        raise InvalidDataError(
            f"sample {sample.key!r}: {column.name!r} is no value of a column of {column.encoding} ({error}); {_AS_WDS}"
        ) from error


def _utf_8(key: str, name: str, value: bytes) -> None:
    try:
        value.decode()
    except UnicodeDecodeError as error:
        raise InvalidDataError(f"sample {key!r}: {name!r} is no text in UTF-8 ({error}); {_AS_WDS}") from error


def _float(value: Any) -> bytes:
    if float(value) != value:
        raise ValueError(f"{value}, which it would change")
    return struct.pack("<d", value)


_ENCODE: Final[dict[str, Callable[[Any], bytes]]] = {
    "int": lambda value: struct.pack("<q", value),
    "float64": _float,
    "str": lambda value: value.encode(),
    "json": orjson.dumps,
}
