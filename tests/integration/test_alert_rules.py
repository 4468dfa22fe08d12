"""Every shipped rule on the real engine: rows that make it fire, and rows beside them that do not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tests.support.tables.alert_tables import DAY_MS, HOUR_MS, MINUTE_MS, Tables, beat, metric, tables_in, verdict
from trainhouse.events.model.alert import AlertFired
from trainhouse.events.model.attempt import AttemptStarted, AttemptStopped
from trainhouse.events.model.audit import AuditLost
from trainhouse.events.model.base import Event
from trainhouse.events.model.checkpoint import CheckpointCompleted, CheckpointFailed
from trainhouse.events.model.gang import GangAllocated
from trainhouse.events.model.job import JobStatus, JobSubmitted
from trainhouse.events.model.pool import PolicyApplied
from trainhouse.events.model.project import ProjectApplied
from trainhouse.events.model.telemetry import LogLines
from trainhouse.events.model.tracking import ArtifactLogged
from trainhouse.events.wire import topics
from trainhouse.projections.alerts.driver import answer, on_grid
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


def saved(job: str, at_ms: int, commit: int) -> tuple[str, Event]:
    return topics.CHECKPOINTS, CheckpointCompleted(
        job_id=job, attempt=1, epoch=1, at_ms=at_ms, commit=commit, step=commit, uri="s3://x", bytes_total=1, bytes_new=1
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

    return [*used("full-bad", 95, 100), *used("full-over-bad", 300, 100), *used("full-ok", 50, 100), *used("full-open", 500, None)]


# Of each rule: what is fed, with which word its cases begin, and which are bad. `queue-lag` is about the clock on the wall: see below.
CASES: dict[str, tuple[Callable[[], Fed], str, set[str]]] = {
    "device-utilization-low": (device_utilization_low, "util-", {"pool=util-bad job_id=util-bad"}),
    "pool-utilization-low": (pool_utilization_low, "pool-", {"pool=pool-bad"}),
    "mfu-low": (mfu_low, "mfu-", {"pool=mfu-bad job_id=mfu-bad", "pool=mfu-percent job_id=mfu-percent"}),
    "loader-throughput": (loader_throughput, "load-", {"pool=load-bad job_id=load-bad"}),
    "failure-rate-shard": (failure_rate_shard, "shard-", {"shard=shard-bad"}),
    "checkpoint-overdue": (checkpoint_overdue, "due-", {f"pool={j} job_id={j}" for j in ("due-bad", "due-bad-usual", "due-bad-policy")}),
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
    "spool-lag": (spool_lag, "spool-", {"pool=spool-bad node_id=node-spool-bad"}),
}


def test_every_rule_has_a_case() -> None:
    # Those of objectives have tests of their own: tests/contract/test_slo.py.
    assert {name for name in SQL_RULES if not name.startswith("slo-burn-")} == set(CASES) | {"queue-lag"}


@pytest.mark.parametrize("name", CASES)
def test_a_rule_finds_what_is_bad_and_nothing_beside_it(tables: Tables, name: str) -> None:
    feed, word, bad = CASES[name]
    by_topic: dict[str, list[Event]] = {}
    for topic, event in feed():
        by_topic.setdefault(topic, []).append(event)
    for topic, events in by_topic.items():
        tables.put(topic, events, NOW - 20 * DAY_MS)
    rule = SQL_RULES[name]
    held = {fired.key for fired in open_at(tables, rule, NOW) if any(v.startswith(word) for v in fired.labels.values())}
    assert held == bad, answer(rule, tables.ask, NOW)
    assert not bad & {fired.key for fired in open_at(tables, rule, NOW - 60 * DAY_MS)}, "nothing of it had happened then"


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
