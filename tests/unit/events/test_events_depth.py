"""A value nested however deep, in whichever place of a record: every door refuses it with a reason, and none fails on it."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from trainhouse.events import InvalidEvent
from trainhouse.events.wire import schemas, topics
from trainhouse.events.wire.codec import HEADERS, MAX_DEPTH, decode, encode
from trainhouse.events.wire.journaled_input import JournaledInput
from trainhouse.projections.ingest.builders import json_columns
from trainhouse.projections.record import Record
from trainhouse.scheduler.core.intake.screening import Arrived, screen
from trainhouse.scheduler.core.protocol.batch import Limits, pending

SAMPLES = sorted((Path(schemas.__file__).parents[1] / "contract" / "samples").glob("*.json"))
DEEP = "a deep value"
# Up to what orjson refuses by itself (1024), and beyond.
DEPTHS = (MAX_DEPTH + 1, 250, 300, 500, 900, 980, 1000, 1010, 1020, 1100, 100_000)
OPENED: dict[str, tuple[bytes, bytes]] = {"lists": (b"[", b"]"), "objects": (b'{"a":', b"}"), "both": (b'[{"\\"[":', b"}]")}
ATTRIBUTES = ("specversion", "id", "source", "type", "subject", "time", "pool", "causationid", "correlationid", "order", "traceparent")
MORE = ("project", "origin", "unknown", "data")


def nested(shape: str, depth: int) -> bytes:
    """A value of so many levels, of which one list more is the middle."""
    opens, closes = OPENED[shape]
    levels = max(depth // 2 if shape == "both" else depth, 1)
    return opens * levels + b"1" + closes * levels


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where something stands in it, of a list only the first."""
    if path:
        yield path
    if isinstance(value, dict):
        for key in [*value, "unknown"]:
            yield from places(value.get(key), (*path, key))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*path, 0))


def put(value: Any, path: tuple[str | int, ...]) -> Any:
    """The same with DEEP in that place."""
    if not path:
        return DEEP
    made = dict(value) if isinstance(value, dict) else list(value)
    made[path[0]] = put(made[path[0]] if isinstance(made, list) else made.get(path[0]), path[1:])
    return made


def with_deep(sample: bytes, path: tuple[str | int, ...], deep: bytes) -> bytes:
    """The record of a sample with the deep value in that place."""
    return orjson.dumps(put(orjson.loads(sample), path)).replace(orjson.dumps(DEEP), deep, 1)


SAMPLE = next(path.read_bytes() for path in SAMPLES if path.stem == "trainhouse.node.heartbeat.v1")
SUBMITTED = next(path.read_bytes() for path in SAMPLES if path.stem == "trainhouse.job.submitted.v1")


def at_once(call: Callable[[], object]) -> str:
    """The reason of the refusal, empty where there was none; anything else that is raised fails the test."""
    try:
        call()
    except InvalidEvent as refused:
        return str(refused)
    return ""


@pytest.mark.parametrize("shape", OPENED)
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("name", [*ATTRIBUTES, *MORE])
def test_a_deep_attribute_is_refused_with_a_reason(name: str, depth: int, shape: str) -> None:
    value = with_deep(SAMPLE, (name,), nested(shape, depth))
    reason = at_once(lambda: decode(value, HEADERS))
    assert ("levels" in reason) or ("no JSON" in reason and depth >= 1000), reason
    assert len(reason) < 200


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.stem)
def test_a_deep_field_of_any_event_is_refused_with_a_reason(path: Path) -> None:
    sample = path.read_bytes()
    for place in places(orjson.loads(sample)):
        for depth in (MAX_DEPTH, 300, 1000):
            value = with_deep(sample, place, nested("lists", depth))
            assert "levels" in at_once(partial(decode, value, HEADERS)), place


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.stem)
def test_every_event_has_room_for_its_own_levels(path: Path) -> None:
    value = encode(decode(path.read_bytes()))
    assert encode(decode(value)) == value


def test_a_value_within_the_bound_is_read_and_one_level_more_is_not() -> None:
    assert decode(with_deep(SAMPLE, ("unknown",), nested("lists", MAX_DEPTH - 1)))
    assert f"more than {MAX_DEPTH} levels" in at_once(lambda: decode(with_deep(SAMPLE, ("unknown",), nested("lists", MAX_DEPTH))))


def test_brackets_in_a_text_are_no_levels() -> None:
    text = orjson.dumps("[{" * 2000)
    assert decode(with_deep(SAMPLE, ("unknown",), text))


def test_many_values_beside_each_other_are_no_levels() -> None:
    assert decode(with_deep(SAMPLE, ("unknown",), b"[" + b",".join([b"[{},[]]"] * 5000) + b"]"))


def test_the_binary_mode_and_base64_are_bounded_too() -> None:
    headers = {"ce_specversion": "1.0", "ce_id": "1", "ce_source": "s", "ce_type": "trainhouse.job.submitted.v1"}
    assert "levels" in at_once(lambda: decode(b'{"job_id":' + nested("lists", 900) + b"}", headers))
    text = base64.b64encode(nested("objects", 900))
    assert "levels" in at_once(lambda: decode(b'{"specversion":"1.0","id":"1","source":"s","type":"x","data_base64":"' + text + b'"}'))


@pytest.mark.parametrize("depth", DEPTHS)
def test_the_gate_keeps_the_raw_bytes_and_the_reason(depth: int) -> None:
    value = with_deep(SAMPLE, ("subject",), nested("lists", depth))
    read = pending(7, value, HEADERS, Limits())
    assert read.refusal and not read.item.is_event


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("name", ["specversion", "subject", "data"])
def test_intake_refuses_it_as_the_producers_fault(name: str, depth: int) -> None:
    value = with_deep(SUBMITTED, (name,), nested("lists", depth))
    screened = screen(Arrived(0, 3, 1, value, HEADERS), 2, 1)
    assert screened.outgoing and not screened.own_failure


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("name", ["specversion", "type", "data", "unknown"])
def test_projections_of_reports_and_telemetry_name_it_damage(name: str, depth: int) -> None:
    value = with_deep(SAMPLE, (name,), nested("lists", depth))
    record = Record(topics.METRICS, 0, 1, 1, None, value, HEADERS)
    with pytest.raises(json_columns.DAMAGE):
        json_columns.parse(record, "trainhouse.metrics.step.v1")


def test_a_journal_that_holds_one_stops_no_reader() -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    item = JournaledInput.stored({"offset": 1, "event": orjson.loads(SAMPLE) | {"subject": deep}})
    with pytest.raises(InvalidEvent):
        _ = item.envelope
