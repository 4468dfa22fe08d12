"""ClickHouse column types as Arrow types, read from the database: migrations are the only place that names a table's columns.

Holds: a table of rows has exactly the table's columns; a row that does not fit is told apart from those that do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from trainhouse.projections.errors import ProjectionError
from trainhouse.projections.store.clickhouse import ClickHouse

TIME = pa.timestamp("ms", tz="UTC")
_SIMPLE: dict[str, pa.DataType] = {
    "String": pa.string(),
    "UInt8": pa.uint8(),
    "UInt32": pa.uint32(),
    "UInt64": pa.uint64(),
    "Int32": pa.int32(),
    "Int64": pa.int64(),
    "Float32": pa.float32(),
    "Float64": pa.float64(),
    "DateTime64(3, 'UTC')": TIME,
    "Array(String)": pa.list_(pa.string()),
    "Array(DateTime64(3, 'UTC'))": pa.list_(TIME),
    "Array(Float64)": pa.list_(pa.float64()),
    "Array(Nullable(Float64))": pa.list_(pa.float64()),
    "Array(UInt32)": pa.list_(pa.uint32()),
    "Array(UInt64)": pa.list_(pa.uint64()),
    "Map(String, String)": pa.map_(pa.string(), pa.string()),
    "Map(String, Float64)": pa.map_(pa.string(), pa.float64()),
    "Map(UInt8, Float32)": pa.map_(pa.uint8(), pa.float32()),
    "Map(UInt32, Float64)": pa.map_(pa.uint32(), pa.float64()),
}
_WRAPPED = re.compile(r"^(?:Nullable\(|LowCardinality\(|SimpleAggregateFunction\(\w+, )(.*)\)$")


def arrow_type(column_type: str) -> pa.DataType:
    """The Arrow type of a ClickHouse type. Raises ProjectionError for one that no migration uses yet."""
    wrapped = _WRAPPED.match(column_type)
    if wrapped:
        return arrow_type(wrapped[1])
    if column_type not in _SIMPLE:
        raise ProjectionError(f"column type {column_type} has no Arrow type here; add it to schema.py")
    return _SIMPLE[column_type]


def read_schemas(clickhouse: ClickHouse, tables: Sequence[str]) -> dict[str, pa.Schema]:
    """The Arrow schema of each table. Blocks. Raises ProjectionError when one does not exist."""
    found: dict[str, list[pa.Field]] = {}
    rows = clickhouse.rows(
        "SELECT table, name, type FROM system.columns "
        "WHERE database = currentDatabase() AND table IN {tables:Array(String)} AND default_kind IN ('', 'DEFAULT') "
        "ORDER BY table, position",
        {"tables": list(tables)},
    )
    for table, name, column_type in rows:
        found.setdefault(table, []).append(pa.field(name, arrow_type(column_type), nullable="Nullable(" in column_type))
    missing = sorted(set(tables) - set(found))
    if missing:
        raise ProjectionError(f"tables {', '.join(missing)} do not exist; run the migrations first")
    return {table: pa.schema(fields) for table, fields in found.items()}


def to_table(rows: Sequence[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """Rows as an Arrow table. Raises one of UNFIT when a row does not fit or lacks a column."""
    columns = []
    for field in schema:
        values = [row[field.name] for row in rows]
        if not field.nullable and None in values:
            raise ValueError(f"column {field.name} cannot be empty")
        if pa.types.is_map(field.type):
            values = [list(v.items()) for v in values]
        columns.append(pa.array(values, type=field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def out_of_range(value: Any, kind: pa.DataType) -> bool:
    """Returns whether a value of a column is, or has in it, a whole number that the column cannot hold: any program may tell any number."""
    if pa.types.is_map(kind):
        keys, values = kind.key_type, kind.item_type
        return any(out_of_range(k, keys) or out_of_range(v, values) for k, v in dict(value or {}).items())
    if pa.types.is_list(kind):
        return any(out_of_range(v, kind.value_type) for v in value or ())
    if type(value) is not int or not (pa.types.is_integer(kind) or pa.types.is_timestamp(kind)):
        return False
    unsigned = pa.types.is_unsigned_integer(kind)
    most = 2 ** (kind.bit_width - (not unsigned))
    return not (0 if unsigned else -most) <= value < most


UNFIT = (ValueError, TypeError, OverflowError, KeyError, pa.ArrowException)
