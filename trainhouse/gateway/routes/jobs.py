"""Jobs: the list and one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from trainhouse.events import JobState
from trainhouse.gateway.answers import Json, Listing
from trainhouse.gateway.auth.authentication import Viewer
from trainhouse.gateway.auth.roles import Principal
from trainhouse.gateway.context import Gateway, Here
from trainhouse.gateway.problems import not_found
from trainhouse.gateway.queries import job_sources
from trainhouse.gateway.queries.listing import Cursor, Limit, merged
from trainhouse.gateway.queries.read_your_writes import After
from trainhouse.gateway.queries.redacting import redacted
from trainhouse.gateway.queries.sql_reader import Row
from trainhouse.gateway.queries.where_clauses import Where

router = APIRouter(prefix="/v1/training-jobs", tags=["jobs"], dependencies=[After])

JobPath = Annotated[str, Path(description="The job's id.", max_length=128)]
Text = Annotated[str | None, Query(max_length=128)]


class Job(BaseModel):
    """The whole current status of a job, as its status topic has it. Times are RFC 3339. `source`: scheduled, or tracked."""

    job_id: str
    source: str
    name: str
    project: str
    team: str
    user: str
    pool: str
    priority: int
    state: str
    reason: str
    attempt: int
    epoch: int
    restarts: int
    world_size: int
    node_ids: list[str]
    step: int | None
    total_steps: int | None
    loss: float | None
    learning_rate: float | None
    steps_per_s: float | None
    samples_per_s: float | None
    elapsed_s: float | None
    eta_s: float | None
    last_checkpoint_step: int | None
    last_checkpoint_commit: int | None
    last_checkpoint_uri: str
    submission_id: str
    spec_sha256: str
    submitted_at: datetime | None
    allocated_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime
    status_seq: int


class LastValue(BaseModel):
    """The newest value of a metric of rank 0."""

    value: Annotated[float | None, Field(description="the value; null: it was no finite number")]
    step: int
    time: Annotated[datetime, Field(description="when it was logged")]


class CheckpointReference(BaseModel):
    """A checkpoint that the object store has. `metrics`: newest values when it was saved."""

    step: int
    commit: int
    object_ref: Annotated[str, Field(description="address of its manifest in the object store")]
    metrics: Annotated[dict[str, float | None], Field(description="newest values of up to 32 metrics when it was saved")]
    created_at: Annotated[datetime, Field(description="when it became whole")]


class JobDocument(Job):
    """A job with the newest value of each metric, the first 100 by name, and its newest 20 checkpoints."""

    metrics: Annotated[dict[str, LastValue], Field(description="newest values of rank 0 by name")]
    checkpoints: Annotated[list[CheckpointReference], Field(description="the newest first")]


COLUMNS = ", ".join(Job.model_fields)
_METRICS = """
SELECT toString(metric) AS metric, value, step, time FROM metric_latest
WHERE job_id = {job_id:String} AND rank = 0 ORDER BY metric LIMIT 100
"""
_CHECKPOINTS = """
SELECT step, commit, object_ref, metrics, created_at FROM checkpoints
WHERE job_id = {job_id:String} AND state = 'COMPLETED' ORDER BY commit DESC LIMIT 20
"""
Tags = Annotated[
    list[Annotated[str, Query(min_length=1, max_length=8300)]] | None,
    Query(max_length=20, description="Only with this tag: `key=value`, or `key` with any value. Of several all count."),
]

# Intake refuses what it cannot admit without knowing its project: whose it was stands in the submission.
_OWN = """
(project IN {visible_projects:Array(String)} OR project = '' AND submission_id != '' AND (job_id, submission_id) IN (
    SELECT job_id, event_id FROM events_rows WHERE job_id IN (SELECT job_id FROM jobs_rows WHERE project = '')
        AND type = 'trainhouse.job.submitted.v1' AND JSONExtractString(json, 'spec', 'project') IN {visible_projects:Array(String)}))
"""


def tagged(where: Where, tags: Iterable[str]) -> None:
    """Only jobs with these tags, `key=value` or `key`; the key ends at the first `=`."""
    for n, tag in enumerate(tags):
        key, has_value, value = tag.partition("=")
        condition = f"job_id IN (SELECT job_id FROM tags WHERE key = {{tag_{n}:String}}"
        more = f" AND value = {{tag_value_{n}:String}})" if has_value else ")"
        where.add(condition + more, **{f"tag_{n}": key} | ({f"tag_value_{n}": value} if has_value else {}))


def visible(principal: Principal) -> Where:
    """Jobs that exist for somebody."""
    where = Where(["job_id != ''"])
    if not principal.everywhere:
        where.add(_OWN, visible_projects=list(principal.projects))
    return where


@router.get("", response_model=Listing[Job])
async def jobs(
    here: Here,
    principal: Viewer,
    state: Annotated[list[JobState] | None, Query(description="Only in one of these states.")] = None,
    user: Text = None,
    team: Text = None,
    project: Text = None,
    pool: Text = None,
    name: Text = None,
    source: Text = None,
    tag: Tags = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Json:
    """Jobs, the newest submission first."""
    chosen = []
    if source in (None, job_sources.SCHEDULED):
        chosen.append(job_sources.scheduled(visible(principal)))
    if source in (None, job_sources.TRACKED) and not team and not pool:
        chosen.append(job_sources.tracked(principal))
    for each in chosen:
        has = {"user": user, "project": project, "name": name}
        for column, wanted in (has | {"team": team, "pool": pool} if each.table == job_sources.JOBS else has).items():
            each.where.equal(column, wanted)
        each.where.among("state", [s.value for s in state or ()])
        tagged(each.where, tag or ())
    found = await merged(here.reader, chosen, limit, cursor)
    await redacted(here.reader, principal, found.rows, ("reason",))
    return Json(found.answer())


@router.get("/{job_id}", response_model=JobDocument)
async def job(job_id: JobPath, here: Here, principal: Viewer) -> Json:
    """One job: its state, the newest value of each metric, and its newest checkpoints."""
    found = await visible_job(here, principal, job_id)
    metrics, checkpoints = await asyncio.gather(
        here.reader.rows(_METRICS, {"job_id": job_id}), here.reader.rows(_CHECKPOINTS, {"job_id": job_id})
    )
    return Json(dict(found) | {"metrics": {row.pop("metric"): row for row in metrics}, "checkpoints": checkpoints})


async def visible_job(here: Gateway, principal: Principal, job_id: str) -> Row:
    """A job, if there is one and the caller may see it. Raises ProblemError 404, the same for both."""
    found = await job_sources.one_job(here.reader, visible(principal), principal, job_id)
    if found is None:
        raise not_found(f"job {job_id}")
    await redacted(here.reader, principal, [found], ("reason",))
    return found
