"""Tags of jobs and tracked runs, and their note: the same ones that MLflow's client sets and reads.

Holds: a tag is a TagsChanged on the topic of tracking, whoever sets it; the note is the tag `mlflow.note.content`. What belongs to another
project is as if it were not there.
"""

from __future__ import annotations

import secrets
from typing import Annotated, Final

from fastapi import APIRouter, Request
from pydantic import Field, StringConstraints

from trainhouse.events import JobId
from trainhouse.events.model.tracking import Key, TagsChanged
from trainhouse.events.wire.topics import TRACKING
from trainhouse.gateway import requests
from trainhouse.gateway.answers import Json
from trainhouse.gateway.auth.authentication import Submitter, Viewer
from trainhouse.gateway.auth.roles import Principal
from trainhouse.gateway.context import Here, now_ms
from trainhouse.gateway.errors import ProblemError
from trainhouse.gateway.queries import read_your_writes as after
from trainhouse.gateway.queries.where_clauses import Where
from trainhouse.gateway.routes.jobs import JobPath, visible_job
from trainhouse.gateway.routes.writes import Body, Requested

router = APIRouter(tags=["jobs"], dependencies=[after.After])

NOTE: Final = "mlflow.note.content"
MOST_TAGS = 100
MOST_LISTED = 200_000
Text = Annotated[str, StringConstraints(max_length=8000)]

_OF_JOB = """
SELECT key, value, changed_at FROM tags WHERE job_id = {job_id:String} ORDER BY key LIMIT 10000
"""


class TagChanges(Body):
    """Tags to set, and keys of tags to remove."""

    set: Annotated[dict[Key, Text], Field(default_factory=dict, max_length=MOST_TAGS, description="values of tags to set, by key")]
    remove: Annotated[list[Key], Field(default_factory=list, max_length=MOST_TAGS, description="keys of tags to remove")]


@router.get("/v1/training-jobs/{job_id}/tags")
async def tags(job_id: JobPath, here: Here, principal: Viewer) -> Json:
    """Tags of a job, in order of their keys; its note is `mlflow.note.content`."""
    await visible_job(here, principal, job_id)
    return Json({"items": await here.reader.rows(_OF_JOB, {"job_id": job_id}), "next_cursor": None})


@router.post("/v1/training-jobs/{job_id}/tags", status_code=202)
async def change_tags(job_id: JobPath, body: TagChanges, here: Here, principal: Submitter, request: Request) -> Requested:
    """Sets and removes tags of a job, ended or not; a tag that is set again has the new value."""
    if not body.set and not body.remove:
        raise ProblemError(422, "Invalid request", "nothing is to change: give tags to set, or keys to remove")
    if both := sorted(body.set.keys() & set(body.remove)):
        raise ProblemError(422, "Invalid request", f"the tag {both[0]!r} is to be set and removed; keep one of them")
    job = await visible_job(here, principal, job_id)
    requests.refuse_read_only(job["project"], principal)
    event = TagsChanged(job_id=JobId.parse(job_id), tags=body.set, deleted=tuple(dict.fromkeys(body.remove)), at_ms=now_ms())
    sent = await here.bus.send(TRACKING, event, secrets.token_hex(16))
    written = after.Written(job_id=job_id, event_id=sent.event_id, partition=sent.partition, offset=sent.offset)
    here.accepted(request, principal, sent, target=job_id, project=job["project"])
    return Requested(job_id=job_id, event_id=sent.event_id, after=after.token_of(written, here.keys.now().newest))


@router.get("/v1/runs/tags")
async def all_tags(here: Here, principal: Viewer) -> Json:
    """Tags and notes of all jobs and runs that the caller sees, without those that MLflow's client sets by itself."""
    where = Where(["(NOT startsWith(key, 'mlflow.') OR key = {note:String})"], {"note": NOTE})
    of_visible(where, principal)
    sql = f"SELECT job_id, key, value FROM tags WHERE {where.text} ORDER BY job_id, key LIMIT {MOST_LISTED}"
    return Json({"items": await here.reader.rows(sql, where.values), "next_cursor": None})


def of_visible(where: Where, principal: Principal) -> None:
    """Only rows of jobs and tracked runs of the caller's projects."""
    if principal.everywhere:
        return
    projects = "project IN {visible_projects:Array(String)}"
    where.add(
        f"job_id IN (SELECT job_id FROM jobs_rows WHERE {projects} UNION ALL SELECT job_id FROM tracked_runs_rows WHERE {projects})",
        visible_projects=list(principal.projects),
    )
