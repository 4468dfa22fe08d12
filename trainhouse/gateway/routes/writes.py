"""Writes about jobs: submit, cancel, change, review, restore, rerun. Each becomes one event on the public topic of requests.

Holds: an answer means that Kafka has the event; what intake and the scheduler make of it shows in the job, and `?after=` waits for that.
"""

from __future__ import annotations

import secrets
import time
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from trainhouse.events import CancelJob, ChangeJob, Event, JobId, JobSpec, JobState, JobSubmitted, ReviewAction, ReviewJob
from trainhouse.events import Limits as JobLimits
from trainhouse.events.model.job_ids import RANDOM_BITS, job_id_of
from trainhouse.events.model.resume_ref import ResumeFrom, parse_resume_from
from trainhouse.events.model.tracking import is_model_id
from trainhouse.events.wire.topics import JOBS
from trainhouse.gateway import problems, requests
from trainhouse.gateway.aliases.few_words import PlainJob
from trainhouse.gateway.auth.authentication import Submitter
from trainhouse.gateway.auth.roles import Principal
from trainhouse.gateway.context import Gateway, Here
from trainhouse.gateway.errors import ProblemError
from trainhouse.gateway.original import original_spec
from trainhouse.gateway.problems import not_found
from trainhouse.gateway.queries import read_your_writes as after
from trainhouse.gateway.requests import Key
from trainhouse.gateway.routes.jobs import JobPath, visible_job

router = APIRouter(prefix="/v1/training-jobs", tags=["jobs"], dependencies=[after.After])

RERUN_OF = "rerun-of"


class Body(BaseModel):
    """A request's body: unknown fields are mistakes."""

    model_config = ConfigDict(extra="forbid")


class Submission(Body):
    """A job to run. `job_id`: only for tokens of all projects; everybody else gets one."""

    spec: JobSpec
    job_id: JobId | None = None


WHOLE, FEW_WORDS = problems.FORMS


def _form(body: Any) -> str:
    """The form of a submission: in few words where it has a command of its own, and no spec."""
    return FEW_WORDS if isinstance(body, PlainJob) or (isinstance(body, dict) and "spec" not in body and "command" in body) else WHOLE


AnySubmission = Annotated[Annotated[Submission, Tag(WHOLE)] | Annotated[PlainJob, Tag(FEW_WORDS)], Discriminator(_form)]


class Cancellation(Body):
    """Reason to cancel a job."""

    reason: Annotated[str, Field(max_length=1024)] = "cancelled by its user"


class Change(Body):
    """Change of a job's mutable settings."""

    priority: Annotated[int | None, Field(ge=0, le=100)] = None
    limits: JobLimits | None = None


class Review(Body):
    """Action on a job under review: `send` it to review; let it `go_on`, or `cancel` it, if it is NEEDS_REVIEW."""

    action: ReviewAction
    reason: Annotated[str, Field(max_length=1024)] = ""
    max_bad: Annotated[float | None, Field(ge=0, le=1, description="with go_on: share of bad samples that it allows from then on")] = None


class Submitted(BaseModel):
    """A submission that Kafka holds. GET the job with `?after=` to see what became of it."""

    job_id: str
    event_id: str
    spec_sha256: str
    after: str


class Requested(BaseModel):
    """A request about a job that Kafka holds."""

    job_id: str
    event_id: str
    after: str


@router.post("", status_code=202)
async def submit(body: AnySubmission, here: Here, principal: Submitter, request: Request, response: Response, key: Key = None) -> Submitted:
    """Submits a job, by its spec or in few words."""
    job_id = body.job_id if isinstance(body, Submission) else None
    requests.refuse_named(job_id, principal)
    spec = requests.own_spec(body.spec, principal)
    answer = await _submit(here, principal, request, spec, job_id, key)
    response.headers["Location"] = f"/v1/training-jobs/{answer.job_id}"
    return answer


@router.post("/{job_id}/checkpoints/{step}/restore", status_code=202)
async def restore(
    job_id: JobPath,
    step: Annotated[int, Path(ge=0, le=2**63 - 1)],
    here: Here,
    principal: Submitter,
    request: Request,
    response: Response,
    key: Key = None,
) -> Submitted:
    """Submits a new job with the same spec that begins from the checkpoint of this step."""
    await visible_job(here, principal, job_id)
    source = ResumeFrom(JobId.parse(job_id), commit=await _commit_of(here, job_id, step))
    spec = await original_spec(here, job_id)
    again = spec.model_copy(update={"resume_from": str(source), "user": principal.sub})
    answer = await _submit(here, principal, request, requests.own_spec(again, principal), None, key)
    response.headers["Location"] = f"/v1/training-jobs/{answer.job_id}"
    return answer


@router.post("/{job_id}/rerun", status_code=202)
async def rerun(job_id: JobPath, here: Here, principal: Submitter, request: Request, response: Response, key: Key = None) -> Submitted:
    """Submits a new job with the same spec: same code, environment, data, seed and gang."""
    await visible_job(here, principal, job_id)
    spec = await original_spec(here, job_id)
    again = spec.model_copy(update={"labels": {**spec.labels, RERUN_OF: job_id}, "user": principal.sub})
    answer = await _submit(here, principal, request, requests.own_spec(again, principal), None, key)
    response.headers["Location"] = f"/v1/training-jobs/{answer.job_id}"
    return answer


@router.post("/{job_id}/cancel", status_code=202)
async def cancel(
    job_id: JobPath, here: Here, principal: Submitter, request: Request, body: Cancellation | None = None, key: Key = None
) -> Requested:
    """Asks that a job end now."""
    requests.refuse_read_only((await visible_job(here, principal, job_id))["project"], principal)
    reason = (body or Cancellation()).reason
    return await _ask(here, principal, request, CancelJob(job_id=JobId.parse(job_id), reason=reason, user=principal.sub), key)


@router.post("/{job_id}/change", status_code=202)
async def change(job_id: JobPath, body: Change, here: Here, principal: Submitter, request: Request, key: Key = None) -> Requested:
    """Asks to change a job's priority or limits."""
    if body.priority is None and body.limits is None:
        raise ProblemError(422, "Invalid request", "nothing is to change: give priority or limits")
    requests.refuse_read_only((await visible_job(here, principal, job_id))["project"], principal)
    return await _ask(here, principal, request, ChangeJob(job_id=JobId.parse(job_id), priority=body.priority, limits=body.limits), key)


@router.post("/{job_id}/review", status_code=202)
async def review(job_id: JobPath, body: Review, here: Here, principal: Submitter, request: Request, key: Key = None) -> Requested:
    """Asks that a job be sent to review, or that its review end."""
    job = await visible_job(here, principal, job_id)
    requests.refuse_read_only(job["project"], principal)
    state = JobState(job["state"])
    if body.action is ReviewAction.SEND and state.final:
        raise ProblemError(409, "Not to be reviewed", f"job {job_id} has ended: it is {state}, so there is nothing to review")
    if body.action is not ReviewAction.SEND and state is not JobState.NEEDS_REVIEW:
        raise ProblemError(409, "Not under review", f"job {job_id} is {state}, not NEEDS_REVIEW: only a job under review can {body.action}")
    event = ReviewJob(job_id=JobId.parse(job_id), action=body.action, reason=body.reason, user=principal.sub, max_bad=body.max_bad)
    return await _ask(here, principal, request, event, key)


async def _submit(here: Gateway, principal: Principal, request: Request, spec: JobSpec, job_id: JobId | None, key: str | None) -> Submitted:
    await visible_source(here, principal, spec)
    if key is None:
        chosen = job_id or job_id_of(spec.name, time.time_ns() // 1_000_000, secrets.randbits(RANDOM_BITS))
    else:
        chosen = job_id or requests.keyed_job_id(principal.sub, key)
    if job_id is not None:
        await _refuse_logged(here, job_id)
    await here.storage.needs_room(spec.project)
    await here.queued.needs_room(spec.project, spec.pool, chosen)
    here.limits.submission(principal, spec.project, time.monotonic_ns() // 1_000_000)
    digest = spec.sha256()
    if key is None:
        event_id = secrets.token_hex(16)
    else:
        event_id = requests.keyed_event_id(principal.sub, key, "submit", chosen, digest)
        await _refuse_reused(here, chosen, digest, key)
    sent = await here.bus.send(JOBS, JobSubmitted(job_id=chosen, spec=spec, asked_as=principal.role.name.lower()), event_id)
    written = after.Written(job_id=chosen, event_id=event_id, spec_sha256=digest, partition=sent.partition, offset=sent.offset)
    here.accepted(request, principal, sent, target=chosen, project=spec.project)
    return Submitted(job_id=chosen, event_id=event_id, spec_sha256=digest, after=after.token_of(written, here.keys.now().newest))


async def _ask(
    here: Gateway, principal: Principal, request: Request, event: CancelJob | ChangeJob | ReviewJob, key: str | None
) -> Requested:
    event_id = secrets.token_hex(16) if key is None else _keyed(principal, key, event)
    asked = event.model_copy(update={"requested_by": requests.requested_by(principal)})
    sent = await here.bus.send(JOBS, asked, event_id)
    written = after.Written(job_id=event.job_id, event_id=event_id, partition=sent.partition, offset=sent.offset)
    here.accepted(request, principal, sent, target=event.job_id)
    return Requested(job_id=event.job_id, event_id=event_id, after=after.token_of(written, here.keys.now().newest))


def _keyed(principal: Principal, key: str, event: Event) -> str:
    return requests.keyed_event_id(principal.sub, key, event.event_type, event.model_dump_json())


async def _refuse_reused(here: Gateway, job_id: str, digest: str, key: str) -> None:
    """A quick answer where the key's first request can be read already; where not, intake refuses the second one."""
    if here.recent.setdefault(job_id, digest) != digest:
        raise requests.reused_key(key)
    found = await here.reader.one(
        "SELECT spec_sha256 FROM jobs WHERE job_id = {job_id:String} AND spec_sha256 != '' LIMIT 1", {"job_id": job_id}
    )
    if found is not None and found["spec_sha256"] != digest:
        raise requests.reused_key(key)


async def _refuse_logged(here: Gateway, job_id: str) -> None:
    """Refuses the id of a run that a client logged, and the form of ids of models: what is kept of them all goes by their ids alone. Raises
    ProblemError 409."""
    is_logged = is_model_id(job_id)  # the form of ids of logged models, which no job has
    if is_logged or await here.reader.one(
        "SELECT 1 AS found FROM tracked_runs_rows WHERE job_id = {job_id:String} LIMIT 1", {"job_id": job_id}
    ):
        raise ProblemError(409, "Taken", f"{job_id} is the id of a run or model that was logged here: choose another one, or none")


async def visible_source(here: Gateway, principal: Principal, spec: JobSpec) -> None:
    """Refuses a job that resumes from a job its sender may not see: a checkpoint is data. Raises ProblemError 422, and 404 for a hidden
    job."""
    if spec.resume_from is None:
        return
    try:
        source = parse_resume_from(spec.resume_from).job_id
    except ValueError as error:
        raise ProblemError(422, "Invalid request", str(error)) from error
    await visible_job(here, principal, source)


async def _commit_of(here: Gateway, job_id: str, step: int) -> int:
    found = await here.reader.one(
        "SELECT commit, state FROM checkpoints WHERE job_id = {job_id:String} AND step = {step:UInt64} ORDER BY state, commit DESC LIMIT 1",
        {"job_id": job_id, "step": step},
    )
    if found is None:
        raise not_found(f"checkpoint of step {step} of job {job_id}")
    if found["state"] != "COMPLETED":
        how = "deleted" if found["state"] == "DELETED" else "removed by retention"
        raise ProblemError(409, "Checkpoint removed", f"the checkpoint of step {step} was {how}; …/checkpoints lists what stays")
    return int(found["commit"])
