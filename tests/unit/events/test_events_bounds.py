"""Every number, text, list and mapping of every event has a bound, in its model and in its JSON Schema."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from pydantic import TypeAdapter, ValidationError

from tests.support.core_world import registered
from tests.support.tables.columns import columns
from trainhouse.events import (
    DeviceId,
    InvalidEvent,
    JobId,
    JobState,
    JobStatus,
    LogLines,
    NodeId,
    NodeRegistered,
    PoolName,
    StepMetrics,
    decode,
    encode,
    envelope_of,
)
from trainhouse.events.model.attempt import ProgressReported
from trainhouse.events.model.base import Model
from trainhouse.events.model.bounds import (
    LATEST_MS,
    MOST_CHARS,
    MOST_COUNT,
    MOST_DEVICES,
    MOST_DURATION_S,
    MOST_ITEMS,
    DurationS,
    ShortText,
    read_clamped,
    read_stored,
)
from trainhouse.events.model.ids import Name
from trainhouse.events.model.pool import StartReserved
from trainhouse.events.model.verdict import StragglerDetected
from trainhouse.events.wire import schemas
from trainhouse.events.wire.codec import decode_parts
from trainhouse.events.wire.journal import NO_HASH, JournalRecord
from trainhouse.events.wire.topics import DECISIONS
from trainhouse.projections.ingest.builders.decision_rows import JournalBuilder
from trainhouse.projections.record import Record
from trainhouse.projections.rows import jobs

OF_PROGRAMS = ("loss", "learning_rate", "steps_per_s", "samples_per_s", "usual_loss")
# Numbers that may be any: what a job's program says of its training (a diverged loss is NaN), points of a metric, values of a trial and
# gains of these, a hyperparameter as it was written, and what a query of an alert found.
MAY_BE_ANY = {(model, field) for model in ("ProgressReported", "LossDiverged", "Progress", "JobStatus") for field in OF_PROGRAMS} | {
    ("StepMetrics", "metrics"),
    ("JobSpec", "hyperparameters"),
    ("AlertFired", "value"),
    ("AlertFired", "limit"),
    *((model, "metrics") for model in ("CheckpointCompleted", "KnownTrial")),
    *((model, "values") for model in ("TrialValueObserved", "TrialValueRecorded", "TrialEnded", "TrialSummary")),
    *(("StagnationFigures", field) for field in ("best", "gain", "gain_rate")),
}
UNITS_S = {"_ns": 1e-9, "_ms": 1e-3, "_s": 1.0, "_h": 3600.0}
TIMES = ("at_ms", "deadline_ms", "due_ms", "start_ms", "since_ms", "eta_ms", "not_before_ms")

Place = tuple[str, str]


def parts(schema: dict[str, Any], defs: dict[str, Any], place: Place, seen: set[str]) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Every schema within one, with the model and the field that it is of; each model once."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name not in seen:
            seen.add(name)
            yield from parts(defs[name], defs, (name, ""), seen)
        return
    yield place, schema
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for one in schema.get(key, ()):
            yield from parts(one, defs, place, seen)
    for key in ("items", "additionalProperties", "propertyNames"):
        if isinstance(schema.get(key), dict):
            yield from parts(schema[key], defs, place, seen)
    for field, one in schema.get("properties", {}).items():
        yield from parts(one, defs, (place[0], field), seen)


def missing(place: Place, schema: dict[str, Any]) -> str:
    """Which bound a schema lacks; empty where it has all that fit its kind."""
    if "const" in schema or "enum" in schema:
        return ""
    match schema.get("type"):
        case "integer":
            least = schema.get("minimum", schema.get("exclusiveMinimum", -math.inf))
            most = schema.get("maximum", schema.get("exclusiveMaximum", math.inf))
            if not -(2**63) <= least <= most <= 2**63:
                return "64 bits"
            return _too_long(place[1], least, most)
        case "number" if place not in MAY_BE_ANY:
            least = schema.get("exclusiveMinimum", schema.get("minimum", -math.inf))
            most = schema.get("exclusiveMaximum", schema.get("maximum", math.inf))
            return _too_long(place[1], least, most) if math.isfinite(least) and math.isfinite(most) else "a least and a most"
        case "string":
            return "" if "maxLength" in schema else "maxLength"
        case "array":
            return "" if "maxItems" in schema or "prefixItems" in schema else "maxItems"
        case "object":
            has_all = "properties" in schema or {"maxProperties", "propertyNames"} <= schema.keys()
            return "" if has_all or not schema.get("additionalProperties") else "maxProperties"
    # Names of properties, and what has parts that are looked at by themselves, need no type.
    return "" if {"anyOf", "oneOf", "allOf", "type", "maxLength"} & schema.keys() else "a type"


def _too_long(field: str, least: float, most: float) -> str:
    unit = next((unit for unit in UNITS_S if field.endswith(unit) and not field.endswith("_per_s")), None)
    if unit is None:
        return ""
    if most == LATEST_MS:
        return "" if unit == "_ms" and field != "took_ms" else "a hundred years"
    return "" if field == "ran_ms" or max(-least, most) * UNITS_S[unit] <= MOST_DURATION_S else "a hundred years"


def test_every_field_of_every_event_has_a_bound_in_its_schema() -> None:
    seen: set[str] = set()
    found = [
        f"{place[0]}.{place[1]}: {lacks}"
        for schema in schemas.json_schemas().values()
        for place, one in parts(schema, schema.get("$defs", {}), (schema["title"], ""), seen)
        if (lacks := missing(place, one))
    ]
    assert not found, "\n".join(found)
    assert len(seen) > 50


@pytest.mark.parametrize("text", ["x" * 2**20, "\ud800", "a\x00b", "é" * MOST_CHARS + "\udfff"])
def test_a_text_of_the_platforms_own_is_cut_by_its_event(text: str) -> None:
    status = JobStatus(job_id="j", status_seq=1, state="PENDING", reason=text)  # type: ignore[arg-type]
    assert 0 < len(status.reason) <= MOST_CHARS and status.reason.encode()
    assert JobStatus.model_validate_json(status.model_dump_json()) == status
    short = status.model_copy(update={"reason": "as it is: é"})
    assert JobStatus.model_validate(short.model_dump()).reason == "as it is: é"


@pytest.mark.parametrize("number", [1e308, -1e308, math.inf, -math.inf, math.nan, 10**400, "NaN"])
def test_a_number_that_the_platform_computes_is_brought_within_its_bound(number: Any) -> None:
    start = StartReserved(job_id="j", start_ms=number, node_ids=(), made_at_ms=0)  # type: ignore[arg-type]
    assert abs(start.start_ms) <= LATEST_MS
    told = {
        "job_id": "j",
        "attempt": 0,
        "epoch": 1,
        "pool": "p",
        "at_ms": 0,
        "rank": 0,
        "node_id": "n",
        "device_id": "d",
        "since_ms": number,
    }
    assert math.isfinite(StragglerDetected.model_validate(told | {"slowdown": number}).slowdown)


def test_what_has_a_bound_is_a_number() -> None:
    for number in (math.nan, math.inf, "NaN"):
        with pytest.raises(ValidationError):
            TypeAdapter(DurationS).validate_python(number)


class Old(Model):
    """A model as it is after bounds were set."""

    registered: NodeRegistered | None = None
    status: JobStatus | None = None


def test_what_was_stored_before_a_bound_was_set_is_read_with_the_bound() -> None:
    node = registered("n1").model_dump() | {
        "boot_id": "b" * 5_000,
        "cpus": math.nan,
        "memory_bytes": -1,
        "rendezvous_ports": [10**30] * (MOST_ITEMS + 5),
        "labels": {f"{n:04d}" + "k" * 2_000: "v" for n in range(2_000)},
    }
    data = {"registered": node, "status": {"job_id": "j", "status_seq": 2**70, "state": "RUNNING", "elapsed_s": 1e300, "step": -3}}
    before = repr(data)
    read = read_stored(Old, data)
    assert read.registered is not None and read.status is not None
    assert len(read.registered.boot_id) == 1024 and read.registered.cpus == 0 and read.registered.memory_bytes == 0
    assert read.registered.rendezvous_ports == (65_535,) * MOST_ITEMS
    assert len(read.registered.labels) == 1024 and all(len(key) == 1024 for key in read.registered.labels)
    assert (read.status.status_seq, read.status.step, read.status.elapsed_s) == (MOST_COUNT, 0, MOST_DURATION_S)
    assert repr(data) == before, "what was read is as it was"
    with pytest.raises(ValidationError):
        read_stored(Old, {"status": {"job_id": "/", "status_seq": 2**70, "state": "RUNNING"}})


def test_a_journal_of_before_is_read_and_its_rows_are_made() -> None:
    long = {"job_id": "j", "status_seq": 2**60, "state": JobState.PENDING, "reason": "x" * 200_000, "name": "n" * 3_000, "step": -1}
    record = JournalRecord(1, "o", 1, 0, (), (JobStatus.model_construct(**long),), 0, 1, 1, NO_HASH)  # type: ignore[arg-type]
    (status,) = JournalRecord.decode(record.encode()).decisions
    assert isinstance(status, JobStatus) and len(status.reason) == MOST_CHARS and len(status.name) == 1024 and status.step == 0
    builder = JournalBuilder({DECISIONS: (jobs.history,)}, columns())
    built = builder.build(
        [Record(DECISIONS, 0, 0, 1, None, record.encode())], {"trainhouse.decisions/0": 0, "trainhouse.decisions/0/ahead": 0}
    )
    assert built.tables["statuses_rows"].num_rows == 1 and not built.unreadable


def test_what_another_part_sends_is_cut_where_it_is_too_large_and_refused_where_it_cannot_be() -> None:
    node = registered("n1").model_dump()
    assert read_clamped(NodeRegistered, node | {"memory_bytes": 2**80, "address": "a" * 9_000}).memory_bytes == 2**60
    for wrong in ({"memory_bytes": -1}, {"cpus": math.nan}, {"devices": [node["devices"][0]] * (MOST_DEVICES + 1)}):
        with pytest.raises(ValidationError):
            read_clamped(NodeRegistered, node | wrong)


@pytest.mark.parametrize("read", [read_stored, read_clamped])
def test_an_entry_whose_key_and_value_are_both_too_long_is_cut_at_both(read: Any) -> None:
    class Nested(Model):
        inside: dict[ShortText, dict[ShortText, ShortText]]

    node = registered("n1").model_dump()
    labels = {"k" * 2_000: "v" * 70_000, "zone": "x", "[key]": "w" * 70_000}
    cut = read(NodeRegistered, node | {"labels": labels}).labels
    assert {k: len(v) for k, v in cut.items()} == {"k" * 1024: len(cut["[key]"]), "zone": 1, "[key]": len(cut["[key]"])}
    nested = read(Nested, {"inside": {"k" * 2_000: {"j" * 2_000: "v" * 70_000}}})
    assert nested.inside == {"k" * 1024: {"j" * 1024: "v" * 1024}}


def test_any_number_of_values_beyond_their_bounds_is_read_in_time() -> None:
    ids = {"job_id": "j", "attempt": 0, "epoch": 1, "rank": 0, "node_id": "n", "start": 0, "end": 1}
    many = [2**62] * MOST_ITEMS
    began = time.thread_time()  # of this thread alone: a loaded machine changes nothing
    points = read_clamped(StepMetrics, ids | {"steps": [2**70] * MOST_ITEMS, "times_ms": many, "offsets": many, "metrics": {}})
    lines = read_clamped(LogLines, ids | {"stream": "stdout", "lines": [], "offsets": many, "read_at_ms": 2**70})
    assert points.offsets[-1] == lines.offsets[-1] == 2**60 and points.steps[0] == 2**63 - 1 and lines.read_at_ms == LATEST_MS
    assert time.thread_time() - began < 30


def test_a_rank_that_says_too_much_is_heard_all_the_same() -> None:
    report = {"job_id": "j", "attempt": 0, "epoch": 1, "node_id": "n", "pool": "p", "rank": 0, "step": 2**70, "at_ms": 0}
    read = read_clamped(ProgressReported, report | {"activity_limit_s": 1e300, "loss": math.nan, "steps_per_s": math.inf})
    assert read.step == MOST_COUNT and read.activity_limit_s == MOST_DURATION_S


@pytest.mark.parametrize("name", [JobId, NodeId, PoolName, DeviceId])
def test_an_id_has_no_newline_at_its_end(name: type[Name]) -> None:
    assert name.parse("a") == "a"
    with pytest.raises(ValueError, match="no valid id"):
        name.parse("a\n")


def test_an_event_id_with_a_newline_is_refused_when_it_is_sent_and_read_where_it_is_stored() -> None:
    head = orjson.loads(encode(envelope_of(registered("n1"), id="e", source="s", now_ms=1))) | {"id": "e\n"}
    with pytest.raises(InvalidEvent, match="newline"):
        decode(orjson.dumps(head))
    data = head.pop("data")
    assert decode_parts(head, data, stored=True).id == "e\n"
