"""Studies: searches over hyperparameters whose trials are jobs. Lists come from the projections; requests go to the tuner.

Holds: a study of a project that its asker may not see does not exist for it; the asker's name and role go with each request, and nobody
names another. A trial's job is what its study's creator might submit. An answer to a request is the tuner's decision, or 409 with its
words.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from enum import StrEnum
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from trainhouse.events import (
    AskedVia,
    RequestedBy,
    StudyCreated,
    StudyPauseRequested,
    StudyResumeRequested,
    StudySpec,
    StudyState,
    StudyStopRequested,
    TrialState,
)
from trainhouse.events.model.default_project import DEFAULT_PROJECT
from trainhouse.events.model.labels import Label
from trainhouse.events.model.spec import MetricMode
from trainhouse.events.model.study import StudyName, StudyRequest
from trainhouse.events.model.study_shorthand import spelled_out
from trainhouse.events.wire.topics import MAX_INPUT_BYTES
from trainhouse.events.wire.validation_messages import explain_validation
from trainhouse.gateway import requests
from trainhouse.gateway.answers import Json
from trainhouse.gateway.auth.authentication import Submitter, Viewer
from trainhouse.gateway.auth.roles import Principal, Role
from trainhouse.gateway.context import Gateway, Here
from trainhouse.gateway.errors import ProblemError
from trainhouse.gateway.problems import not_found
from trainhouse.gateway.queries.listing import Cursor, Limit, Order, Source, merged, millis
from trainhouse.gateway.queries.read_your_writes import FIRST_POLL_S
from trainhouse.gateway.queries.where_clauses import Where
from trainhouse.gateway.requests import Key
from trainhouse.gateway.routes.writes import visible_source
from trainhouse.gateway.studies.study_answers import StudyAnswer, StudyRefusedError
from trainhouse.gateway.studies.visible_study import NamePath, ProjectQuery, visible_study
from trainhouse.gateway.topic_follower import LateAnswerError
from trainhouse.projections.study_listing import (
    COST_COLUMNS,
    FACT_COLUMNS,
    FACT_WHERE,
    OF_STUDY,
    STUDY_COLUMNS,
    TRIAL_COLUMNS,
    fact_row,
    study_row,
    trial_row,
)
from trainhouse.projections.study_spending import RUNNING_DEVICE_S, spending

router = APIRouter(prefix="/v1/hpo/studies", tags=["studies"])

READABLE_S = 2.0
"""Seconds for which an answer waits until the projections have it, so that the next question finds it."""
MOST_STUDY_BYTES = MAX_INPUT_BYTES - 4096
_STUDIES = Order((millis("created_at"), ("project", "String"), ("study", "String")), descending=True)
_FACTS = Order((("toUInt64(number)", "UInt64"),))
_NUMBER = ("toUInt64(trial)", "UInt64")
# A value as a whole number of the same order, the best first, what is no number last: a cursor holds no fractions.
_COST = "reinterpretAsInt64({sign:Float64} * assumeNotNull(trials.value) + 0.0)"
_BY_VALUE = f"if(isFinite(ifNull(trials.value, nan)), if({_COST} < 0, bitXor({_COST}, 9223372036854775807), {_COST}), 9223372036854775807)"
_SPENT = f"SELECT {COST_COLUMNS} FROM study_cost WHERE {OF_STUDY} ORDER BY state"
_DECIDED = f"SELECT fact, number, reason FROM study_facts FINAL WHERE {OF_STUDY} AND request_id = {{request_id:String}} LIMIT 1"
_NUMBERED = f"SELECT 1 AS found FROM study_statuses_rows WHERE {OF_STUDY} AND number >= {{number:UInt32}} LIMIT 1"


class TrialOrder(StrEnum):
    """Order of a listing of trials."""

    NUMBER = "number"
    NEWEST = "newest"
    BEST = "best"


_ORDERS = {
    TrialOrder.NUMBER: Order((_NUMBER,)),
    TrialOrder.NEWEST: Order((_NUMBER,), descending=True),
    TrialOrder.BEST: Order(((_BY_VALUE, "Int64"), _NUMBER)),
}


class Body(BaseModel):
    """A request's body: unknown fields are mistakes."""

    model_config = ConfigDict(extra="forbid")


class NewStudy(Body):
    """A study to begin."""

    name: Annotated[StudyName, Field(description="name of the study, of which its project has none yet")]
    project: Annotated[Label, Field(description="project that it belongs to, and its jobs")] = DEFAULT_PROJECT
    spec: Annotated[StudySpec, Field(description="what is searched, and how")]

    @field_validator("spec", mode="before")
    @classmethod
    def _whole(cls, value: Any) -> Any:
        return spelled_out(value) if isinstance(value, dict) else value


class Why(Body):
    """Reason of a request."""

    reason: Annotated[str, Field(max_length=1024, description="why; kept with it")] = ""


@router.get("")
async def studies(
    here: Here,
    principal: Viewer,
    project: Annotated[str | None, Query(description="Only of this project.", max_length=128)] = None,
    state: Annotated[StudyState | None, Query(description="Only in this state.")] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Json:
    """Studies with their best trials, the newest first."""
    where = Where()
    where.visible(principal)
    where.equal("project", project)
    where.equal("state", state)
    found = await merged(here.reader, (Source(STUDY_COLUMNS, "studies", where, _STUDIES, study_row),), limit, cursor)
    return Json(found.answer())


@router.get("/{name}")
async def study(name: NamePath, here: Here, principal: Viewer, project: ProjectQuery = DEFAULT_PROJECT) -> Json:
    """One study with its spec, what its trials took by state, and names of the requests that the asker may make."""
    found = await visible_study(here, principal, project, name)
    cost = await here.reader.rows(_SPENT, {"project": project, "study": name})
    may = principal.may(Role.SUBMITTER) and not principal.only_reads(project)
    return Json(found | {"cost": cost, "may": ["pause", "resume", "stop"] if may else []})


@router.get("/{name}/why")
async def why(name: NamePath, here: Here, principal: Viewer, project: ProjectQuery = DEFAULT_PROJECT) -> Json:
    """Spending of a study: on which trials, the savings of early stopping (an estimate, with its way), and the bound that comes next."""
    found, of = await visible_study(here, principal, project, name), {"project": project, "study": name}
    cost = await here.reader.rows(_SPENT, of)
    running = await here.reader.one(RUNNING_DEVICE_S, of)
    return Json(spending(found, cost, (running or {}).get("device_s"), time.time_ns() // 1_000_000))


@router.get("/{name}/trials")
async def trials(
    name: NamePath,
    here: Here,
    principal: Viewer,
    project: ProjectQuery = DEFAULT_PROJECT,
    state: Annotated[TrialState | None, Query(description="Only in this state.")] = None,
    order: Annotated[
        TrialOrder, Query(description="By number, the newest first, or the best by the first metric first.")
    ] = TrialOrder.NUMBER,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Json:
    """Trials of a study with their parameters and values."""
    found = await visible_study(here, principal, project, name)
    where = Where(values={"sign": MetricMode(found["modes"][0]).sign})
    where.equal("project", project)
    where.equal("study", name)
    where.equal("state", state)
    listed = await merged(here.reader, (Source(TRIAL_COLUMNS, "trials", where, _ORDERS[order], trial_row),), limit, cursor)
    return Json(listed.answer())


@router.get("/{name}/facts")
async def facts(
    name: NamePath,
    here: Here,
    principal: Viewer,
    project: ProjectQuery = DEFAULT_PROJECT,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Json:
    """Decisions about a study's trials, oldest first: starts, values of the metric, stops and ends. Early stopping can be decided anew by
    them."""
    await visible_study(here, principal, project, name)
    where = Where()
    where.equal("project", project)
    where.equal("study", name)
    where.add(FACT_WHERE)
    found = await merged(here.reader, (Source(FACT_COLUMNS, "study_facts FINAL", where, _FACTS, fact_row),), limit, cursor)
    return Json(found.answer())


@router.post("", status_code=201)
async def create(body: NewStudy, here: Here, principal: Submitter, request: Request, key: Key = None) -> Json:
    """Begins a study; its trials are jobs of the asker."""
    if body.spec.job.project not in (DEFAULT_PROJECT, body.project):
        raise ProblemError(
            422, "Invalid request", f"spec.job.project is {body.spec.job.project}, and the study's is {body.project}; leave it out"
        )
    own = requests.own_spec(body.spec.job.model_copy(update={"project": body.project}), principal)
    await visible_source(here, principal, own)
    await here.storage.needs_room(body.project)
    spec = body.spec.model_copy(update={"job": own})
    about = {"study": body.name, "project": body.project, "spec": spec}
    event = StudyCreated.model_validate(about | {"asked_as": principal.role.name.lower()} | _by(principal))
    _check_size(event)
    event_id = _new_id(principal, key, event)
    if key is not None and (known := await _decided(here, event, event_id)) is not None:
        return known
    here.limits.submission(principal, body.project, time.monotonic_ns() // 1_000_000)
    return await _asked(here, principal, request, event, event_id)


@router.post("/{name}/pause")
async def pause(
    name: NamePath,
    here: Here,
    principal: Submitter,
    request: Request,
    body: Why | None = None,
    project: ProjectQuery = DEFAULT_PROJECT,
) -> Json:
    """Pauses a study: no more trials begin, and those that run go on."""
    return await _changed(here, principal, request, StudyPauseRequested, project, name, body)


@router.post("/{name}/resume")
async def resume(
    name: NamePath,
    here: Here,
    principal: Submitter,
    request: Request,
    body: Why | None = None,
    project: ProjectQuery = DEFAULT_PROJECT,
) -> Json:
    """Resumes a paused study."""
    return await _changed(here, principal, request, StudyResumeRequested, project, name, body)


@router.post("/{name}/stop")
async def stop(
    name: NamePath,
    here: Here,
    principal: Submitter,
    request: Request,
    body: Why | None = None,
    project: ProjectQuery = DEFAULT_PROJECT,
) -> Json:
    """Ends a study; its running trials are cancelled."""
    return await _changed(here, principal, request, StudyStopRequested, project, name, body)


async def _changed(
    here: Gateway, principal: Principal, request: Request, kind: type[StudyRequest], project: str, name: str, body: Why | None
) -> Json:
    if not principal.sees(project):
        raise not_found(f"study {name}")
    requests.refuse_read_only(project, principal)
    fields = {"project": project, "study": name, "reason": (body or Why()).reason}
    try:
        event = kind.model_validate(fields | _by(principal))
    except ValidationError as error:
        raise ProblemError(422, "Invalid request", explain_validation(error, kind)) from error
    # What is asked of a study that is not there would be kept for ever, too.
    await visible_study(here, principal, project, name)
    here.limits.submission(principal, project, time.monotonic_ns() // 1_000_000)
    return await _asked(here, principal, request, event, secrets.token_hex(16))


def _check_size(event: StudyCreated) -> None:
    """Raises ProblemError 422 for a study whose record no request may have: the tuner would set it aside, and never answer."""
    size_bytes = len(event.model_dump_json().encode())
    if size_bytes > MOST_STUDY_BYTES:
        raise ProblemError(
            422,
            "Invalid request",
            f"spec: the study has {size_bytes} bytes, and may have {MOST_STUDY_BYTES}: shorten choices, `known`, `enqueue` or `job`",
        )


async def _asked(here: Gateway, principal: Principal, request: Request, event: StudyRequest, event_id: str) -> Json:
    """Sends a request. Raises ProblemError 409 with the tuner's words, 404 where there is no such study."""
    try:
        decided, sent = await here.studies.ask(here.bus, event, event_id)
    except StudyRefusedError as refused:
        if not isinstance(event, StudyCreated):
            await visible_study(here, principal, event.project, event.study)
        raise ProblemError(409, "Refused", str(refused)) from refused
    except LateAnswerError as late:  # it may still count
        here.accepted(request, principal, late.sent, target=event.subject()[:256], project=event.project)
        raise
    here.accepted(request, principal, sent, target=event.subject()[:256], project=event.project)
    await _let_projections_follow(here, decided)
    answer = {"number": decided.number, "state": StudyState.RUNNING.value, "reason": ""}
    if not isinstance(event, StudyCreated):
        answer |= decided.model_dump(mode="json", include={"state", "reason"})
    about = {"project": event.project, "study": event.study, "event_id": event_id}
    return Json(about | answer, 201 if isinstance(event, StudyCreated) else 200)


async def _let_projections_follow(here: Gateway, decided: StudyAnswer) -> None:
    """Waits until the projections have a decision, for a moment at most."""
    of = {"project": decided.project, "study": decided.study, "number": decided.number}
    deadline = time.monotonic() + READABLE_S
    while await here.reader.one(_NUMBERED, of) is None and time.monotonic() < deadline:
        await asyncio.sleep(FIRST_POLL_S)


async def _decided(here: Gateway, event: StudyCreated, event_id: str) -> Json | None:
    """The answer to a request that was decided before under the same key; None: it was not. Raises ProblemError 409."""
    found = await here.reader.one(_DECIDED, {"project": event.project, "study": event.study, "request_id": event_id})
    if found is None:
        return None
    if found["fact"] == "refused":
        raise ProblemError(409, "Refused", found["reason"])
    about = {"project": event.project, "study": event.study, "event_id": event_id, "number": found["number"]}
    return Json(about | {"state": StudyState.RUNNING.value, "reason": ""}, 201)


def _by(principal: Principal) -> dict[str, Any]:
    """Returns the requester, as the gateway vouches for it."""
    role = principal.role.name.lower()
    return {"user": principal.sub[:128], "requested_by": RequestedBy(name=principal.sub[:256], via=AskedVia.GATEWAY, role=role)}


def _new_id(principal: Principal, key: str | None, event: StudyCreated) -> str:
    return secrets.token_hex(16) if key is None else requests.keyed_event_id(principal.sub, key, event.model_dump_json())
