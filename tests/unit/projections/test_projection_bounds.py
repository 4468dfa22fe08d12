"""Every number that an event may hold fits in the columns that its rows go to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

from tests.support.tables.columns import columns
from trainhouse.events import event_classes
from trainhouse.events.model.errors import InvalidEvent
from trainhouse.events.wire import schemas
from trainhouse.events.wire.codec import HEADERS, decode
from trainhouse.events.wire.topic_types import TOPIC_EVENTS
from trainhouse.projections.ingest.lanes import BEATS, DECISIONS, FACTS, OF_RANKS, REPORTS
from trainhouse.projections.record import Record, RowsFunction
from trainhouse.projections.store.schema import to_table
from trainhouse.projections.store.tables import TABLES

SAMPLES = Path(schemas.__file__).parents[1] / "contract" / "samples"
FUNCTIONS: tuple[dict[str, tuple[RowsFunction, ...]], ...] = (FACTS, OF_RANKS, REPORTS, BEATS, DECISIONS)


def bound_of(schema: dict[str, Any], defs: dict[str, Any], value: Any) -> int | float | None:
    """The most that a number may be by its schema."""
    for one in schema.get("anyOf", ()):
        found = bound_of(one, defs, value)
        if found is not None:
            return found
    return schema.get("maximum") if schema.get("type") in ("integer", "number") else None


def part_of(schema: dict[str, Any], defs: dict[str, Any], value: Any) -> dict[str, Any]:
    """The schema of a value, of those that a schema allows."""
    if "$ref" in schema:
        return part_of(defs[schema["$ref"].rpartition("/")[2]], defs, value)
    for one in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        inner = part_of(one, defs, value)
        kind = "object" if isinstance(value, dict) else "array" if isinstance(value, list) else None
        if kind is not None and inner.get("type") == kind and _tagged(inner, value):
            return inner
    return schema


def _tagged(schema: dict[str, Any], value: Any) -> bool:
    const = schema.get("properties", {}).get("kind", {}).get("const")
    return const is None or const == value.get("kind")


def raised(value: Any, schema: dict[str, Any], defs: dict[str, Any]) -> Iterator[Any]:
    """The same data with one of its numbers at its bound, for each of them."""
    schema = part_of(schema, defs, value)
    if isinstance(value, dict):
        for name, inner in value.items():
            kind = schema.get("properties", {}).get(name) or schema.get("additionalProperties")
            if isinstance(kind, dict):
                yield from ({**value, name: one} for one in raised(inner, kind, defs))
    elif isinstance(value, list):
        for place, inner in enumerate(value[:2]):
            yield from ([*value[:place], one, *value[place + 1 :]] for one in raised(inner, schema.get("items", {}), defs))
    elif value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        most = bound_of(schema, defs, value)
        if most is not None:
            yield most


@pytest.fixture(scope="module")
def tables() -> dict[str, pa.Schema]:
    return columns()


def test_the_migrations_name_every_table_and_its_columns(tables: dict[str, pa.Schema]) -> None:
    assert tables.keys() == set(TABLES)
    assert all(len(schema) > 2 for schema in tables.values())
    assert tables["rank_facts"].field("rank").type == pa.uint32()


@pytest.mark.parametrize("name", sorted(event_classes()))
def test_what_decodes_fits_in_its_columns(name: str, tables: dict[str, pa.Schema]) -> None:
    sample = orjson.loads((SAMPLES / f"{name}.json").read_bytes())
    schema = schemas.json_schema(event_classes()[name])
    unfit: list[str] = []
    for data in (sample["data"], *raised(sample["data"], schema, schema.get("$defs", {}))):
        value = orjson.dumps(sample | {"data": data})
        try:
            envelope = decode(value)
        except InvalidEvent:
            continue  # it is refused as a whole: two of its numbers belong together
        for functions in FUNCTIONS:
            for topic, makers in functions.items():
                if type(envelope.event) not in TOPIC_EVENTS.get(topic, ()):
                    continue
                record = Record(topic, 0, 7, 1_800_000_000_000, b"k", value, HEADERS)
                source = {"source_topic": topic, "source_partition": 0, "source_offset": 7}
                for row in (row for make in makers for row in make(envelope, record)):
                    try:
                        to_table([row.values | source], tables[row.table])
                    except Exception as error:
                        unfit.append(f"{row.table}: {error}: {str(data)[:200]}")
    assert not unfit, "\n".join(dict.fromkeys(unfit))
