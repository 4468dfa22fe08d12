"""Records that somebody writes to Kafka directly are accesses: what intake decided of each is in the audit, once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.tables.migrated import connect_migrated
from trainhouse.events import (
    AskedVia,
    CancelJob,
    Event,
    JobAdmitted,
    JobId,
    JobSpec,
    JobState,
    JobStatus,
    JobSubmitted,
    RequestAccepted,
    RequestedBy,
    encode,
    envelope_of,
)
from trainhouse.events.model.dead_letter import DeadLetter
from trainhouse.events.wire.topics import AUDIT, CONTROL, DEAD_LETTERS, JOBS, STATUS
from trainhouse.projections.ingest.builders.event_builder import FactsBuilder
from trainhouse.projections.ingest.lanes import FACTS, REPORTS
from trainhouse.projections.record import Record
from trainhouse.projections.store.clickhouse import ConnectClickHouse
from trainhouse.projections.store.schema import read_schemas
from trainhouse.projections.store.tables import TABLES

NOW_MS = 1_700_000_000_000
VISION = f"{JOBS}.vision"


def spec(project: str = "lm", user: str = "ada") -> JobSpec:
    return JobSpec.model_validate({"project": project, "user": user, "runtime": {"command": ["python"]}})


def record(topic: str, offset: int, event: Event, event_id: str, key: str = "k") -> Record:
    return Record(topic, 0, offset, NOW_MS, key.encode(), encode(envelope_of(event, id=event_id, source="s", now_ms=NOW_MS)))


def rejected(offset: int, event_id: str, job_id: str, reason: str) -> Record:
    status = JobStatus(job_id=JobId(job_id), status_seq=0, state=JobState.REJECTED, reason=reason, submission_id=event_id, updated_at_ms=1)  # type: ignore[arg-type]
    return record(STATUS, offset, status, f"{event_id}:rejected", event_id)


def letter(offset: int, topic: str, at: int, reason: str, job_id: str, event_id: str) -> Record:
    dead = DeadLetter(topic, 0, at, reason, job_id, event_id)
    return Record(DEAD_LETTERS, 0, offset, NOW_MS, dead.key, b"{}", tuple(dead.headers()))


def admitted(job_id: str, submission_id: str, project: str, user: str) -> JobAdmitted:
    asked = spec(project, user)
    fields = {"job_id": job_id, "spec": asked, "spec_sha256": asked.sha256(), "submission_id": submission_id, "submitted_at_ms": 1}
    return JobAdmitted.model_validate(fields)


def cancel(job_id: str, by: RequestedBy | None = None) -> CancelJob:
    return CancelJob.model_validate({"job_id": job_id, "user": "bob", "reason": "", "requested_by": by})


BY_VISION = RequestedBy(name="vision/ana", via=AskedVia.PROJECT, project="vision")
RECORDS = [
    # By an operator: accepted, refused by the directory, refused by intake with a letter.
    record(JOBS, 0, JobSubmitted(job_id=JobId("a"), spec=spec()), "e-a"),
    record(CONTROL, 0, admitted("a", "e-a", "lm", "ada"), "a:admitted"),
    record(JOBS, 1, JobSubmitted(job_id=JobId("b"), spec=spec()), "e-b"),
    rejected(0, "e-b", "b", "no such pool"),
    record(JOBS, 2, JobSubmitted(job_id=JobId("c"), spec=spec()), "e-c"),
    letter(0, JOBS, 2, "env: HF_TOKEN looks like a secret", "c", "e-c"),
    rejected(1, "e-c", "c", "env: HF_TOKEN looks like a secret"),
    record(JOBS, 3, cancel("a"), "e-d"),
    record(CONTROL, 1, cancel("a", RequestedBy(name="bob", via=AskedVia.OPERATOR)), "e-d"),
    # What nobody can read.
    letter(1, JOBS, 4, "it is no JSON", "", ""),
    # By a gateway, which told of it itself.
    record(JOBS, 5, cancel("a", RequestedBy(name="ana", via=AskedVia.GATEWAY, role="submitter")), "e-g"),
    record(AUDIT, 0, RequestAccepted(at_ms=NOW_MS, action="POST /v1/x", target="a", sub="ana", event_id="e-g", topic=JOBS), "audit-g"),
    # By a project: accepted, a cancellation, refused by the directory, refused by intake, unreadable.
    record(CONTROL, 2, admitted("vision.a", "vision/e-1", "vision", "vision/ana"), "vision.a:admitted"),
    record(CONTROL, 3, cancel("vision.a", BY_VISION), "vision/e-2"),
    rejected(2, "vision/e-3", "vision.b", "its purpose is not approved"),
    letter(2, VISION, 7, "job_id: the ids of jobs on this topic begin with", "lm.x", "e-4"),
    rejected(3, "vision/e-4", "lm.x", "job_id: the ids of jobs on this topic begin with"),
    letter(3, VISION, 8, "it is no JSON", "x", ""),
    rejected(4, f"vision/{VISION}-0-8", "x", "it is no JSON"),
]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectClickHouse]:
    folder: Path = tmp_path_factory.mktemp("kafka") / "clickhouse"
    clickhouse = connect_migrated(folder, 1024**3, 2)
    try:
        built = FactsBuilder(FACTS | REPORTS, read_schemas(clickhouse, TABLES)).build(RECORDS, {})
        for name, table in built.tables.items():
            clickhouse.insert(name, table, name)
        yield clickhouse
    finally:
        clickhouse.close()


def told(engine: ConnectClickHouse, topic: str) -> dict[str, tuple[Any, ...]]:
    sql = "SELECT event_id, outcome, resource, user, reason FROM audit WHERE access = 'kafka' AND topic = {topic:String}"
    found = engine.rows(sql, {"topic": topic})
    rows = {row[0] or row[4]: row[1:] for row in found}
    assert len(rows) == len(found), f"a record is told twice: {found}"
    return rows


def test_an_operators_records_are_told_once_with_what_intake_decided(engine: ConnectClickHouse) -> None:
    found = told(engine, JOBS)
    assert {name: row[0] for name, row in found.items()} == {
        "e-a": "allowed",
        "e-b": "refused",
        "e-c": "refused",
        "e-d": "allowed",
        "it is no JSON": "refused",
    }
    assert found["e-a"][1:3] == ("a", "ada") and found["e-d"][2] == "bob"
    assert found["e-b"][3] == "no such pool" and "looks like a secret" in found["e-c"][3]


def test_a_projects_records_are_told_once_with_what_intake_decided(engine: ConnectClickHouse) -> None:
    found = told(engine, VISION)
    assert {name: row[0] for name, row in found.items()} == {
        "vision/e-1": "allowed",
        "vision/e-2": "allowed",
        "vision/e-3": "refused",
        "e-4": "refused",
        "it is no JSON": "refused",
    }
    assert found["vision/e-1"][1:3] == ("vision.a", "vision/ana") and found["vision/e-2"][2] == "vision/ana"
    assert found["vision/e-3"][3] == "its purpose is not approved"


def test_what_a_gateway_passed_on_is_told_by_the_gateway_alone(engine: ConnectClickHouse) -> None:
    rows = engine.rows("SELECT kind, user, access FROM audit WHERE passed_on_id = 'e-g'")
    assert rows == [("accepted", "ana", "")]
    assert engine.rows("SELECT count() FROM audit WHERE access != 'kafka'") == [(1,)]
