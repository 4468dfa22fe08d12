"""Objectives on the real engine: what happened well and badly, what each objective says of it, and the rules that burn rates fire."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.tables.alert_tables import DAY_MS, HOUR_MS, MINUTE_MS, Tables, beat, metric, tables_in, verdict
from trainhouse.cli.main import build
from trainhouse.events.model.attempt import AttemptStopped
from trainhouse.events.model.checkpoint import CheckpointCompleted, CheckpointRestored
from trainhouse.events.model.decisions import JobForgotten
from trainhouse.events.model.gang import GangAllocated, NodePlacement
from trainhouse.events.model.job import JobStatus, PoolCreated
from trainhouse.events.model.service_level import ServiceMeasured
from trainhouse.events.model.spec import JobSpec, Runtime
from trainhouse.events.model.telemetry import LogLines
from trainhouse.events.wire import topics
from trainhouse.events.wire.journal import ClockTicked, JournalRecord
from trainhouse.projections.alerts.driver import answer
from trainhouse.projections.alerts.rule_files import shipped as shipped_rules
from trainhouse.projections.alerts.rules import SqlRule
from trainhouse.projections.slo.attainment import Attainment, standings
from trainhouse.projections.slo.rules import FILE, text_of
from trainhouse.projections.slo.targets import shipped

TARGETS = {target.name: target for target in shipped()}
SPEC = JobSpec(runtime=Runtime(command=("t",)))


@cache
def begun_ms() -> int:
    """When the first test began: the file is collected long before, in a run of many files."""
    return time.time_ns() // 1_000_000


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    with tables_in(tmp_path_factory.mktemp("slo")) as made:
        yield made


def stands(tables: Tables, name: str, at_ms: int = 0) -> Attainment:
    return standings([TARGETS[name]], tables.ask, at_ms or time.time_ns() // 1_000_000)[0]


def status(job: str, state: str, at_ms: int, seq: int, **more: Any) -> JobStatus:
    fields = {
        "job_id": job,
        "status_seq": seq,
        "state": state,
        "pool": "p",
        "updated_at_ms": at_ms,
        "submitted_at_ms": begun_ms() - 30 * DAY_MS,
    }
    return JobStatus.model_validate(fields | more)


def allocated(job: str, at_ms: int, epoch: int = 1, ranks: int = 1) -> tuple[GangAllocated, int]:
    devices = tuple(f"n:{n}" for n in range(ranks))
    place = NodePlacement.model_validate({"node_id": "n", "boot_id": "b", "address": "a", "first_rank": 0, "devices": devices})
    fields = {"job_id": job, "attempt": epoch - 1, "epoch": epoch, "pool": "p", "spec": SPEC, "spec_sha256": "c", "placements": (place,)}
    return GangAllocated.model_validate(fields | {"master_address": "a", "master_port": 1}), at_ms


def put_allocated(tables: Tables, *all_of: tuple[GangAllocated, int]) -> None:
    for event, at_ms in all_of:
        tables.put(topics.ALLOCATIONS, [event], at_ms)


def test_every_objective_can_be_asked_of_tables_without_rows(tables: Tables) -> None:
    for name in TARGETS:
        found = stands(tables, name, begun_ms() - 90 * DAY_MS)
        assert found.counted.total == 0 and found.met is None and set(found.burn_rates.values()) == {None}, name


def test_the_issue_is_what_is_aimed_at() -> None:
    aims = {name: (t.objective, t.figure.value, t.figure_limit) for name, t in TARGETS.items()}
    assert aims["control-plane"][0] == 0.999 and aims["checkpoint-recovery"][0] == 0.9999
    assert aims["start-small"][1:] == ("p99", 300) and aims["start-large"][1:] == ("p99", 1800)
    assert aims["mttr"][1:] == ("mean", 600) and aims["tracking-overhead"][1:] == ("p99", 5)
    assert aims["wait-half"] == (0.5, "p50", 1800) and aims["wait-most"] == (0.95, "p95", 14400)
    assert {"submit-allocated", "status-freshness", "ingest-lag", "query-time", "recovery-time"} <= set(TARGETS)


def test_waits_count_once_they_are_over_or_too_long(tables: Tables) -> None:
    for n, (wait_min, over) in enumerate([(1, True), (10, True), (45, True), (300, True), (5, False), (50, False)]):
        begin = begun_ms() - (wait_min + (60 if over else 0)) * MINUTE_MS
        told = [status(f"w{n}", "PENDING", begin, 1)]
        if over:
            told.append(status(f"w{n}", "SCHEDULED", begin + wait_min * MINUTE_MS, 2))
        tables.put(topics.STATUS, told)
    half, most = stands(tables, "wait-half"), stands(tables, "wait-most")
    assert (half.counted.good, half.counted.total) == (2, 5)  # the one that waits for 5 minutes is undecided
    assert (most.counted.good, most.counted.total) == (3, 4)  # so is the one of 50 minutes, here
    assert half.met is False and half.figure == pytest.approx(45 * 60, abs=400)
    assert half.counted.budget_left(0.5) == pytest.approx(1 - 0.6 / 0.5)


def test_starts_are_from_the_allocation_to_the_first_step_or_to_running(tables: Tables) -> None:
    at = begun_ms() - 6 * HOUR_MS
    put_allocated(tables, allocated("s-soon", at), allocated("s-late", at), allocated("s-large", at, ranks=64))
    put_allocated(tables, allocated("s-silent", at), allocated("s-never", at), allocated("s-gone", at))
    tables.put(topics.METRICS, [metric("s-soon", "loss", {at + 60_000: 1.0}), metric("s-late", "loss", {at + 400_000: 1.0})])
    tables.put(topics.METRICS, [metric("s-large", "loss", {at + 400_000: 1.0})])
    tables.put(topics.STATUS, [status("s-silent", "RUNNING", at + 30_000, 2)])
    gone = {"job_id": "s-gone", "attempt": 0, "epoch": 1, "node_id": "n", "pool": "p", "boot_id": "b", "stopped_at_ms": at + 5_000}
    tables.put(topics.CONTROL, [AttemptStopped.model_validate(gone)])
    small, large = stands(tables, "start-small"), stands(tables, "start-large")
    assert (small.counted.good, small.counted.total) == (2, 4)  # soon, silent; late, never
    assert (large.counted.good, large.counted.total, large.figure) == (1, 1, 400)


def test_a_job_that_need_not_wait_has_its_devices_at_once(tables: Tables) -> None:
    at = begun_ms() - 3 * HOUR_MS
    tables.put(topics.STATUS, [status(f"q{n}", "PENDING", at, 1, submitted_at_ms=at) for n in range(2)])
    put_allocated(tables, allocated("q0", at + 200), allocated("q1", at + 9_000))
    found = stands(tables, "submit-allocated")
    rows = tables.ask(TARGETS["submit-allocated"].between(f"toDateTime64({(at - 1) / 1000}, 3)", "now64(3)"), {})
    assert sorted(r["value"] for r in rows if r["value"] < 60) == [0.2, 9.0]
    assert found.counted.total >= 2


def test_a_restart_that_forgets_its_checkpoint_is_bad(tables: Tables) -> None:
    at = begun_ms() - 5 * HOUR_MS
    about: dict[str, Any] = {"attempt": 0, "epoch": 1, "step": 5, "commit": 1, "uri": "s3://x"}
    saved = [
        CheckpointCompleted.model_validate(about | {"job_id": j, "at_ms": at, "bytes_total": 1, "bytes_new": 1}) for j in ("c-ok", "c-bad")
    ]
    tables.put(topics.CHECKPOINTS, saved)
    put_allocated(tables, *(allocated(job, at - 1_000, 1) for job in ("c-ok", "c-bad")))
    put_allocated(tables, *(allocated(job, at + 60_000, 2) for job in ("c-ok", "c-bad")))
    tables.put(topics.CHECKPOINTS, [CheckpointRestored.model_validate(about | {"job_id": "c-ok", "epoch": 2, "at_ms": at + 61_000})])
    again = metric("c-bad", "loss", {at + 70_000: 1.0}).model_copy(update={"epoch": 2})
    tables.put(topics.METRICS, [again])
    found = stands(tables, "checkpoint-recovery")
    assert (found.counted.good, found.counted.total) == (1, 2)


def test_recoveries_are_of_failures_with_another_attempt(tables: Tables) -> None:
    for n, (took_s, mine) in enumerate([(30, False), (200, False), (900, True)]):
        job, at = f"f{n}", begun_ms() - 2 * DAY_MS
        put_allocated(tables, allocated(job, at - 60_000, 1), allocated(job, at + 10_000, 2))
        blame = {"job_id": job, "attempt": 0, "category": "USER_CODE" if mine else "NODE", "mine": mine, "failed_at_ms": at}
        tables.put(topics.VERDICTS, [verdict("FailureBlamed", at, "p", rule="r", summary="s", **blame)[1]])
        tables.put(topics.METRICS, [metric(job, "loss", {at + took_s * 1000: 1.0}).model_copy(update={"epoch": 2})])
    mttr, fleet = stands(tables, "mttr"), stands(tables, "recovery-time")
    assert (mttr.counted.good, mttr.counted.total, mttr.figure) == (2, 3, pytest.approx((30 + 200 + 900) / 3))
    assert (fleet.counted.good, fleet.counted.total) == (1, 2)


def test_fresh_rows_are_good_and_a_rebuild_is_no_lag(tables: Tables) -> None:
    now_ms = time.time_ns() // 1_000_000
    tables.journal(1, [took_in("p", 1, now_ms - HOUR_MS)])  # else the stack is younger than any span
    tables.put(topics.STATUS, [status("fresh", "PENDING", now_ms, 1), status("rebuilt", "PENDING", begun_ms() - 20 * DAY_MS, 1)])
    tables.put(topics.HEARTBEATS, [beat("fresh", now_ms, pool="p"), beat("late", now_ms - 90_000, pool="p")])
    about: dict[str, Any] = {"job_id": "j", "attempt": 1, "epoch": 1, "rank": 0, "node_id": "n", "stream": "stdout", "start": 0, "end": 3}
    tables.put(topics.LOGS, [LogLines.model_validate(about | {"lines": ("a",), "offsets": (0,), "read_at_ms": now_ms})])
    at_ms = time.time_ns() // 1_000_000 + 1_000
    fresh = stands(tables, "status-freshness", at_ms)
    assert fresh.burn_rates[300] == 0 and fresh.counted.good >= 1
    lag = stands(tables, "ingest-lag", at_ms)
    assert lag.burn_rates[300] is not None and lag.burn_rates[300] > 0 and lag.counted.good >= 2


def record(partition: int, seq: int, at_ms: int) -> JournalRecord:
    decisions = (JobForgotten.model_validate({"job_id": f"x{partition}-{seq}"}), ClockTicked())
    fields = {"owner": "o", "cursor": 0, "inputs": (), "published_up_to": 0, "decide_version": 1, "fold_version": 1, "previous_hash": ""}
    return JournalRecord(seq=seq, now_ms=at_ms, decisions=decisions, **fields)  # type: ignore[arg-type]


def took_in(pool: str, partition: int, at_ms: int) -> JournalRecord:
    """The record by which a scheduler takes a pool in."""
    decision = PoolCreated.model_validate({"pool": pool, "partition": partition})
    return dataclasses.replace(record(partition, 1, at_ms), decisions=(decision, ClockTicked()))


def test_half_minutes_without_a_decision_for_three_minutes_are_down_time(tables: Tables) -> None:
    begin = (begun_ms() - 2 * HOUR_MS) // 30_000 * 30_000
    moments = [begin + n * 30_000 + 1_000 for n in range(120) if not 40 <= n < 52]
    tables.journal(0, [record(0, seq, at_ms) for seq, at_ms in enumerate(moments, 1)])
    tables.put(topics.POOLS, [PoolCreated.model_validate({"pool": "p", "partition": 0})], begin)
    found = stands(tables, "control-plane", begin + 120 * 30_000)
    assert (found.counted.good, found.counted.total) == (111, 118), "down time begins 3 minutes after the last"


@pytest.fixture(scope="module")
def asked_questions(tables: Tables) -> None:
    """120 questions in the last two minutes; a quarter of them was answered late."""
    spans = [(60, 60, 0.01), (60, 30, 0.5)]
    told = [
        ServiceMeasured(
            service="sql",
            source="t",
            since_ms=begun_ms() - 60_000,
            at_ms=begun_ms() - n * 1000,
            total=total,
            good=good,
            limit_s=0.1,
            p99_s=p99,
        )
        for n, (total, good, p99) in enumerate(spans)
    ]
    tables.put(topics.SERVICES, told)


@pytest.mark.usefixtures("asked_questions")
def test_questions_and_tracking_count_as_they_were_measured(tables: Tables) -> None:
    asked = stands(tables, "query-time")
    assert (asked.counted.good, asked.counted.total) == (90, 120)
    tables.put(topics.METRICS, [metric("t", "system/tracking_pct", {begun_ms() - 1_000: 0.5, begun_ms() - 500: 6.0})])
    overhead = stands(tables, "tracking-overhead")
    assert (overhead.counted.good, overhead.counted.total) == (1, 2) and overhead.met is False


@pytest.mark.usefixtures("asked_questions")
def test_the_command_tells_how_each_stands(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONFIG", "DATA_DIR", "GATEWAY_URL", "SLO_TARGETS"):
        monkeypatch.delenv(f"TRAINHOUSE_{name}", raising=False)
    monkeypatch.setenv("TRAINHOUSE_KAFKA_BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.setenv("TRAINHOUSE_CLICKHOUSE_URL", tables.url)
    done = CliRunner().invoke(build(), ["slo", "--json"])
    assert done.exit_code == 0, done.exception
    rows = {row["name"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert set(rows) == set(TARGETS) and (rows["query-time"]["good"], rows["query-time"]["total"]) == (90, 120)


@pytest.mark.usefixtures("asked_questions")
def test_the_rules_fire_for_budgets_that_burn_in_both_spans_and_for_no_others(tables: Tables) -> None:
    rules = {name: rule for name, rule in shipped_rules().rules.items() if name.startswith("slo-burn-")}
    assert len(rules) == 4
    now_ms = time.time_ns() // 1_000_000
    for name, rule in rules.items():
        assert isinstance(rule, SqlRule)
        rates = {row["slo"]: row["value"] for row in answer(rule, tables.ask, now_ms)}
        if name == "slo-burn-5m-1h":
            assert rates["query-time"] == pytest.approx(0.25 / 0.01) and rates["query-time"] > rule.limit
            assert "wait-half" not in rates  # half of the waits may be long: no budget burns 14 times as fast
        quiet = answer(rule, tables.ask, now_ms + 4 * DAY_MS)
        assert not [row for row in quiet if row["slo"] == "query-time"]


def test_the_file_of_rules_is_what_the_objectives_make() -> None:
    assert FILE.read_text("utf-8") == text_of(shipped())
