"""Lineage of a thing, up and down, over every kind of edge.

Holds: an edge of another project is as if it were not there.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query

from trainhouse.gateway.answers import Json
from trainhouse.gateway.auth.authentication import Viewer
from trainhouse.gateway.auth.roles import Principal
from trainhouse.gateway.context import Gateway, Here
from trainhouse.gateway.queries.where_clauses import Where

router = APIRouter(prefix="/v1", tags=["lineage"])

MOST_EDGES = 5000
Thing = Annotated[
    str,
    Query(
        min_length=3,
        max_length=1024,
        pattern=r"^[a-z][a-z0-9_-]*:",
        description="job:ID, attempt:JOB/EPOCH (attempt N has epoch N + 1), "
        "checkpoint:JOB@COMMIT, code:SHA256, environment:HASH, data:URI or artifact:URI.",
    ),
]
MOST_THINGS = 1000
_PARTED = {"attempt": "/", "checkpoint": "@"}
_OWN = "SELECT job_id FROM job_status WHERE job_id IN {jobs:Array(String)} AND project IN {visible_projects:Array(String)}"
_JOBS = """
SELECT job_id, any(name) AS name, any(state) AS state, any(step) AS step, any(loss) AS loss
FROM job_status WHERE job_id IN {jobs:Array(String)} GROUP BY job_id
"""
_ATTEMPTS = """
SELECT a.job_id AS job_id, a.epoch AS epoch, a.state AS state, m.step AS step, m.loss AS loss
FROM (SELECT job_id, epoch, state FROM attempts WHERE job_id IN {jobs:Array(String)}) AS a
LEFT JOIN (
    SELECT job_id, epoch, toNullable(max(s.step)) AS step, toNullable(argMax(s.value, s.step)) AS loss FROM step_metrics AS s
    WHERE job_id IN {jobs:Array(String)} AND metric = 'loss' AND rank = 0 AND isFinite(s.value) GROUP BY job_id, epoch
) AS m ON m.job_id = a.job_id AND m.epoch = a.epoch
"""
# The loss at the newest step that was logged before the checkpoint's.
_CHECKPOINTS = """
SELECT c.job_id AS job_id, c.commit AS commit, c.state AS state, c.step AS step, if(m.job_id = '', NULL, toNullable(m.value)) AS loss
FROM (SELECT job_id, commit, state, step, epoch FROM checkpoints WHERE job_id IN {jobs:Array(String)}) AS c
ASOF LEFT JOIN (
    SELECT toString(job_id) AS job_id, epoch, step, value FROM step_metrics
    WHERE job_id IN {jobs:Array(String)} AND metric = 'loss' AND rank = 0 AND isFinite(value)
) AS m ON m.job_id = c.job_id AND m.epoch = c.epoch AND c.step >= m.step
"""
_WALKS = {"from": "lineage_to", "led_to": "lineage_of"}


@router.get("/lineage")
async def lineage(here: Here, principal: Viewer, id: Thing, way: Literal["from", "led_to", "both"] = "both") -> Json:
    """The edges around a thing: those that it came from, those that it led to, or both; the nearest first.

    `things` has the name, state, step and loss of jobs, attempts and checkpoints among them; null: not logged.
    """
    where = Where()
    where.visible(principal)
    items = []
    for name, view in _WALKS.items():
        if way in (name, "both"):
            sql = f"SELECT from_id, to_id, kind, distance, at, job_id FROM {view}(id = {{id:String}}) WHERE {where.text}"
            order = " ORDER BY distance, from_id, to_id, kind LIMIT {limit:UInt32}"
            rows = await here.reader.rows(sql + order, where.values | {"id": id, "limit": MOST_EDGES})
            items += [row | {"way": name} for row in rows]
    return Json({"items": items, "next_cursor": None, "things": await _things(here, principal, items)})


async def _things(here: Gateway, principal: Principal, items: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Name, state, step and loss of the jobs, attempts and checkpoints among the ends of edges that the caller may see."""
    ids = sorted({item[end] for item in items for end in ("from_id", "to_id")})
    jobs = sorted({found[0] for found in map(job_of, ids) if found})[:MOST_THINGS]
    if not jobs:
        return {}
    if not principal.everywhere:
        own = await here.reader.rows(_OWN, {"jobs": jobs, "visible_projects": list(principal.projects)})
        jobs = [row["job_id"] for row in own]
    values = {"jobs": jobs}
    of_jobs = {row["job_id"]: row for row in await here.reader.rows(_JOBS, values)}
    of_attempts = {(row["job_id"], row["epoch"]): row for row in await here.reader.rows(_ATTEMPTS, values)}
    of_commits = {(row["job_id"], row["commit"]): row for row in await here.reader.rows(_CHECKPOINTS, values)}
    things = {}
    for id in ids:
        found = job_of(id)
        kind = id.partition(":")[0]
        row = None
        if found:
            row = of_jobs.get(found[0]) if kind == "job" else of_attempts.get(found) if kind == "attempt" else of_commits.get(found)
        if row is not None:
            things[id] = {name: value for name, value in row.items() if name in ("name", "state", "step", "loss")}
    return things


def job_of(id: str) -> tuple[str, int] | None:
    """The job of a thing and its epoch or commit (0 of a job itself); None: it is of no job. Pure."""
    kind, _, rest = id.partition(":")
    if kind == "job":
        return rest, 0
    if kind in _PARTED:
        job, _, number = rest.rpartition(_PARTED[kind])
        return (job, int(number)) if job and number.isascii() and number.isdigit() else None
    return None
