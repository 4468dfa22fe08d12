"""Changeable terms of a job, as its scheduler has them (priority and limits), and refusals of changes.

Holds: the newest of the scheduler's own decisions counts, else what the job was admitted with.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel

from trainhouse.events import JobSubmitted, Limits
from trainhouse.events.model.decisions import JobRetuned
from trainhouse.gateway.auth.authentication import Viewer
from trainhouse.gateway.context import Here
from trainhouse.gateway.errors import ProblemError
from trainhouse.gateway.queries.read_your_writes import After
from trainhouse.gateway.routes.jobs import JobPath, visible_job

router = APIRouter(prefix="/v1/training-jobs", tags=["jobs"], dependencies=[After])

_RETUNED = """
SELECT json FROM decisions_rows FINAL WHERE job_id = {job_id:String} AND type = {type:String} ORDER BY seq DESC, ordinal DESC LIMIT 1
"""
_SUBMITTED = """
SELECT json FROM events_rows FINAL WHERE job_id = {job_id:String} AND type = {type:String} ORDER BY time LIMIT 1
"""
_REFUSED = """
SELECT reason FROM rejections_rows FINAL WHERE submission_id = {event_id:String} AND job_id IN ({job_id:String}, '')
UNION ALL SELECT reason FROM refused_changes WHERE event_id = {event_id:String} LIMIT 1
"""


class Terms(BaseModel):
    """Mutable settings of a job. `refused`: the reason that the request in question was refused; null: it was not, or not yet."""

    priority: int
    limits: Limits
    refused: str | None


@router.get("/{job_id}/terms")
async def terms(
    job_id: JobPath,
    here: Here,
    principal: Viewer,
    event_id: Annotated[str | None, Query(max_length=128, description="A request to change the job, or a submission of its id.")] = None,
) -> Terms:
    """A job's priority and limits now."""
    await visible_job(here, principal, job_id)
    refused = await here.reader.one(_REFUSED, {"event_id": event_id, "job_id": job_id}) if event_id else None
    refusal = None if refused is None else str(refused["reason"])
    found = await here.reader.one(_RETUNED, {"job_id": job_id, "type": JobRetuned.event_type})
    if found is not None:
        event = JobRetuned.model_validate_json(found["json"])
        return Terms(priority=event.priority, limits=event.limits, refused=refusal)
    found = await here.reader.one(_SUBMITTED, {"job_id": job_id, "type": JobSubmitted.event_type})
    if found is None:
        raise ProblemError(409, "No terms", f"job {job_id} has no submission here any more: its limits are not known")
    spec = JobSubmitted.model_validate_json(found["json"]).spec
    return Terms(priority=spec.priority, limits=spec.limits, refused=refusal)
