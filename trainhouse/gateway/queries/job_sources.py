"""Jobs as the view `jobs` has them, from what is behind it: the table of scheduled jobs, and the view of tracked runs.

The view's union of two rows of 35 columns costs the engine several times what both of its branches do, and hides the key of the table.

Holds: the same rows as the view's (a test on the engine compares them); what a tracked run does not have is empty or null.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from trainhouse.gateway.auth.roles import Principal
from trainhouse.gateway.queries.listing import Order, Source, millis
from trainhouse.gateway.queries.sql_reader import Row, SqlReader
from trainhouse.gateway.queries.where_clauses import Where

SCHEDULED, TRACKED = "scheduled", "tracked"
JOBS: Final = "jobs_rows FINAL"
RUNS: Final = "tracked_runs"
_NULLS: Final = (
    *("step", "total_steps", "loss", "learning_rate", "steps_per_s", "samples_per_s", "elapsed_s", "eta_s"),
    *("last_checkpoint_step", "last_checkpoint_commit", "allocated_at"),
)
_ABSENT: Final[Row] = (
    dict.fromkeys(("team", "pool", "reason", "last_checkpoint_uri", "submission_id", "spec_sha256"), "")
    | dict.fromkeys(("priority", "attempt", "epoch", "restarts", "world_size", "status_seq"), 0)
    | dict.fromkeys(_NULLS)
    | {"source": TRACKED}
)
COLUMNS: Final = (
    *("job_id", "source", "name", "project", "team", "user", "pool", "priority", "state", "reason", "attempt", "epoch", "restarts"),
    *("world_size", "node_ids", "step", "total_steps", "loss", "learning_rate", "steps_per_s", "samples_per_s", "elapsed_s", "eta_s"),
    *("last_checkpoint_step", "last_checkpoint_commit", "last_checkpoint_uri", "submission_id", "spec_sha256"),
    *("submitted_at", "allocated_at", "started_at", "finished_at", "updated_at", "status_seq"),
)
_MADE: Final = {"source": f"'{SCHEDULED}' AS source", "status_seq": "toInt64(version) - 1 AS status_seq"}
_SCHEDULED_COLUMNS: Final = ", ".join(_MADE.get(column, column) for column in COLUMNS)
_TRACKED_COLUMNS: Final = "job_id, name, project, user, state, started_at, ended_at, updated_at"
_NEWEST: Final = Order((millis("coalesce(submitted_at, updated_at)"), ("job_id", "String")), descending=True)
_BEGUN: Final = Order((millis("started_at"), ("job_id", "String")), descending=True)


def scheduled(where: Where) -> Source:
    """Scheduled jobs, the newest submission first; `where` is about jobs that exist for the caller."""
    return Source(_SCHEDULED_COLUMNS, JOBS, where, _NEWEST)


def tracked(principal: Principal) -> Source:
    """Tracked runs of the caller's projects, the newest first."""
    where = Where(["NOT deleted"])
    where.visible(principal)
    return Source(_TRACKED_COLUMNS, RUNS, where, _BEGUN, _as_job)


async def one_job(reader: SqlReader, where: Where, principal: Principal, job_id: str) -> Row | None:
    """One job, None where there is none for the caller. A scheduled one and a tracked one may have the same id: the newer status counts."""
    # Of every job that has an id, job_key is that id.
    where.add("job_key = {job_id:String}", job_id=job_id)
    runs = tracked(principal)
    runs.where.equal("job_id", job_id)
    job, run = await asyncio.gather(
        reader.one(f"SELECT {_SCHEDULED_COLUMNS} FROM {JOBS} WHERE {where.text} LIMIT 1", where.values),
        reader.one(f"SELECT {runs.columns} FROM {RUNS} WHERE {runs.where.text} LIMIT 1", runs.where.values),
    )
    if job is None or (run is not None and job["status_seq"] < _ABSENT["status_seq"]):
        return None if run is None else _as_job(run)
    return job


def _as_job(run: Row) -> Row:
    times = {"submitted_at": run["started_at"], "finished_at": run["ended_at"]}
    known: dict[str, Any] = _ABSENT | {"node_ids": []} | run | times
    return {column: known[column] for column in COLUMNS}
