"""Few rows go into the engine as text, many as Arrow: the same values either way, each token once whichever way a repeat goes."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.tables.migrated import connect_migrated
from trainhouse.projections.ingest.builders import second_rollup
from trainhouse.projections.store.clickhouse import EXACT_INSERT, ConnectClickHouse, insert_as_text
from trainhouse.projections.store.schema import read_schemas
from trainhouse.projections.store.tables import TABLES

MOST = 2**64 - 1
ODD = [
    "a'b",
    "back\\slash\\",
    "line\nfeed\ttab\r",
    "nul\0in it",
    "{x:String}",
    "%(x)s %s",
    "; DROP TABLE positions; --",
    "/* */",
    "é日本🚂",
    "",
]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectClickHouse]:
    made = connect_migrated(tmp_path_factory.mktemp("text") / "data", 1024**3, 2)
    yield made
    made.close()


def marks(lane: str, streams: list[str], mark: int) -> pa.Table:
    whole = pa.array([mark] * len(streams), pa.uint64())
    return pa.table({"lane": [lane] * len(streams), "stream": streams, "batch": whole, "mark": whole, "before": whole})


def insert_arrow(engine: ConnectClickHouse, table: str, data: pa.Table, token: str) -> None:
    engine._client.insert_arrow(table, data, settings=EXACT_INSERT | {"insert_deduplication_token": token})


def stored(engine: ConnectClickHouse, lane: str) -> list[tuple[str, int]]:
    """Streams and their newest marks."""
    rows = engine.rows("SELECT stream, mark FROM high_water FINAL WHERE lane = {lane:String}", {"lane": lane})
    return sorted((str(stream), int(mark)) for stream, mark in rows)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    stream=st.one_of(st.sampled_from(ODD), st.text(st.characters(exclude_categories=["Cs"]))),
    mark=st.one_of(st.sampled_from([0, 2**63, MOST]), st.integers(0, MOST)),
)
def test_any_name_and_any_number_is_stored_as_it_is(engine: ConnectClickHouse, stream: str, mark: int) -> None:
    lane = f"lane {stream!a} {mark}"
    engine.insert("high_water", marks(lane, [stream], mark), f"{lane}:token")
    assert stored(engine, lane) == [(stream, mark)]


@pytest.mark.parametrize("count", [1, 32, 33])
def test_a_repeat_with_the_same_token_adds_nothing_whichever_way_it_goes(engine: ConnectClickHouse, count: int) -> None:
    lane, token = f"again {count}", f"it's \\{count}"
    streams = [f"{n:03} {ODD[n % len(ODD)]}" for n in range(count)]
    engine.insert("high_water", marks(lane, streams, 7), token)
    engine.insert("high_water", marks(lane, streams, 8), token)
    insert_arrow(engine, "high_water", marks(lane, streams, 9), token)
    assert stored(engine, lane) == [(stream, 7) for stream in sorted(streams)]
    engine.insert("high_water", marks(lane, streams, 8), f"{token} of another batch")
    assert stored(engine, lane) == [(stream, 8) for stream in sorted(streams)]


WHOLE = [0, 1, -1, 9_007_199_254_740_993, 2**31, -(2**31), 2**63 - 1, -(2**63), MOST]
REAL = [
    0.0,
    -0.0,
    0.1,
    -1 / 3,
    1e-7,
    5e-324,
    2.2250738585072014e-308,
    1.7976931348623157e308,
    123456789.123456789,
    1e22,
    9007199254740993.0,
]
MOMENTS_MS = [0, 1, 999, 1_800_000_000_000, 1_800_000_000_123, 4_102_444_799_999]


def edges(kind: pa.DataType) -> list[Any]:
    """Values of a column's type that a text might lose."""
    if pa.types.is_list(kind):
        inner = edges(kind.value_type)
        return [[], inner[:1], inner, [None, inner[-1]] if pa.types.is_floating(kind.value_type) else inner[:2]]
    if pa.types.is_map(kind):
        pairs = list(zip(dict.fromkeys(edges(kind.key_type)), edges(kind.item_type), strict=False))
        return [[], pairs[:1], pairs]
    if pa.types.is_timestamp(kind):
        return MOMENTS_MS
    if pa.types.is_integer(kind):
        least, most = (
            (0, 2**kind.bit_width - 1)
            if pa.types.is_unsigned_integer(kind)
            else (-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1)
        )
        return [least, most, *(value for value in WHOLE if least <= value <= most)]
    if pa.types.is_floating(kind):
        return REAL if kind.bit_width == 64 else [struct.unpack("f", struct.pack("f", value))[0] for value in REAL if abs(value) < 3e38]
    assert pa.types.is_string(kind), f"no edges for {kind}: is it stored alike by both ways?"
    return ODD


def edge_rows(schema: pa.Schema) -> pa.Table:
    """A table in which each column goes through its edges, and where it may be empty, that too."""
    values = [[*edges(field.type), *([None] if field.nullable else [])] for field in schema]
    rows = max(map(len, values))
    columns = [pa.array([each[row % len(each)] for row in range(rows)], field.type) for each, field in zip(values, schema, strict=True)]
    return pa.Table.from_arrays(columns, schema=schema)


def exact(value: Any) -> Any:
    """Equal only where the bits are: -0.0 is not 0.0."""
    return (
        ("float", struct.pack("d", value)) if isinstance(value, float) else [exact(v) for v in value] if isinstance(value, list) else value
    )


def contents(engine: ConnectClickHouse, table: str, columns: list[str]) -> list[str]:
    rows = engine.rows(f"SELECT {', '.join(columns)} FROM {table}")
    return sorted(repr([exact(value) for value in row]) for row in rows)


@pytest.mark.parametrize("table", TABLES)
def test_rows_of_every_table_are_the_same_by_text_as_by_arrow(engine: ConnectClickHouse, table: str) -> None:
    data = edge_rows(read_schemas(engine, [table])[table])
    insert_arrow(engine, table, data, f"{table} by Arrow")
    by_arrow = contents(engine, table, data.column_names)
    engine.command(f"TRUNCATE TABLE {table}")
    text = insert_as_text(table, data, f"{table} by text")
    assert text is not None
    assert by_arrow
    engine.command(text)
    assert contents(engine, table, data.column_names) == by_arrow
    engine.command(f"TRUNCATE TABLE {table}")


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=20, max_size=20))
def test_any_number_keeps_its_bits(engine: ConnectClickHouse, values: list[float]) -> None:
    schema = read_schemas(engine, ["step_metrics"])["step_metrics"]
    data = edge_rows(schema).slice(0, 1)
    data = pa.concat_tables([data] * len(values)).set_column(schema.get_field_index("value"), "value", pa.array(values, pa.float64()))
    engine.command("TRUNCATE TABLE step_metrics")
    engine.insert("step_metrics", data, repr(values))
    found = engine.rows("SELECT value FROM step_metrics")
    assert sorted(struct.pack("d", value) for (value,) in found) == sorted(struct.pack("d", value) for value in values)


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_what_json_has_no_word_for_is_stored_as_it_is(engine: ConnectClickHouse, odd: float) -> None:
    schema = read_schemas(engine, ["step_metrics"])["step_metrics"]
    data = edge_rows(schema).slice(0, 1).set_column(schema.get_field_index("value"), "value", pa.array([odd], pa.float64()))
    engine.command("TRUNCATE TABLE step_metrics")
    engine.insert("step_metrics", data, f"odd {odd}")
    assert repr(engine.rows("SELECT value FROM step_metrics")) == repr([(odd,)])


@pytest.mark.parametrize("at_ms", [-1, 4_102_444_800_000, 253_402_300_800_000])
def test_a_moment_of_another_age_is_stored_as_it_is(engine: ConnectClickHouse, at_ms: int) -> None:
    schema = read_schemas(engine, ["step_metrics"])["step_metrics"]
    data = edge_rows(schema).slice(0, 1).set_column(schema.get_field_index("time"), "time", pa.array([at_ms], schema.field("time").type))
    engine.command("TRUNCATE TABLE step_metrics")
    engine.insert("step_metrics", data, f"at {at_ms}")
    assert engine.rows("SELECT toUnixTimestamp64Milli(time) FROM step_metrics") == [(at_ms,)]


def test_a_map_with_a_key_twice_goes_by_arrow() -> None:
    twice = pa.table({"config": pa.array([[("a", "1"), ("a", "2")]], pa.map_(pa.string(), pa.string()))})
    assert insert_as_text("job_specs_rows", twice, "twice") is None


def test_the_seconds_of_points_have_bytes_and_go_by_arrow(engine: ConnectClickHouse) -> None:
    points = edge_rows(read_schemas(engine, ["step_metrics"])["step_metrics"]).slice(2, 1)
    for name in ("job_id", "metric"):
        points = points.set_column(points.schema.get_field_index(name), name, points[name].dictionary_encode())
    seconds = second_rollup.by_second(points)
    engine.command("TRUNCATE TABLE step_metrics_1s_rows")
    assert insert_as_text(second_rollup.TABLE, seconds, "seconds") is None
    engine.insert(second_rollup.TABLE, seconds, "seconds")
    assert engine.rows(f"SELECT points, sum_value FROM {second_rollup.TABLE}") == [(1, points["value"][0].as_py())]
