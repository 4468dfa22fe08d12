"""A fleet's tables, filled by Arrow through the real tables and what hangs on them: 10,000 jobs, 10 M metric rows, a week of 100 nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from trainhouse.projections.store.clickhouse import ConnectClickHouse
from trainhouse.projections.store.schema import read_schemas, to_table

T0 = 1_790_000_000_000 // 3_600_000 * 3_600_000
"""The fleet's week begins; ms since 1970."""
HOUR_MS = 3_600_000
WEEK_MS = 168 * HOUR_MS
JOBS = 10_000
NODES = 100
LONG_POINTS = 1_000_000
POINTS, METRICS = 200, 5
STATES = ("PENDING", "SCHEDULED", "INITIALIZING", "RUNNING", "SUCCEEDED")
LONG_JOB = "job-long"
BATCH = 500_000


def begun_ms(job: int) -> int:
    """When a job is submitted: all over the week but its last hours."""
    return T0 + job * (WEEK_MS - 4 * HOUR_MS) // JOBS


class Filler:
    """Rows of any table by some of their columns; the others are what is empty for their type."""

    def __init__(self, clickhouse: ConnectClickHouse, tables: Sequence[str]) -> None:
        self._clickhouse = clickhouse
        self._schemas = read_schemas(clickhouse, tables)
        self._tokens = 0

    def rows(self, table: str, count: int, row: Callable[[int], dict[str, Any]]) -> None:
        """Rows 0 … count - 1, in batches."""
        schema = self._schemas[table]
        blank = {field.name: None if field.nullable else _empty(field.type) for field in schema}
        for first in range(0, count, 50_000):
            self._insert(table, to_table([blank | row(n) for n in range(first, min(count, first + 50_000))], schema))

    def columns(self, table: str, count: int, columns: dict[str, Any]) -> None:
        """The same by column."""
        arrays = []
        for field in self._schemas[table]:
            given = columns.get(field.name)
            arrays.append(pa.array(given if given is not None else [_empty(field.type)] * count, field.type))
        self._insert(table, pa.Table.from_arrays(arrays, schema=self._schemas[table]))

    def _insert(self, table: str, rows: pa.Table) -> None:
        self._tokens += 1
        self._clickhouse.insert(table, rows, f"bench-{self._tokens}")


def fill(clickhouse: ConnectClickHouse) -> None:
    """All of it. Blocks for minutes."""
    tables = ("jobs_rows", "statuses_rows", "attempt_facts", "node_facts", "node_minutes_rows", "lineage_rows", "step_metrics")
    filler = Filler(clickhouse, tables)
    filler.rows("jobs_rows", JOBS, _job)
    filler.rows("statuses_rows", JOBS * 25, _status)
    filler.rows("attempt_facts", JOBS * 4, _fact)
    filler.rows("node_facts", NODES, _node)
    for day in range(7):
        _minutes(filler, day)
    filler.rows("lineage_rows", JOBS * 12, _edge)
    _metrics(filler)


def _empty(kind: pa.DataType) -> Any:
    if pa.types.is_string(kind):
        return ""
    if pa.types.is_map(kind):
        return {}
    return [] if pa.types.is_list(kind) else 0


def _job(n: int) -> dict[str, Any]:
    at = begun_ms(n)
    who = {"job_key": f"job-{n}", "job_id": f"job-{n}", "name": f"train {n}", "team": f"team-{n % 12}", "project": f"project-{n % 40}"}
    when = {"submitted_at": at, "allocated_at": at + 60_000, "started_at": at + 70_000, "finished_at": at + 2 * HOUR_MS}
    return who | when | {"version": 9, "user": f"user-{n % 90}", "pool": "p", "state": "SUCCEEDED", "updated_at": at + 2 * HOUR_MS}


def _status(n: int) -> dict[str, Any]:
    job, turn = divmod(n, 25)
    state = STATES[turn] if turn < 3 else STATES[3] if turn < 24 else STATES[4]
    at = begun_ms(job) + (turn * 20_000 if turn < 4 else turn * 300_000)
    return {"job_id": f"job-{job}", "status_seq": turn, "at": at, "state": state, "reason": "", "attempt": 0}


def _fact(n: int) -> dict[str, Any]:
    job, which = divmod(n, 4)
    at = begun_ms(job)
    fact, after_ms = (("allocated", 60_000), ("started", 61_000), ("exited", 2 * HOUR_MS - 5_000), ("stopped", 2 * HOUR_MS))[which]
    about = {"job_id": f"job-{job}", "epoch": 1, "fact": fact, "node_id": f"n-{job % NODES}", "pool": "p", "at": at + after_ms}
    return about | {"rank": 0 if fact == "exited" else -1, "device_ids": ["d0"] if fact == "allocated" else [], "world_size": 1}


def _node(n: int) -> dict[str, Any]:
    about = {"node_id": f"n-{n}", "fact": "registered", "version": T0, "at": T0, "pool": "p", "device_type": "H100", "devices": 8}
    return about | {"labels": {"spot": "true"} if n % 4 == 0 else {}}


def _minutes(filler: Filler, day: int) -> None:
    count = NODES * 1440
    minute = T0 + day * 24 * HOUR_MS + np.repeat(np.arange(1440), NODES) * 60_000
    busy = [[(5, 50.0 + n % 40), (15, 60.0)] for n in range(count)]
    columns = {"minute": minute, "node_id": [f"n-{n % NODES}" for n in range(count)], "pool": ["p"] * count}
    filler.columns("node_minutes_rows", count, columns | {"devices": np.full(count, 8), "utilization": busy, "last_at": minute})


def _edge(n: int) -> dict[str, Any]:
    job, which = divmod(n, 12)
    attempt, about = f"attempt:job-{job}/1", {"kind": "saved", "version": 1, "at": begun_ms(job), "job_id": f"job-{job}", "project": "p"}
    if which < 3:
        cause = (f"code:{job // 50}", f"data:s3://corpora/{job // 200}", f"environment:{job // 500}")[which]
        return about | {"from_id": cause, "to_id": f"job:job-{job}", "kind": "code"}
    if which == 3:
        return about | {"from_id": f"job:job-{job}", "to_id": attempt, "kind": "attempt"}
    if which == 4 and job % 5 != 4:
        return about | {"from_id": f"checkpoint:job-{job}@7", "to_id": f"job:job-{job + 1}", "kind": "resumed"}
    return about | {"from_id": attempt, "to_id": f"checkpoint:job-{job}@{which}"}


def _metrics(filler: Filler) -> None:
    names = [f"metric-{n}" for n in range(METRICS)]
    per_job = POINTS * METRICS
    jobs_each = BATCH // per_job
    steps = np.tile(np.tile(np.arange(POINTS), METRICS), jobs_each)
    metrics = np.tile(np.repeat(names, POINTS), jobs_each)
    for first in range(0, JOBS - LONG_POINTS // per_job, jobs_each):
        jobs = np.repeat([f"job-{n}" for n in range(first, first + jobs_each)], per_job)
        _points(filler, jobs, metrics, steps)
    for first in range(0, LONG_POINTS, BATCH):
        _points(filler, np.full(BATCH, LONG_JOB), np.full(BATCH, "metric-0"), np.arange(first, first + BATCH))


def _points(filler: Filler, jobs: Any, metrics: Any, steps: Any) -> None:
    values = 8.0 / (steps + 1.0) + (steps * 7919 % 1000) / 1e4
    columns = {
        "job_id": jobs,
        "metric": metrics,
        "epoch": np.ones(len(steps)),
        "attempt": np.zeros(len(steps)),
        "rank": np.zeros(len(steps)),
    }
    more = {"step": steps, "time": T0 + steps * 1000, "value": values, "node_id": np.full(len(steps), "n-0"), "source_offset": steps}
    filler.columns("step_metrics", len(steps), columns | more)
