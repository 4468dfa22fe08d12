"""Every shipped rule on the real engine: rows that make it fire, and rows beside them that do not."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tests.support.dataset_versions import version
from tests.support.registry_requests import Registry, content_of, facts_of, observed
from tests.support.tables.alert_tables import DAY_MS, HOUR_MS, MINUTE_MS, Tables, beat, metric, tables_in, verdict
from trainhouse.events.model.alert import AlertFired
from trainhouse.events.model.attempt import AttemptStarted, AttemptStopped
from trainhouse.events.model.audit import AuditLost
from trainhouse.events.model.base import Event
from trainhouse.events.model.checkpoint import CheckpointCompleted, CheckpointDeleted, CheckpointFailed
from trainhouse.events.model.dataset import DatasetVersionDeprecated, DatasetVersionPublished
from trainhouse.events.model.dataset_drift import DatasetDriftMeasured, DriftVerdict, FieldDrift
from trainhouse.events.model.gang import GangAllocated
from trainhouse.events.model.job import JobAdmitted, JobStatus, JobSubmitted
from trainhouse.events.model.model_decisions import ModelDecision, ModelRequestRefused
from trainhouse.events.model.model_gate import ModelGate
from trainhouse.events.model.model_registry import ModelEmergencyReview, ModelGateApplied, ModelPromotionRequested, ModelRegistered
from trainhouse.events.model.pool import PolicyApplied
from trainhouse.events.model.project import ProjectApplied
from trainhouse.events.model.telemetry import LogLines
from trainhouse.events.model.tracking import ArtifactLogged
from trainhouse.events.wire import topics
from trainhouse.projections.alerts.driver import answer, filled, on_grid
from trainhouse.projections.alerts.engine import Engine
from trainhouse.projections.alerts.rule_files import shipped
from trainhouse.projections.alerts.rules import SqlRule

pytestmark = pytest.mark.stack
NOW = 1_800_000_000_000
RULES = shipped().rules
SQL_RULES = {name: rule for name, rule in RULES.items() if isinstance(rule, SqlRule)}
Fed = Sequence[tuple[str, Event]]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    with tables_in(tmp_path_factory.mktemp("alerts")) as made:
        yield made


def status(job: str, pool: str, state: str, at_ms: int, seq: int = 1, **more: Any) -> tuple[str, Event]:
    about = {"job_id": job, "status_seq": seq, "state": state, "pool": pool, "project": f"project-{pool}", "updated_at_ms": at_ms}
    return topics.STATUS, JobStatus.model_validate({"submitted_at_ms": at_ms, **about, **more})


def beats(minutes: range, every_ms: int = MINUTE_MS // 2, **about: Any) -> list[tuple[str, Event]]:
    """Heartbeats of these minutes before NOW; `used` and `waited_s` may be functions of the time."""

    def at(ms: int) -> dict[str, Any]:
        return {name: value(ms) if callable(value) else value for name, value in about.items()}

    times = [NOW - n * MINUTE_MS + k for n in minutes for k in range(0, MINUTE_MS, every_ms)]
    return [(topics.HEARTBEATS, beat(f"node-{about['pool']}", at_ms=ms, **at(ms))) for ms in sorted(times)]


def saved(job: str, at_ms: int, commit: int, upload_s: float = 0.0) -> tuple[str, Event]:
    size = {"bytes_total": 1, "bytes_new": 1}
    return topics.CHECKPOINTS, CheckpointCompleted(
        job_id=job, attempt=1, epoch=1, at_ms=at_ms, commit=commit, step=commit, uri="s3://x", upload_s=upload_s, **size
    )


def unsaved(job: str, at_ms: int, step: int) -> tuple[str, Event]:
    return topics.CHECKPOINTS, CheckpointFailed(job_id=job, attempt=1, epoch=1, at_ms=at_ms, step=step, reason="503 Slow Down")


def started(job: str, pool: str, at_ms: int) -> tuple[str, Event]:
    return topics.CONTROL, AttemptStarted(job_id=job, attempt=1, epoch=1, node_id="n", pool=pool, started_at_ms=at_ms, warm=True)


def output(job: str, at_ms: int) -> Event:
    about: dict[str, Any] = {"job_id": job, "attempt": 1, "epoch": 1, "rank": 0, "node_id": "n", "stream": "stdout", "start": 0, "end": 3}
    return LogLines.model_validate(about | {"lines": ("one",), "offsets": (0,), "read_at_ms": at_ms})


def audit_lost() -> Fed:
    about = {"since_ms": NOW - 2 * HOUR_MS, "count": 3}
    lately = AuditLost(at_ms=NOW - MINUTE_MS, source="audit-bad", **about)
    return [(topics.AUDIT, lately), (topics.AUDIT, AuditLost(at_ms=NOW - 2 * HOUR_MS, source="audit-ok", **about))]


def device_utilization_low() -> Fed:
    low = beats(range(1, 7), pool="util-bad", job="util-bad", used={"d0": 70.0, "d1": 60.0})
    well = beats(range(1, 7), pool="util-ok", job="util-ok", used={"d0": 95.0})
    # One good minute of five, a job that makes no steps yet, and one that began three minutes ago.
    once = beats(range(1, 7), pool="util-once", job="util-once", used=lambda ms: {"d0": 99.0 if ms >= NOW - 3 * MINUTE_MS else 10.0})
    idle = beats(range(1, 7), pool="util-idle", job="util-idle", used={"d0": 1.0}, step=None)
    new = beats(range(1, 4), pool="util-new", job="util-new", used={"d0": 1.0})
    return [*low, *well, *once, *idle, *new]


def pool_utilization_low() -> Fed:
    low = beats(range(66), pool="pool-bad", used={"d0": 90.0, "d1": 0.0})
    well = beats(range(66), pool="pool-ok", used={"d0": 90.0, "d1": 50.0})
    short = beats(range(40), pool="pool-short", used={"d0": 0.0})
    return [*low, *well, *short]


def mfu_low() -> Fed:
    points = {NOW - n * 30_000: 0.21 for n in range(20)}
    jobs = {"mfu-bad": 1.0, "mfu-percent": 100.0, "mfu-ok": 2.0}
    fed = [(topics.METRICS, metric(job, "mfu", {t: v * scale for t, v in points.items()})) for job, scale in jobs.items()]
    for job in (*jobs, "mfu-other"):
        fed += beats(range(2), pool=job, job=job, used={"d0": 50.0})
    # One that has ended, and one that logs something else.
    return [*fed, (topics.METRICS, metric("mfu-ended", "mfu", points)), (topics.METRICS, metric("mfu-other", "loss", points))]


def sm_activity_low() -> Fed:
    def active(job: str, **values: float) -> Fed:
        names = {"sm": "system/device_sm_active_pct", "bandwidth": "system/device_memory_bandwidth_pct"}
        points = {NOW - n * 30_000: 0.0 for n in range(20)}
        series = {names.get(name, f"step/{name}"): (value,) * len(points) for name, value in values.items()}
        return [(topics.METRICS, metric(job, "loss", points).model_copy(update={"metrics": series}))]

    fed = [*active("sm-bad", sm=55.0), *active("sm-bad-data", sm=40.0, total_ms=100.0, data_ms=30.0, bandwidth=90.0)]
    fed += [*active("sm-bad-memory", sm=60.0, bandwidth=80.0, total_ms=100.0, data_ms=1.0), *active("sm-ok", sm=75.0, bandwidth=10.0)]
    fed += active("sm-ended", sm=10.0)  # it has no heartbeats any more
    fed.append((topics.METRICS, metric("sm-young", "system/device_sm_active_pct", {NOW - n * 30_000: 5.0 for n in range(5)})))
    for job in ("sm-bad", "sm-bad-data", "sm-bad-memory", "sm-ok", "sm-young", "sm-untold"):
        fed += beats(range(2), pool=job, job=job, used={"d0": 99.0})
    return fed


def loader_throughput() -> Fed:
    began = NOW - 8 * MINUTE_MS
    slow = beats(range(1, 8), pool="load-bad", job="load-bad", used={"d0": 50.0}, waited_s=lambda ms: 100 + 0.3 * (ms - began) / 1000)
    well = beats(range(1, 8), pool="load-ok", job="load-ok", used={"d0": 50.0}, waited_s=lambda ms: 900 + 0.1 * (ms - began) / 1000)
    return [*slow, *well]


def failure_rate_shard() -> Fed:
    def failures(shard: str, times: Sequence[int]) -> list[tuple[str, Event]]:
        return [verdict("FailureBlamed", t, "shards", category="DATA", rule="r", summary="s", shard=shard) for t in times]

    return [*failures("shard-bad", [NOW - n * HOUR_MS for n in range(3)]), *failures("shard-ok", [NOW, NOW - HOUR_MS, NOW - 2 * DAY_MS])]


def checkpoint_overdue() -> Fed:
    fed: list[tuple[str, Event]] = []
    spec: dict[str, Any] = {"name": "x", "user": "u", "gang": {"ranks": 1}, "runtime": {"command": ["a"]}}
    for job, policy, ages in (
        ("due-bad", {"every_s": 120}, [5, 7]),
        ("due-ok", {"every_s": 120}, [3, 5]),
        ("due-bad-usual", {"every_steps": 10}, [20, 25, 30, 35]),
        ("due-ok-usual", {"every_steps": 10}, [8, 13, 18]),
        ("due-ok-policy", {}, [19]),
        ("due-bad-policy", {}, [21]),
        ("due-never-saves", {"every_s": 120}, []),
    ):
        fed.append((topics.JOBS, JobSubmitted.model_validate({"job_id": job, "spec": {**spec, "checkpoint": policy}})))
        fed += [started(job, job, NOW - 5 * HOUR_MS), *beats(range(2), pool=job, job=job, used={"d0": 50.0})]
        fed += [saved(job, NOW - age * MINUTE_MS, n) for n, age in enumerate(reversed(ages))]
    # It was away since its last save, and its new attempt has just begun.
    fed.append((topics.JOBS, JobSubmitted.model_validate({"job_id": "due-back", "spec": {**spec, "checkpoint": {"every_s": 120}}})))
    return [
        *fed,
        saved("due-back", NOW - DAY_MS, 0),
        started("due-back", "due-back", NOW - MINUTE_MS),
        *beats(range(2), pool="due-back", job="due-back", used={"d0": 50.0}),
    ]


def uploads_slow() -> Fed:
    fed: list[tuple[str, Event]] = []
    for job, every_s, upload_s, count, age_s in (
        ("pace-bad", 300, 296.0, 5, 0),
        ("pace-bad-quick", 65, 61.0, 5, 0),
        ("pace-ok", 300, 200.0, 5, 0),
        ("pace-policy", 300, 285.0, 5, 0),  # waits a while after each upload: something else sets the pace
        ("pace-quick", 20, 19.0, 5, 0),  # back to back, but every 20 s: nothing is lost by it
        ("pace-new", 300, 296.0, 3, 0),
        ("pace-past", 300, 296.0, 5, 7200),
        ("pace-ended", 300, 296.0, 5, 0),
    ):
        fed += [saved(job, NOW - (age_s + n * every_s) * 1000, count - n, upload_s) for n in range(count, 0, -1)]
        fed += [] if job == "pace-ended" else beats(range(2), pool=job, job=job, used={"d0": 95.0})
    return fed


def checkpoint_failures() -> Fed:
    fed = [status("saves-bad", "saves-bad", "RUNNING", NOW - DAY_MS), status("saves-ok", "saves-ok", "RUNNING", NOW - DAY_MS)]
    fed += [saved("saves-bad", NOW - n * MINUTE_MS, n) for n in range(1, 90)] + [unsaved("saves-bad", NOW - 20 * MINUTE_MS, 7)]
    fed += [saved("saves-ok", NOW - n * MINUTE_MS, n) for n in range(1, 120)] + [unsaved("saves-ok", NOW - 20 * MINUTE_MS, 7)]
    return [*fed, unsaved("saves-ok", NOW - 2 * DAY_MS, 8)]


def store_errors() -> Fed:
    failed = {"rule": "r", "summary": "s"}
    return [
        status("store-bad", "store-bad", "RUNNING", NOW - DAY_MS),
        unsaved("store-bad", NOW - 14 * MINUTE_MS, 3),
        verdict("FailureBlamed", NOW - MINUTE_MS, "store-bad-2", category="STORAGE", **failed),
        verdict("FailureBlamed", NOW - MINUTE_MS, "store-ok", category="USER_CODE", **failed),
        verdict("FailureBlamed", NOW - 16 * MINUTE_MS, "store-ok", category="STORAGE", **failed),
    ]


def urgent_job_waits() -> Fed:
    submitted = {"submitted_at_ms": NOW - 5 * HOUR_MS}
    return [
        status("wait-bad", "wait-bad", "PENDING", NOW - 3 * HOUR_MS, priority=10, **submitted),
        status("wait-ok", "wait-ok", "PENDING", NOW - HOUR_MS, priority=10, **submitted),
        status("wait-patient", "wait-patient", "PENDING", NOW - 3 * HOUR_MS, priority=50, **submitted),
        status("wait-runs", "wait-runs", "RUNNING", NOW - 3 * HOUR_MS, priority=10, **submitted),
        # Preempted an hour ago, and waiting since.
        status("wait-again", "wait-again", "RUNNING", NOW - 4 * HOUR_MS, 1, priority=10, **submitted),
        status("wait-again", "wait-again", "PREEMPTED", NOW - HOUR_MS, 2, priority=10, **submitted),
        status("wait-again", "wait-again", "PENDING", NOW - HOUR_MS + 1, 3, priority=10, **submitted),
        # It started after the moment that is asked about: then it waited.
        status("wait-bad-then", "wait-bad-then", "PENDING", NOW - 3 * HOUR_MS, 1, priority=10, **submitted),
        status("wait-bad-then", "wait-bad-then", "RUNNING", NOW + HOUR_MS, 2, priority=10, **submitted),
    ]


def job_failures() -> Fed:
    def ended(pool: str, n: int, state: str, at_ms: int) -> tuple[str, Event]:
        return status(f"{pool}-{n}", pool, state, at_ms, finished_at_ms=at_ms)

    bad = [ended("jobs-bad", n, "FAILED" if n < 2 else "SUCCEEDED", NOW - n * MINUTE_MS) for n in range(30)]
    well = [ended("jobs-ok", n, "FAILED" if n < 1 else "SUCCEEDED", NOW - n * MINUTE_MS) for n in range(30)]
    return [*bad, *well, ended("jobs-ok", 99, "FAILED", NOW - 2 * DAY_MS), ended("jobs-ok", 98, "CANCELLED", NOW)]


def failure_rate_job() -> Fed:
    def failures(job: str, times: Sequence[int]) -> list[tuple[str, Event]]:
        about = {"category": "UNKNOWN", "rule": "r", "summary": "s"}
        return [verdict("FailureBlamed", t, "rate", job_id=job, epoch=n, **about) for n, t in enumerate(times)]

    return [*failures("rate-bad", [NOW - n * MINUTE_MS for n in range(3)]), *failures("rate-ok", [NOW, NOW - 1, NOW - 2 * HOUR_MS])]


def cost_over_budget() -> Fed:
    """Gangs of 8 devices a node that hold them for the first 10 hours of NOW's month, at 2.5 a device-hour: 200 a node."""
    priced = {"name": "default", "prices": {"currency": "EUR", "devices": {"any": {"reserved": 2.5}}}}
    since, month_ms = {"version": 1, "applied_at_ms": NOW - 60 * DAY_MS}, NOW - 14 * DAY_MS - 8 * HOUR_MS
    fed: list[tuple[str, Event]] = []
    for project, nodes, may_cost, freed_ms, policy in (
        ("spent-bad", 6, 1_000, month_ms + 10 * HOUR_MS, priced),
        ("spent-ok", 4, 1_000, month_ms + 10 * HOUR_MS, priced),
        ("spent-open", 9, None, month_ms + 10 * HOUR_MS, priced),
        ("spent-before", 9, 1_000, month_ms - HOUR_MS, priced),
        ("spent-unpriced", 9, 1_000, month_ms + 10 * HOUR_MS, {}),
    ):
        pool, job, node_ids = f"pool-{project}", f"job-{project}", [f"{project}-{n}" for n in range(nodes)]
        limits = {"cost_per_month": may_cost}
        fed.append((topics.POLICIES, PolicyApplied.model_validate({"pool": pool, "policy": policy, **since})))
        fed.append((topics.PROJECTS, ProjectApplied.model_validate({"project": {"name": project, "limits": limits}, **since})))
        fed.append(status(job, pool, "RUNNING", NOW - 20 * DAY_MS, project=project))
        parts = [
            {"node_id": n, "boot_id": "b", "address": "h", "first_rank": 8 * k, "devices": [f"{n}-{d}" for d in range(8)]}
            for k, n in enumerate(node_ids)
        ]
        about = {"job_id": job, "attempt": 0, "epoch": 1, "pool": pool}
        spec = {"name": "x", "user": "u", "project": project, "gang": {"ranks": 8 * nodes}, "runtime": {"command": ["a"]}}
        gang = {"spec": spec, "spec_sha256": "0" * 64, "placements": parts, "master_address": "h", "master_port": 1}
        fed.append((topics.ALLOCATIONS, GangAllocated.model_validate(about | gang)))
        fed += [(topics.CONTROL, AttemptStopped(**about, node_id=n, boot_id="b", stopped_at_ms=freed_ms)) for n in node_ids]
    return fed


def nodes_lost() -> Fed:
    def lost(pool: str, node: str, at_ms: int) -> tuple[str, Event]:
        return verdict("NodeLost", at_ms, pool, node_id=node, boot_id="b", incarnation="i", silent_s=30, evidence="quiet")

    bad = [lost("lost-bad", f"n{n}", NOW - n * HOUR_MS) for n in range(3)]
    return [*bad, *(lost("lost-ok", f"n{n % 2}", NOW - n * HOUR_MS) for n in range(6)), lost("lost-ok", "n9", NOW - 2 * DAY_MS)]


def failure_rate_node() -> Fed:
    about = {"rule": "r", "summary": "s"}
    return [
        verdict("FailureBlamed", NOW - HOUR_MS, "p", category="NODE", node_id="blame-bad", epoch=1, **about),
        verdict("FailureBlamed", NOW - MINUTE_MS, "p", category="DEVICE", node_id="blame-bad", epoch=2, **about),
        verdict("FailureBlamed", NOW - MINUTE_MS, "p", category="NODE", node_id="blame-ok", epoch=3, **about),
        verdict("FailureBlamed", NOW - MINUTE_MS, "p", category="USER_CODE", node_id="blame-ok", epoch=4, **about),
        verdict("FailureBlamed", NOW - 2 * DAY_MS, "p", category="NODE", node_id="blame-ok", epoch=5, **about),
    ]


def spool_lag() -> Fed:
    return [
        *beats(range(1, 3), pool="spool-bad", spool_bytes=300 * 1024**2),
        *beats(range(1, 3), pool="spool-ok", spool_bytes=lambda ms: 300 * 1024**2 if ms < NOW - MINUTE_MS else 0),
        *beats(range(5, 9), pool="spool-gone", spool_bytes=300 * 1024**2),
    ]


def project_storage() -> Fed:
    def used(project: str, gib: int, may_have: float | None) -> Fed:
        about = {"name": project, "limits": {"storage_gib": may_have}}
        applied = ProjectApplied.model_validate({"project": about, "version": 1, "applied_at_ms": NOW - HOUR_MS})
        file = {"job_id": f"j-{project}", "path": "f", "uri": "s3://b/f", "sha256": "0" * 64, "size_bytes": gib * 1024**3}
        return [
            (topics.PROJECTS, applied),
            status(f"j-{project}", "p", "RUNNING", NOW - HOUR_MS, project=project),
            (topics.TRACKING, ArtifactLogged.model_validate(file | {"at_ms": NOW - HOUR_MS})),
        ]

    # Deleted by a person, and so no longer in the store.
    gone: dict[str, Any] = {"job_id": "j-full-deleted-ok", "attempt": 0, "epoch": 1, "commit": 1, "step": 1}
    size = {"uri": "s3://b/c", "bytes_total": 90 * 1024**3, "bytes_new": 90 * 1024**3}
    return [
        *used("full-bad", 95, 100),
        *used("full-over-bad", 300, 100),
        *used("full-ok", 50, 100),
        *used("full-open", 500, None),
        *used("full-deleted-ok", 5, 100),
        (topics.CHECKPOINTS, CheckpointCompleted.model_validate(gone | size | {"at_ms": NOW - HOUR_MS})),
        (topics.TRACKING, CheckpointDeleted.model_validate(gone | {"user": "ana", "at_ms": NOW - MINUTE_MS})),
    ]


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def published(dataset: str, number: int, at_ms: int) -> tuple[str, Event]:
    facts = version(dataset).model_copy(update={"sha256": sha(f"{dataset}-{number}")})
    return topics.DATASETS, DatasetVersionPublished(version=facts, created_by="ada", published_at_ms=at_ms)


def drift(dataset: str, number: int, before: int, at_ms: int, drifted: int, predecessor: bool = True, lost: int = 0) -> tuple[str, Event]:
    verdicts = ["DRIFTED"] * drifted + ["REMOVED"] * lost + ["STABLE"]
    return topics.TRACKING, DatasetDriftMeasured(
        dataset=dataset,
        sha256=sha(f"{dataset}-{number}"),
        against_sha256=sha(f"{dataset}-{before}"),
        predecessor=predecessor,
        row_count=10,
        row_count_before=10,
        fields=tuple(FieldDrift(field=f"json.c{n}", verdict=DriftVerdict(each)) for n, each in enumerate(verdicts)),
        fields_compared=drifted + lost + 1,
        fields_drifted=drifted,
        fields_changed=lost,
        at_ms=at_ms,
    )


def faulty_before(dataset: str, drifted: int) -> Fed:
    return [
        *(published(dataset, n, NOW - n * DAY_MS) for n in (4, 3, 2)),
        drift(dataset, 3, 4, NOW - 3 * DAY_MS, 1),
        drift(dataset, 2, 3, NOW - 2 * DAY_MS, 1),
        drift(dataset, 2, 4, NOW - 2 * DAY_MS, drifted, predecessor=False),
        (topics.DATASETS, DatasetVersionDeprecated(dataset=dataset, sha256=sha(f"{dataset}-3"), reason="x", deprecated_at_ms=NOW - DAY_MS)),
    ]


def dataset_drift() -> Fed:
    return [
        *(published("moved-bad", n, NOW - n * DAY_MS) for n in (3, 2)),
        drift("moved-bad", 2, 3, NOW - 2 * DAY_MS, 2),
        # A column is wholly empty.
        *(published("moved-bad-lost", n, NOW - n * DAY_MS) for n in (3, 2)),
        drift("moved-bad-lost", 2, 3, NOW - 2 * DAY_MS, 0, lost=1),
        # Its newest version is like the one before it, or drifted from another one alone.
        *(published("moved-ok", n, NOW - n * DAY_MS) for n in (4, 3, 2)),
        drift("moved-ok", 3, 4, NOW - 3 * DAY_MS, 2),
        drift("moved-ok", 2, 3, NOW - 2 * DAY_MS, 0),
        drift("moved-ok", 2, 4, NOW - 2 * DAY_MS, 2, predecessor=False),
        # The version that drifted was deprecated.
        *(published("moved-gone", n, NOW - n * DAY_MS) for n in (3, 2)),
        drift("moved-gone", 2, 3, NOW - 2 * DAY_MS, 1),
        (
            topics.DATASETS,
            DatasetVersionDeprecated(dataset="moved-gone", sha256=sha("moved-gone-2"), reason="wrong", deprecated_at_ms=NOW - DAY_MS),
        ),
        # The one before it was at fault, and deprecated; from the one before that it drifted, or did not.
        *faulty_before("moved-bad-since", drifted=2),
        *faulty_before("moved-mended", drifted=0),
        # Its publisher's clock is ahead.
        *(published("moved-bad-ahead", n, NOW - n * DAY_MS) for n in (3, 2)),
        drift("moved-bad-ahead", 2, 3, NOW + DAY_MS, 1),
    ]


def trained(job: str, dataset: str, number: int, **ended: Any) -> Fed:
    data = {"dataset": f"{dataset}@sha256:{sha(f'{dataset}-{number}')}"}
    spec = {"name": "x", "user": "u", "pool": job, "gang": {"ranks": 1}, "runtime": {"command": ["a"]}, "data": data}
    about = {"job_id": job, "spec": spec, "spec_sha256": "0" * 64, "submission_id": job, "submitted_at_ms": NOW - 40 * DAY_MS}
    since_ms = NOW - 39 * DAY_MS
    return [
        (topics.CONTROL, JobAdmitted.model_validate(about)),
        status(job, job, "SUCCEEDED" if ended else "RUNNING", since_ms, running_at_ms=since_ms, **ended),
    ]


def dataset_drift_of_training() -> Fed:
    return [
        *(published("taught", n, NOW - n * DAY_MS) for n in (4, 3, 2)),
        drift("taught", 3, 4, NOW - 3 * DAY_MS, 0),
        drift("taught", 2, 3, NOW - 2 * DAY_MS, 0),
        drift("taught", 2, 4, NOW - 2 * DAY_MS, 3, predecessor=False),
        *(published("taught-lost", n, NOW - n * DAY_MS) for n in (3, 2)),
        drift("taught-lost", 2, 3, NOW - 2 * DAY_MS, 0, lost=1),
        *trained("taught-bad-lost", "taught-lost", 3),
        *trained("taught-bad", "taught", 4),
        *trained("taught-ok", "taught", 3),
        *trained("taught-newest", "taught", 2),
        *trained("taught-ended", "taught", 4, finished_at_ms=NOW - 3 * DAY_MS),
    ]


def dataset_stale() -> Fed:
    return [
        *(event for name in ("old-bad", "old-unused") for n in (50, 35) for event in [published(name, n, NOW - n * DAY_MS)]),
        *(published("old-ok", n, NOW - n * DAY_MS) for n in (50, 9)),
        published("old-once", 50, NOW - 50 * DAY_MS),
        *(each for name in ("old-bad", "old-ok", "old-once") for each in trained(f"j-{name}", name, 50)),
    ]


def emergency(name: str, *, reviewed: bool = False, approvals: int = 1) -> Fed:
    """A model whose version was promoted, as an emergency where it needs approvals."""
    registry, of = Registry(now_ms=NOW - DAY_MS), {"project": "models", "name": name}
    registry.ask(ModelRegistered(**of, content=content_of(1), user="ada"), name)
    registry.ask(observed(name, facts_of(1, project="models"), **of))
    registry.ask(ModelGateApplied(**of, gate=ModelGate(approvals=approvals), user="ops"))
    registry.ask(ModelPromotionRequested(**of, version="1", user="bo", emergency=bool(approvals), reason="down since noon"))
    if reviewed:
        registry.now_ms += HOUR_MS
        registry.ask(ModelEmergencyReview(**of, version="1", user="cem", reason="was right"))
    assert not any(isinstance(each, ModelRequestRefused) for each in registry.decisions)
    return [(topics.MODEL_HISTORY, each) for each in registry.decisions if isinstance(each, ModelDecision)]


def model_emergency() -> Fed:
    return [
        *emergency("urgent-bad"),
        *emergency("urgent-reviewed", reviewed=True),
        *emergency("urgent-ok", approvals=0),
    ]


# Of each rule: what is fed, with which word its cases begin, and which are bad. `queue-lag` is about the clock on the wall: see below.
CASES: dict[str, tuple[Callable[[], Fed], str, set[str]]] = {
    "device-utilization-low": (device_utilization_low, "util-", {"pool=util-bad job_id=util-bad"}),
    "pool-utilization-low": (pool_utilization_low, "pool-", {"pool=pool-bad"}),
    "sm-activity-low": (
        sm_activity_low,
        "sm-",
        {"pool=sm-bad job_id=sm-bad", "pool=sm-bad-data job_id=sm-bad-data", "pool=sm-bad-memory job_id=sm-bad-memory"},
    ),
    "mfu-low": (mfu_low, "mfu-", {"pool=mfu-bad job_id=mfu-bad", "pool=mfu-percent job_id=mfu-percent"}),
    "loader-throughput": (loader_throughput, "load-", {"pool=load-bad job_id=load-bad"}),
    "failure-rate-shard": (failure_rate_shard, "shard-", {"shard=shard-bad"}),
    "dataset-drift": (
        dataset_drift,
        "moved-",
        {
            f"dataset=moved-bad version=moved-bad@sha256:{sha('moved-bad-2')} fields=json.c0, json.c1",
            f"dataset=moved-bad-since version=moved-bad-since@sha256:{sha('moved-bad-since-2')} fields=json.c0, json.c1",
            f"dataset=moved-bad-ahead version=moved-bad-ahead@sha256:{sha('moved-bad-ahead-2')} fields=json.c0",
            f"dataset=moved-bad-lost version=moved-bad-lost@sha256:{sha('moved-bad-lost-2')} fields=json.c0",
        },
    ),
    "dataset-drift-of-training": (
        dataset_drift_of_training,
        "taught-",
        {
            f"pool=taught-bad job_id=taught-bad dataset=taught version=taught@sha256:{sha('taught-2')}",
            f"pool=taught-bad-lost job_id=taught-bad-lost dataset=taught-lost version=taught-lost@sha256:{sha('taught-lost-2')}",
        },
    ),
    "dataset-stale": (dataset_stale, "old-", {"dataset=old-bad"}),
    "checkpoint-overdue": (checkpoint_overdue, "due-", {f"pool={j} job_id={j}" for j in ("due-bad", "due-bad-usual", "due-bad-policy")}),
    "uploads-slow": (uploads_slow, "pace-", {f"pool={job} job_id={job}" for job in ("pace-bad", "pace-bad-quick")}),
    "checkpoint-failures": (checkpoint_failures, "saves-", {"pool=saves-bad"}),
    "store-errors": (store_errors, "store-", {"pool=store-bad", "pool=store-bad-2"}),
    "urgent-job-waits": (urgent_job_waits, "wait-", {f"pool={job} job_id={job}" for job in ("wait-bad", "wait-bad-then")}),
    "job-failures": (job_failures, "jobs-", {"pool=jobs-bad"}),
    "failure-rate-job": (failure_rate_job, "rate-", {"pool=rate job_id=rate-bad"}),
    "cost-over-budget": (cost_over_budget, "spent-", {"project=spent-bad currency=EUR"}),
    "project-storage": (project_storage, "full-", {"project=full-bad", "project=full-over-bad"}),
    "nodes-lost": (nodes_lost, "lost-", {"pool=lost-bad"}),
    "failure-rate-node": (failure_rate_node, "blame-", {"pool=p node_id=blame-bad"}),
    "audit-lost": (audit_lost, "audit-", {"source=audit-bad"}),
    "model-emergency": (model_emergency, "urgent-", {"project=models model=urgent-bad version=1"}),
    "spool-lag": (spool_lag, "spool-", {"pool=spool-bad node_id=node-spool-bad"}),
}


def test_every_rule_has_a_case() -> None:
    # Those of objectives and of models in service have tests of their own: tests/contract/test_slo.py, test_model_observations.py.
    elsewhere = {"model-drift", "model-quality", "model-stale"}
    assert {name for name in SQL_RULES if not name.startswith("slo-burn-")} == set(CASES) | {"queue-lag"} | elsewhere


def put(tables: Tables, fed: Fed) -> None:
    by_topic: dict[str, list[Event]] = {}
    for topic, event in fed:
        by_topic.setdefault(topic, []).append(event)
    for topic, events in by_topic.items():
        tables.put(topic, events, NOW - 20 * DAY_MS)


@pytest.mark.parametrize("name", CASES)
def test_a_rule_finds_what_is_bad_and_nothing_beside_it(tables: Tables, name: str) -> None:
    feed, word, bad = CASES[name]
    put(tables, feed())
    rule = SQL_RULES[name]
    held = {fired.key for fired in open_at(tables, rule, NOW) if any(v.startswith(word) for v in fired.labels.values())}
    assert held == bad, answer(rule, tables.ask, NOW)
    assert not bad & {fired.key for fired in open_at(tables, rule, NOW - 60 * DAY_MS)}, "nothing of it had happened then"


def test_an_emergency_is_an_alert_until_another_person_reviews_it(tables: Tables) -> None:
    tables.put(topics.MODEL_HISTORY, [event for _, event in emergency("urgent-then", reviewed=True)])
    rule = SQL_RULES["model-emergency"]
    assert isinstance(rule, SqlRule)

    def of(at_ms: int) -> list[str]:
        return [fired.summary for fired in open_at(tables, rule, at_ms) if fired.labels["model"] == "urgent-then"]

    [summary] = of(NOW - DAY_MS + HOUR_MS // 2)
    assert "version 1 of model urgent-then (project models) was promoted by bo without approvals: down since noon" in summary
    assert "trainhouse models review urgent-then 1`, with `--project`" in summary, "a project's name is any text: not a word of a command"
    assert of(NOW) == [], "it was reviewed"


def test_a_job_whose_devices_wait_is_told_what_to_try(tables: Tables) -> None:
    began = NOW - 8 * MINUTE_MS

    def share(of: float) -> Callable[[int], float]:
        return lambda ms: of * (ms - began) / 1000

    fed = [
        *beats(range(1, 8), pool="try-data", job="try-data", used={"d0": 40.0}, waited_s=share(0.3), stalled_s=share(0.2)),
        *beats(range(1, 8), pool="try-saves", job="try-saves", used={"d0": 40.0}, waited_s=share(0.02), stalled_s=share(0.2)),
        *beats(range(1, 8), pool="try-batch", job="try-batch", used={"d0": 40.0}),
        # Its second rank is told of later; what that one waited for before is not of these minutes.
        *beats(
            range(1, 8),
            pool="try-later",
            job="try-later",
            used=lambda ms: {"d0": 40.0} | ({"d1": 40.0} if ms >= NOW - 4 * MINUTE_MS else {}),
            waited_s=500.0,
            stalled_s=300.0,
        ),
    ]
    # On another node each minute: of none is known for long enough what its ranks waited for.
    moving = [beat(f"try-{n}", NOW - n * MINUTE_MS, pool="try-unknown", job="try-unknown", used={"d0": 40.0}) for n in range(6, 0, -1)]
    tables.put(topics.HEARTBEATS, [*(event for _, event in fed), *moving], NOW - 20 * DAY_MS)
    found = open_at(tables, SQL_RULES["device-utilization-low"], NOW)
    texts = {dict(f.labels)["job_id"]: f.summary for f in found if dict(f.labels)["job_id"].startswith("try-")}
    assert all("never above 40 %" in text for text in texts.values()), texts
    assert "30 % of their time for data" in texts["try-data"] and "its loader" in texts["try-data"]
    assert "saves hold its ranks up for 20 %" in texts["try-saves"]
    assert "what its ranks wait for is not known" in texts["try-unknown"]
    assert "every_steps" not in texts["try-saves"], "its policy may not have it"
    assert "neither for data nor for saves" in texts["try-later"]
    assert "neither for data nor for saves" in texts["try-batch"] and "larger batches" in texts["try-batch"]


def open_at(tables: Tables, rule: SqlRule, at_ms: int) -> list[AlertFired]:
    """What is open when the rule was looked at for as long as it wants."""
    engine = Engine([rule])
    every_ms = rule.every_s * 1000
    for at in range(on_grid(at_ms - round(rule.for_s * 1000), every_ms), at_ms + 1, every_ms):
        engine.rows(rule.name, answer(rule, tables.ask, at), at, every_ms)
    return engine.open


def test_what_comes_late_into_the_tables_is_a_lag(tables: Tables) -> None:
    rule = SQL_RULES["queue-lag"]
    now_ms = time.time_ns() // 1_000_000
    tables.put(topics.HEARTBEATS, [beat("fresh", now_ms, pool="queue")])
    soon_ms = time.time_ns() // 1_000_000 + 1000
    assert {r["queue"]: r["value"] for r in answer(rule, tables.ask, soon_ms) if r["value"] is not None}["heartbeats"] < rule.limit
    tables.put(topics.HEARTBEATS, [beat(f"late-{n}", now_ms - 10 * MINUTE_MS, pool="queue") for n in range(3)])
    tables.put(topics.STATUS, [status("queued", "queue", "PENDING", now_ms, submitted_at_ms=now_ms - 3 * MINUTE_MS)[1]])
    tables.put(topics.METRICS, [metric("late-metrics", "loss", {now_ms - 4 * MINUTE_MS: 1.0})])
    tables.put(topics.LOGS, [output("late-output", now_ms - 5 * MINUTE_MS)])
    soon_ms = time.time_ns() // 1_000_000 + 1000
    found = {r["queue"]: r["value"] for r in answer(rule, tables.ask, soon_ms)}
    assert (found["metrics"], found["output"]) == (pytest.approx(240, abs=30), pytest.approx(300, abs=30))
    assert found["heartbeats"] == pytest.approx(600, abs=30) and found["submissions"] == pytest.approx(180, abs=30)


def test_what_to_try_when_multiprocessors_are_idle_follows_from_what_a_step_waits_for(tables: Tables) -> None:
    texts = {dict(f.labels)["job_id"]: f.summary for f in open_at(tables, SQL_RULES["sm-activity-low"], NOW)}
    assert "worked 40 %" in texts["sm-bad-data"] and "wait 30 % for data" in texts["sm-bad-data"]
    assert "memory of its devices is busy" in texts["sm-bad-memory"] and "larger batches" in texts["sm-bad"]


def test_a_rule_finds_nothing_where_the_table_that_it_needs_is_empty(tables: Tables) -> None:
    """The last one: it empties tables."""
    needing = {name: rule for name, rule in SQL_RULES.items() if rule.needs}
    known = needing.keys() & CASES.keys()
    for name in known:
        put(tables, CASES[name][0]())
    assert {name for name in known if answer(needing[name], tables.ask, NOW)} == known
    for table in {rule.needs for rule in needing.values() if rule.needs}:
        tables.clickhouse.command(f"TRUNCATE TABLE {table}")
        assert filled(tables.ask, {table, "jobs_rows"}) == {"jobs_rows"}
        assert not any(answer(rule, tables.ask, NOW) for rule in needing.values() if rule.needs == table)
