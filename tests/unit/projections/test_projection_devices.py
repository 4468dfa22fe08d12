"""Devices, lineage, artifacts and the journal's decisions as rows: the same for the same event, whichever way it came."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import ValidationError

import trainhouse.events
from trainhouse.events.model.artifact import ArtifactRecorded, ArtifactStored
from trainhouse.events.model.audit import AccessRefused, RequestAccepted, TokenIssued, TokenRevoked
from trainhouse.events.model.base import Event
from trainhouse.events.model.checkpoint import CheckpointCompleted, CheckpointRestored
from trainhouse.events.model.decisions import JobQueued, NodeGivenUp, TrustChanged
from trainhouse.events.model.evidence import Trust
from trainhouse.events.model.gang import GangAllocated, NodePlacement
from trainhouse.events.model.ids import EventId
from trainhouse.events.model.job import JobAdmitted, JobState, JobStatus
from trainhouse.events.model.media import MediaRecorded
from trainhouse.events.model.node import AttemptHeartbeat, Device, DeviceHealth, NodeHeartbeat, NodeRegistered, RankHeartbeat, RankState
from trainhouse.events.model.spec import CodeArchive, DataReference, JobSpec, Runtime
from trainhouse.events.model.tracking import ArtifactLogged, DatasetUsed, EnvironmentCaptured, InputsLogged, TraceRecorded
from trainhouse.events.wire import topics
from trainhouse.events.wire.codec import decode
from trainhouse.events.wire.envelope import FIRST_LIVE_ORDINAL, Envelope, Order, envelope_of
from trainhouse.events.wire.topic_types import TOPIC_EVENTS
from trainhouse.projections.ingest.lanes import BEATS, DECISIONS, FACTS, LANES, OF_RANKS, REPORTS
from trainhouse.projections.record import Record, RowsFunction
from trainhouse.projections.rows import decisions, devices, jobs, lineage, one_to_one

NOW = 1_800_000_000_000
SHA = "a" * 64


def rows_of(function: RowsFunction, event: Event, order: Order | None = None, now_ms: int = NOW) -> list[tuple[str, dict[str, Any]]]:
    envelope = envelope_of(event, id="e", source="t", now_ms=now_ms, order=order)
    return [(r.table, r.values) for r in function(envelope, Record(topics.CONTROL, 0, 7, NOW, b"k", b"{}"))]


def beat(at_ms: int, *health: DeviceHealth, ranks: tuple[RankHeartbeat, ...] = ()) -> NodeHeartbeat:
    attempts = (AttemptHeartbeat(job_id="j", attempt=0, epoch=3, ranks=ranks),) if ranks else ()
    return NodeHeartbeat(
        node_id="n", boot_id="b", incarnation="i", pool="p", sequence=1, at_ms=at_ms, interval_s=1.0, attempts=attempts, devices=health
    )


def test_a_registration_tells_each_device() -> None:
    device = Device(device_id="g0", index=0, type="H100", memory_bytes=80, nvlink_peers=("g1",), ecc_enabled=True)
    event = NodeRegistered(node_id="n", boot_id="b", incarnation="i", pool="p", address="a", devices=(device,), rendezvous_ports=(1,))
    ((table, row),) = rows_of(devices.rows, event)
    assert (table, row["device_id"], row["device_type"], row["memory_bytes"], row["nvlink_peers"]) == (
        "device_facts",
        "g0",
        "H100",
        80,
        ["g1"],
    )
    assert (row["ecc_enabled"], row["fact"], row["utilization_pct"]) == (1, "registered", None)


def test_a_heartbeat_tells_health_and_whose_rank_a_device_has() -> None:
    rank = RankHeartbeat(rank=5, device_id="g1", pid=1, state=RankState.RUNNING)
    over = RankHeartbeat(rank=6, device_id="g0", pid=None, state=RankState.EXITED)
    health = DeviceHealth(device_id="g0", utilization_pct=50.0, power_w=300.5, temperature_c=60, ecc_corrected=2, throttled=False)
    found = rows_of(devices.rows, beat(NOW, health, ranks=(rank, over)))
    facts = {v["device_id"]: v for t, v in found if t == "device_facts"}
    minutes = {v["device_id"]: v for t, v in found if t == "device_minutes_rows"}
    assert (facts["g0"]["utilization_pct"], facts["g0"]["throttled"], facts["g0"]["job_id"]) == (50.0, 0, "")
    assert (facts["g1"]["utilization_pct"], facts["g1"]["job_id"], facts["g1"]["epoch"], facts["g1"]["rank"]) == (None, "j", 3, 5)
    second = NOW % 60_000 // 1000
    assert (minutes["g0"]["utilization"], minutes["g0"]["power_w"]) == ({second: 50.0}, {second: 300.5})
    assert (minutes["g1"]["utilization"], minutes["g1"]["job_id"], minutes["g1"]["minute"]) == ({}, "j", NOW - NOW % 60_000)
    assert rows_of(devices.rows, beat(NOW + 5000, health)) == []


def test_which_devices_are_closed_is_what_the_scheduler_decided_last() -> None:
    event = TrustChanged(node_id="n", trust=Trust(closed_devices=("g1",)), reason="ECC")
    older, newer = (rows_of(devices.rows, event, Order(0, seq, 1))[0] for seq in (8, 9))
    assert older[1]["device_ids"] == ["g1"]
    assert newer[1]["version"] > older[1]["version"]


def test_which_devices_are_closed_follows_the_pool_to_a_partition_whose_journal_is_younger() -> None:
    closed = TrustChanged(node_id="n", trust=Trust(closed_devices=("g1",)), reason="ECC")
    there = rows_of(devices.rows, closed, Order(0, 9_000, 1))[0][1]
    here = rows_of(devices.rows, closed, Order(1, 8, 0), NOW + 300)[0][1]
    assert here["version"] > there["version"]
    within = [rows_of(devices.rows, closed, Order(1, 8, ordinal))[0][1]["version"] for ordinal in (0, 1, 10**7)]
    within += [rows_of(devices.rows, closed, Order(1, 9, 0))[0][1]["version"]]
    assert within == sorted(set(within)) and within[-1] < 2**64


SPEC = JobSpec(
    project="vision",
    runtime=Runtime(command=("python", "t.py")),
    code=CodeArchive(uri="s3://b/c", sha256=SHA),
    data=DataReference(uri="s3://b/d", sha256=SHA),
    resume_from="base@4",
)


def edges_of(event: Event) -> set[tuple[str, str, str]]:
    found = rows_of(lineage.rows, event)
    assert {t for t, _ in found} <= {"lineage_rows"}
    return {(v["from_id"], v["to_id"], v["kind"]) for _, v in found}


def test_what_a_job_was_given_is_told_alike_by_intake_and_by_the_scheduler() -> None:
    of: dict[str, Any] = {"job_id": "j", "spec": SPEC, "spec_sha256": SPEC.sha256(), "submission_id": "s", "submitted_at_ms": NOW}
    admitted = edges_of(JobAdmitted(**of))
    assert admitted == edges_of(JobQueued(number=1, **of))
    environment = f"environment:{lineage.environment_hash(SPEC)}"
    assert admitted == {
        (f"code:{SHA}", "job:j", "code"),
        ("data:s3://b/d", "job:j", "data"),
        (environment, "job:j", "environment"),
        ("checkpoint:base@4", "job:j", "resumed"),
    }
    other = SPEC.model_copy(update={"env": {"A": "1"}})
    assert lineage.environment_hash(other) != lineage.environment_hash(SPEC)


def test_a_version_of_a_dataset_is_named_in_lineage_by_its_hash() -> None:
    data = DataReference(dataset=f"speech@sha256:{SHA}", split="train")
    spec = SPEC.model_copy(update={"data": data})
    of: dict[str, Any] = {"job_id": "j", "spec": spec, "spec_sha256": spec.sha256(), "submission_id": "s", "submitted_at_ms": NOW}
    assert (f"data:speech@sha256:{SHA}", "job:j", "data") in edges_of(JobAdmitted(**of))


def test_attempts_and_checkpoints_hang_together() -> None:
    place = NodePlacement(node_id="n", boot_id="b", address="a", first_rank=0, devices=("g0",))
    gang = GangAllocated(
        job_id="j", attempt=1, epoch=2, pool="p", spec=SPEC, spec_sha256=SHA, placements=(place,), master_address="a", master_port=1
    )
    of: dict[str, Any] = {"job_id": "j", "attempt": 1, "epoch": 2, "at_ms": NOW, "step": 9}
    assert edges_of(gang) == {("job:j", "attempt:j/2", "attempt")}
    saved = CheckpointCompleted(commit=7, uri="s3://b/jobs/j/commits/0000000007", bytes_total=1, bytes_new=1, **of)
    assert edges_of(saved) == {("attempt:j/2", "checkpoint:j@7", "saved")}
    foreign = CheckpointRestored(commit=4, uri="s3://b/jobs/base/commits/0000000004", **of)
    assert edges_of(foreign) == {("checkpoint:base@4", "attempt:j/2", "restored")}
    assert edges_of(foreign.model_copy(update={"uri": "file:///x"})) == {("checkpoint:j@4", "attempt:j/2", "restored")}


def test_what_a_run_says_of_itself() -> None:
    stored = ArtifactLogged(job_id="r", path="model/w.PT", uri="s3://b/w", sha256=SHA, size_bytes=3, at_ms=NOW)
    ((table, row),) = rows_of(one_to_one.artifacts, stored)
    assert (table, row["path"], row["kind"], row["deleted"], row["version"]) == ("artifacts_rows", "model/w.PT", "pt", 0, 8)
    assert edges_of(stored) == {("job:r", "artifact:s3://b/w", "wrote")}
    read = (DatasetUsed(name="d", digest="1", source="s3://b/in"), DatasetUsed(name="e", digest="2"))
    assert edges_of(InputsLogged(job_id="r", datasets=read, at_ms=NOW)) == {
        ("data:s3://b/in", "job:r", "data"),
        ("data:e@2", "job:r", "data"),
    }
    ran = EnvironmentCaptured(job_id="r", attempt=0, epoch=1, rank=0, environment_id="abc", at_ms=NOW)
    assert edges_of(ran) == {("environment:abc", "attempt:r/1", "environment")}
    assert edges_of(ran.model_copy(update={"environment_id": ""})) == set()


def test_a_trace_is_an_artifact_of_its_job_that_replaces_no_other_one() -> None:
    trace = TraceRecorded.model_validate(
        {
            "job_id": "j",
            "attempt": 0,
            "epoch": 1,
            "rank": 3,
            "path": "profiles/r/rank-3.pt.trace.json.gz",
            "uri": f"s3://b/artifacts/j/{SHA}",
        }
        | {"sha256": SHA, "size_bytes": 3, "first_step": 4, "steps": 20, "at_ms": NOW}
    )
    ((table, row),) = rows_of(one_to_one.artifacts, trace)
    assert (table, row["path"], row["size_bytes"], row["version"]) == ("artifacts_rows", trace.path, 3, 0)
    assert edges_of(trace) == {("job:j", f"artifact:{trace.uri}", "wrote")}
    for uri in (f"s3://b/artifacts/other/{SHA}", "s3://b/artifacts/j/other"):
        foreign = trace.model_copy(update={"uri": uri})
        assert rows_of(one_to_one.artifacts, foreign) == [] and edges_of(foreign) == set()
    of_another_rank = trace.model_copy(update={"rank": 4})
    assert rows_of(one_to_one.artifacts, of_another_rank) == [] and edges_of(of_another_rank) == set()
    for wrong in ({"path": "/etc/x"}, {"path": f"{trace.path}\n"}, {"path": f"x/../{trace.path}"}, {"size_bytes": 2**26 + 1}):
        with pytest.raises(ValidationError):
            TraceRecorded.model_validate(trace.model_dump() | wrong)


def test_media_of_a_rank_are_artifacts_of_its_job_and_no_edges_of_lineage() -> None:
    path = "images/eval~samples+step+40+timestamp+1795251600000+3-0.png"
    about = {"job_id": "j", "attempt": 0, "epoch": 1, "rank": 3, "path": path, "uri": f"s3://b/artifacts/j/{SHA}"}
    logged = MediaRecorded.model_validate(about | {"sha256": SHA, "size_bytes": 3, "at_ms": NOW})
    ((table, row),) = rows_of(one_to_one.artifacts, logged)
    assert (table, row["path"], row["kind"], row["version"]) == ("artifacts_rows", path, "png", 0) and edges_of(logged) == set()
    for foreign in ({"uri": f"s3://b/artifacts/other/{SHA}"}, {"rank": 4}, {"sha256": "f" * 64}):  # pragma: allowlist secret
        assert rows_of(one_to_one.artifacts, logged.model_copy(update=foreign)) == []
    climbing = path.replace("eval~samples", "../x")
    for wrong in ({"path": climbing}, {"path": f"{path}\n"}, {"path": path.replace("png", "svg")}, {"size_bytes": 2**24 + 1}):
        with pytest.raises(ValidationError):
            MediaRecorded.model_validate(logged.model_dump() | wrong)


@pytest.mark.parametrize("event", [NodeGivenUp(node_id="n", reason="lost"), JobStatus(job_id="j", status_seq=3, state=JobState.RUNNING)])
def test_a_decision_is_a_row_with_its_place(event: Event) -> None:
    envelope = Envelope(EventId("d"), "t", event, NOW, order=Order(2, 40, 1))
    (row,) = (r.values for r in decisions.rows(envelope, Record(topics.DECISIONS, 2, 90, NOW, None, b"{}")))
    assert (row["partition"], row["seq"], row["ordinal"], row["type"]) == (2, 40, 1, event.event_type)
    assert orjson.loads(row["json"]) == orjson.loads(event.model_dump_json())
    assert rows_of(decisions.rows, event) == []


def test_a_status_in_a_decision_is_a_row_of_its_jobs_history_alone() -> None:
    event = JobStatus(job_id="j", status_seq=3, state=JobState.RUNNING, epoch=2, step=5, priority=7)
    assert [t for t, _ in rows_of(jobs.history, event)] == ["statuses_rows"]
    assert rows_of(jobs.history, event)[0] == rows_of(jobs.rows, event)[1]
    assert set(DECISIONS) == {topics.DECISIONS}


def test_a_status_with_numbers_behind_it_is_one_row_by_both_ways_and_what_follows_progress_alone_is_none() -> None:
    public = JobStatus(job_id="j", status_seq=3, state=JobState.RUNNING, epoch=2, step=5)
    journaled = public.model_copy(update={"status_seq": 100_003, "live_room": 100_000})
    assert rows_of(jobs.history, journaled) == rows_of(jobs.rows, public, Order(0, 9, 1))[1:]
    live = public.model_copy(update={"status_seq": 4, "step": 6})
    assert [t for t, _ in rows_of(jobs.rows, live, Order(0, 9, FIRST_LIVE_ORDINAL + 1))] == ["jobs_rows"]


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (
            AccessRefused(at_ms=NOW, since_ms=NOW - 9, count=4, status=403, action="GET /v1/x", sub="eve"),
            {"kind": "refused", "count": 4, "since": NOW - 9, "status": 403, "sub": "eve"},
        ),
        (RequestAccepted(at_ms=NOW, action="POST /v1/x", sub="ada", event_id="e9", topic="t"), {"kind": "accepted", "passed_on_id": "e9"}),
        (TokenIssued(token_id="t", sub="ada", roles=("viewer",), projects=("*",), at_ms=NOW), {"kind": "issued", "roles": ["viewer"]}),
        (TokenRevoked(token_id="t", by="root", at_ms=NOW), {"kind": "revoked", "done_by": "root", "status": None, "count": 1}),
    ],
)
def test_what_was_asked_of_the_gateway_is_a_row_of_the_audit(event: Event, told: dict[str, Any]) -> None:
    ((table, row),) = rows_of(one_to_one.audit, event)
    assert table == "audit_rows"
    assert told.items() <= row.items()


@pytest.mark.parametrize(
    ("lane", "functions"), [("facts", FACTS), ("ranks", OF_RANKS), ("beats", BEATS), ("decisions", DECISIONS), ("reports", REPORTS)]
)
def test_a_lane_writes_only_tables_that_it_says_so_of(lane: str, functions: dict[str, tuple[RowsFunction, ...]]) -> None:
    spec = next(s for s in LANES if s.name == lane)
    samples = Path(trainhouse.events.__file__).parent / "contract" / "samples"
    written = set()
    for topic, of_topic in functions.items():
        for event_class in TOPIC_EVENTS.get(topic, ()):
            envelope = decode((samples / f"{event_class.event_type}.json").read_bytes())
            placed = Envelope(envelope.id, "t", envelope.event, NOW, order=Order(0, 1, 0) if lane == "decisions" else None)
            written |= {r.table for f in of_topic for r in f(placed, Record(topic, 0, 7, NOW, b"k", b"{}"))}
    assert written
    assert written <= spec.tables


def test_versions_of_artifacts_are_rows_and_lineage() -> None:
    about: dict[str, Any] = {"name": "bpe", "kind": "tokenizer", "sha256": SHA, "bytes": 12, "files": 2, "at_ms": NOW}
    stored = ArtifactStored.model_validate(about | {"project": "lm", "user": "ana"})
    ((table, row),) = rows_of(one_to_one.artifact_versions, stored)
    assert (table, row["owner"], row["project"], row["created_by"], row["deleted"]) == (
        "artifact_versions_rows",
        "project:lm",
        "lm",
        "ana",
        0,
    )
    assert not rows_of(lineage.rows, stored), "it was stored for no job"
    by_rank = ArtifactRecorded.model_validate(about | {"job_id": "j", "attempt": 1, "epoch": 2, "rank": 0, "node_id": "n"})
    ((_, row),) = rows_of(one_to_one.artifact_versions, by_rank)
    assert (row["owner"], row["project"], row["job_id"], row["size_bytes"], row["files"]) == ("job:j", "", "j", 12, 2)
    assert edges_of(by_rank) == {("job:j", f"artifact:bpe@sha256:{SHA}", "wrote")}
    assert row["action"] == "stored"
    used = by_rank.model_copy(update={"action": "used"})
    ((_, row),) = rows_of(one_to_one.artifact_versions, used)
    assert (row["owner"], row["job_id"], row["action"], row["size_bytes"]) == ("used:j", "j", "used", 12)
    assert edges_of(used) == {(f"artifact:bpe@sha256:{SHA}", "job:j", "used")}
