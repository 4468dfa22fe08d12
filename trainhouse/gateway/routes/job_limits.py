"""Changeable terms of a job, as its scheduler has them (priority and limits), and refusals of changes.

Holds: the newest of the scheduler's own decisions counts, else what the job was admitted with.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel

from trainhouse.events import JobSubmitted, Limits
from trainhouse.events.model.decisions import JobRetuned, TokenSeen
from trainhouse.gateway.auth.authentication import Viewer
from trainhouse.gateway.context import Gateway, Here
from trainhouse.gateway.errors import ProblemError, SqlRefusedError
from trainhouse.gateway.queries.read_your_writes import After
from trainhouse.gateway.queries.refusals import refusal, set_aside
from trainhouse.gateway.routes.jobs import JobPath, visible_job

router = APIRouter(prefix="/v1/training-jobs", tags=["jobs"], dependencies=[After])

_RETUNED = """
SELECT json FROM decisions_rows FINAL WHERE job_id = {job_id:String} AND type = {type:String} ORDER BY seq DESC, ordinal DESC LIMIT 1
"""
_SUBMITTED = """
SELECT json FROM events_rows FINAL WHERE job_id = {job_id:String} AND type = {type:String} ORDER BY time LIMIT 1
"""
_ANSWERED = """
SELECT argMax(json, type = {retuned:String}) AS json, max(type = {retuned:String}) AS changed FROM decisions_rows
WHERE job_id IN ('', {job_id:String}) AND request_id = {event_id:String} AND type IN ({retuned:String}, {token:String}) HAVING count() > 0
"""
UNKNOWN_IDENTIFIER = 47


class Changed(BaseModel):
    """Settings that a request gave a job."""

    priority: int
    limits: Limits


class Terms(BaseModel):
    """Mutable settings of a job. `refused`: the reason that the request in question was refused; null: it was not, or not yet.

    `answered`: whether the job's scheduler has handled the request, null where the tables do not note it; `changed`: what it set then, null
    where nothing was to change.
    """

    priority: int
    limits: Limits
    refused: str | None
    answered: bool | None
    changed: Changed | None


@router.get("/{job_id}/terms")
async def terms(
    job_id: JobPath,
    here: Here,
    principal: Viewer,
    event_id: Annotated[str | None, Query(max_length=128, description="A request to change the job, or a submission of its id.")] = None,
) -> Terms:
    """A job's priority and limits now."""
    await visible_job(here, principal, job_id)
    refused, answered, changed = await _outcome(here, job_id, event_id) if event_id else (None, False, None)
    about = {"refused": refused, "answered": answered, "changed": changed}
    found = await here.reader.one(_RETUNED, {"job_id": job_id, "type": JobRetuned.event_type})
    if found is not None:
        event = JobRetuned.model_validate_json(found["json"])
        return Terms(priority=event.priority, limits=event.limits, **about)
    found = await here.reader.one(_SUBMITTED, {"job_id": job_id, "type": JobSubmitted.event_type})
    if found is None:
        raise ProblemError(409, "No terms", f"job {job_id} has no submission here any more: its limits are not known")
    spec = JobSubmitted.model_validate_json(found["json"]).spec
    return Terms(priority=spec.priority, limits=spec.limits, **about)


async def _outcome(here: Gateway, job_id: str, event_id: str) -> tuple[str | None, bool | None, Changed | None]:
    """Returns why a request was refused, whether it was handled (None: the tables cannot say), and what it changed."""
    refused = await refusal(here.reader, event_id, job_id)
    noted, kinds = True, {"retuned": JobRetuned.event_type, "token": TokenSeen.event_type}
    try:
        found = await here.reader.one(_ANSWERED, {"event_id": event_id, "job_id": job_id} | kinds)
    except SqlRefusedError as error:
        if error.code != UNKNOWN_IDENTIFIER:
            raise
        noted, found = False, None  # a projector of before, whose tables do not note requests
    if found is None and refused is None:
        refused = await set_aside(here.reader, event_id, job_id)
    changed = JobRetuned.model_validate_json(found["json"]) if found is not None and found["changed"] else None
    return (
        refused,
        found is not None if noted else None,
        None if changed is None else Changed(priority=changed.priority, limits=changed.limits),
    )
