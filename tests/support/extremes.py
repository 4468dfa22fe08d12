"""Events made from their JSON Schemas, with values at and beyond every edge: what an outsider, an agent or a rank may send.

Holds: ids and names come from a few, so that events speak of the same jobs and nodes; half of all values are ordinary ones. Texts of a
megabyte and deep nesting are put in last, so that what Hypothesis draws and shrinks stays small.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from trainhouse.events.model.base import Event
from trainhouse.events.wire import schemas

SOURCE = "extremes"
JOBS, NODES = ("j", "k"), ("n1", "n2")
NAMED = {
    "job_id": JOBS,
    "node_id": NODES,
    "pool": ("default", "other"),
    "project": ("default", "lm"),
    "boot_id": ("boot-1", "boot-2"),
    "incarnation": ("inc-1", "inc-2"),
    "attempt": (0, 1),
    "epoch": (0, 1, 2),
    "rank": (0, 1),
    "device_id": ("n1-0", "n1-1", "n2-0"),
    "type": ("cpu", "h100"),
}
INTEGERS = (0, 1, 2, 60, 10**6, -1, 2**31, 2**53, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 10**17, 253_402_300_800_000)
NUMBERS = (
    0, 1, 0.5, 60.0, -1.0, 1e15, 1.9e16, 1e300, -1e300, 5e-324, 1.7976931348623157e308, 1e308, -1e308, "NaN", "Infinity", "-Infinity",
)  # fmt: skip
TEXTS = (
    "", "x", "default", "\x00", "a\x00b", "\n", "x\n", "\u2028", "é" * 40, "𝕏" * 20, "9999-12-31T23:59:59.9999Z",
    "NaN", "1e300", "{", "x" * 2_000, "' OR 1", "../..", "%s%n", "\x7f", "\ufeff", "\ud800", "a\udfffb", "@long@", "@longer@", "@deep@",
)  # fmt: skip
TIMES = (
    "2026-11-22T10:00:00Z",
    "9999-12-31T23:59:59.999Z",
    "9999-12-31T23:59:59.9999Z",
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+14:00",
)
# What a text stands for in a record's bytes: a string within the bounds of an input and one beyond them, and lists within lists.
PUT_IN = {b'"@long@"': b'"' + b"x" * 200_000 + b'"', b'"@longer@"': b'"' + b"y" * 2**20 + b'"'}
DEEP = b'"@deep@"'
DEPTHS = (40, 500, 1_000, 100_000)
MOST_ITEMS = 3
MOST_DEPTH = 7


@cache
def data_of(event: type[Event]) -> st.SearchStrategy[Any]:
    """Data of one event type, as JSON values."""
    schema = schemas.json_schema(event)
    return _value(schema, schema.get("$defs", {}), "", 0)


@st.composite
def records(draw: st.DrawFn, events: Sequence[type[Event]]) -> bytes:
    """A record's value: an event of one of the types in an envelope that may be odd too."""
    event = draw(st.sampled_from(list(events)))
    head: dict[str, Any] = {
        "specversion": "1.0",
        "id": draw(st.sampled_from([f"e{n}" for n in range(40)])),
        "source": SOURCE,
        "type": event.event_type,
        "data": draw(_or_odd(event)),
    }
    if draw(st.booleans()):
        head["time"] = draw(st.sampled_from(TIMES))
    if draw(st.integers(0, 9)) == 0:
        head[draw(st.sampled_from(["id", "order", "traceparent", "project", "subject", "time"]))] = draw(st.sampled_from(TEXTS))
    return _written(draw, head)


@st.composite
def fields_of(draw: st.DrawFn, event: type[Event]) -> bytes:
    """Data of one event type, as it is written."""
    return _written(draw, draw(_or_odd(event)))


def drawn(strategy: st.SearchStrategy[bytes], seed: int, count: int) -> list[bytes]:
    """So many values of a strategy, outside of a test; the same for the same seed."""
    found: list[bytes] = []

    @hypothesis.seed(seed)
    @settings(max_examples=count, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(strategy)
    def draw(value: bytes) -> None:
        found.append(value)

    draw()
    return found


def _or_odd(event: type[Event]) -> st.SearchStrategy[Any]:
    """Data in which, at times, a field is another one's kind, or is none of the event's."""
    odd = st.tuples(data_of(event), st.sampled_from(["x", *event.model_fields]), st.sampled_from(TEXTS))
    return st.one_of(data_of(event), data_of(event), data_of(event), odd.map(lambda made: {**made[0], made[1]: made[2]}))


def _written(draw: st.DrawFn, value: Any) -> bytes:
    written = json.dumps(value).encode()  # lone surrogates too, as escapes
    for text, made in PUT_IN.items():
        written = written.replace(text, made)
    if DEEP not in written:
        return written
    depth = draw(st.sampled_from(DEPTHS))
    return written.replace(DEEP, b"[" * depth + b"]" * depth)


def _value(schema: dict[str, Any], defs: dict[str, Any], name: str, depth: int) -> st.SearchStrategy[Any]:
    if "$ref" in schema:
        return _value(defs[schema["$ref"].rpartition("/")[2]], defs, name, depth)
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return st.one_of([_value(one, defs, name, depth) for one in schema[key]])
    if "allOf" in schema:
        return _value(schema["allOf"][0], defs, name, depth)
    if name in NAMED and schema.get("type") in ("string", "integer"):
        return st.sampled_from(NAMED[name])
    match schema.get("type"):
        case "integer":
            return st.one_of(_within(schema, int), _within(schema, int), st.sampled_from(INTEGERS))
        case "number":
            return st.one_of(_within(schema, float), _within(schema, float), st.sampled_from(NUMBERS))
        case "boolean":
            return st.booleans()
        case "string":
            return _text(schema, name)
        case "array":
            return _array(schema, defs, name, depth)
        case "object":
            return _object(schema, defs, depth)
        case "null":
            return st.none()
    return st.sampled_from([None, 1, "x"])


def _within(schema: dict[str, Any], kind: type) -> st.SearchStrategy[Any]:
    low = schema.get("minimum", schema.get("exclusiveMinimum", 0))
    high = schema.get("maximum", schema.get("exclusiveMaximum", low + 1_000))
    return st.sampled_from([kind(low), kind(low) + 1, kind(min(high, low + 100)), kind(high)])


def _text(schema: dict[str, Any], name: str) -> st.SearchStrategy[str]:
    pattern = schema.get("pattern")
    ordinary = [
        t for t in ("x", "default", "j", "a" * 64, "sha256:" + "a" * 64, "n1-0", "PATH") if pattern is None or re.search(pattern, t)
    ]
    short = [t for t in ordinary if len(t) >= schema.get("minLength", 0)] or ["x"]
    return st.one_of(st.sampled_from(short), st.sampled_from(short), st.sampled_from(TEXTS))


def _array(schema: dict[str, Any], defs: dict[str, Any], name: str, depth: int) -> st.SearchStrategy[list[Any]]:
    least = schema.get("minItems", 0)
    if "prefixItems" in schema:
        return st.tuples(*[_value(one, defs, name, depth + 1) for one in schema["prefixItems"]]).map(list)
    if depth > MOST_DEPTH:
        return st.just([])
    return st.lists(_value(schema.get("items", {}), defs, name, depth + 1), min_size=least, max_size=max(least, MOST_ITEMS))


def _object(schema: dict[str, Any], defs: dict[str, Any], depth: int) -> st.SearchStrategy[dict[str, Any]]:
    required = set(schema.get("required", ()))
    parts = dict(_parts(schema, defs, required, depth))
    made = st.fixed_dictionaries(
        {name: value for name, value in parts.items() if name in required},
        optional={name: value for name, value in parts.items() if name not in required},
    )
    more = schema.get("additionalProperties")
    if not parts and isinstance(more, dict) and depth <= MOST_DEPTH:
        return st.dictionaries(st.sampled_from(["a", "B", "x", "", "\x00", "lr"]), _value(more, defs, "", depth + 1), max_size=MOST_ITEMS)
    return made


def _parts(schema: dict[str, Any], defs: dict[str, Any], required: set[str], depth: int) -> Iterator[tuple[str, st.SearchStrategy[Any]]]:
    for name, part in schema.get("properties", {}).items():
        if depth <= MOST_DEPTH or name in required:
            yield name, _value(part, defs, name, depth + 1)
