"""Models: versions, stages, gates and approvals, as the registry has them; requests, and what it decided.

Holds: a model of a project that its asker may not see does not exist for it; the asker's name and role go with each request, and nobody
names another. Gates, and promotions without approvals, are for who looks after the project, whichever route asks; the latter for approvers
too. An answer to a request is the registry's decision, or 409 with its words and the conditions of the gate.
"""

from __future__ import annotations

import secrets
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query, Request
from pydantic import ValidationError

from trainhouse.events import (
    AskedVia,
    ModelApproved,
    ModelArchiveRequested,
    ModelCompared,
    ModelDescribed,
    ModelEmergencyReview,
    ModelEvaluated,
    ModelEvaluationRequested,
    ModelGateApplied,
    ModelPromotionRequested,
    ModelRegistered,
    ModelRejected,
    ModelRollbackRequested,
    PredictionsObserved,
    ReferenceRecorded,
    RequestedBy,
)
from trainhouse.events.model.default_project import DEFAULT_PROJECT
from trainhouse.events.model.model_decisions import ModelDecision
from trainhouse.events.model.model_registry import ModelRequest
from trainhouse.events.wire.topics import MODEL_REQUESTS, OBSERVATIONS
from trainhouse.events.wire.validation_messages import explain_validation
from trainhouse.gateway.answers import Json
from trainhouse.gateway.auth.authentication import Approver, Submitter, SubmitterOrApprover, Viewer
from trainhouse.gateway.auth.memberships import ProjectBook
from trainhouse.gateway.auth.roles import Principal, Role
from trainhouse.gateway.bus import Sent
from trainhouse.gateway.context import Gateway, Here, now_ms
from trainhouse.gateway.errors import ProblemError
from trainhouse.gateway.models.model_book import ModelRefusedError
from trainhouse.gateway.models.model_summary import emergencies_of, summary_of
from trainhouse.gateway.problems import not_found
from trainhouse.gateway.queries import cursors
from trainhouse.gateway.queries.listing import Cursor, Limit
from trainhouse.gateway.requests import Key, keyed_event_id
from trainhouse.gateway.topic_follower import LateAnswerError
from trainhouse.scheduler.core.registry.registry_state import ModelEntry, Version
from trainhouse.scheduler.core.registry.registry_view import why as conditions_of

router = APIRouter(prefix="/v1/models", tags=["models"])

NamePath = Annotated[str, Path(description="The model's name.", min_length=1, max_length=128)]
VersionPath = Annotated[str, Path(description="Its ordinal, as 3, its semver, as 1.2.0, or champion.", min_length=1, max_length=64)]
ProjectQuery = Annotated[str, Query(description="Project that the model belongs to.", min_length=1, max_length=128)]
Brief = Annotated[bool, Query(description="Fewer fields, as lists need them.")]
Fields = Annotated[dict[str, Any], Body(description="Fields of the event of this request; user and requester are the token's.")]


@router.get("")
async def models(
    here: Here,
    principal: Viewer,
    project: Annotated[str | None, Query(description="Only of this project.", max_length=128)] = None,
    brief: Brief = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Json:
    """Models with their stages and gates, by project and name; `brief`: with their newest results instead of versions and gates."""
    await here.models.ready()
    seen = [each for each in here.models.view.models() if principal.sees(each.project) and project in (None, each.project)]
    if cursor is not None:
        last = tuple(cursors.decode(cursor, str, str))
        seen = [each for each in seen if (each.project, each.name) > last]
    found = sorted(seen, key=lambda each: (each.project, each.name))[: limit + 1]
    more = cursors.encode((found[limit - 1].project, found[limit - 1].name)) if len(found) > limit else None
    rows = [summary_of(each, here.models.champions(each.project, each.name)) if brief else _status(each) for each in found[:limit]]
    return Json({"items": rows, "next_cursor": more})


@router.get("/{name}")
async def model(
    name: NamePath,
    here: Here,
    principal: Viewer,
    project: ProjectQuery = DEFAULT_PROJECT,
    brief: Brief = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Json:
    """One model with its versions, the newest first, and names of the requests that the asker may make; `brief`: without results."""
    found = await visible_model(here, principal, project, name)
    below = len(found.versions) + 1
    if cursor is not None:
        below = min(below, max(1, _number(cursor)))
    chosen = found.versions[max(0, below - 1 - limit) : below - 1][::-1]
    more = cursors.encode((chosen[-1].version,)) if chosen and chosen[-1].version > 1 else None
    current = here.models.champions(project, name).current
    staging = found.staging()
    more_of = {"staging": staging.version if staging is not None else None, "emergencies": emergencies_of(found)}
    more_of["champion_since_ms"] = current.began_ms if current is not None else None
    rows = [version_row(each, brief=brief) for each in chosen]
    return Json(_status(found) | more_of | {"may": _may(here.projects, principal, project), "versions": rows, "next_cursor": more})


@router.get("/{name}/history")
async def history(
    name: NamePath, here: Here, principal: Viewer, project: ProjectQuery = DEFAULT_PROJECT, limit: Limit = 100, cursor: Cursor = None
) -> Json:
    """The newest 200 decisions about a model, oldest first, refusals among them."""
    await visible_model(here, principal, project, name)
    begin = max(0, _number(cursor)) if cursor is not None else 0
    kept = here.models.history(project, name, begin)
    found = [each.model_dump(mode="json") | {"type": each.event_type} for _, each in kept[:limit]]
    return Json({"items": found, "next_cursor": cursors.encode((kept[limit][0],)) if len(kept) > limit else None})


@router.get("/{name}/versions/{version}/why")
async def why(name: NamePath, version: VersionPath, here: Here, principal: Viewer, project: ProjectQuery = DEFAULT_PROJECT) -> Json:
    """Each condition of the gate for a version, with its numbers, and the evidence that an approval would rest on."""
    found = await visible_model(here, principal, project, name)
    chosen = found.find(version)
    if chosen is None:
        raise not_found(f"version {version} of model {name}")
    conditions = conditions_of(found, chosen, now_ms())
    met = all(each.met for each in conditions)
    return Json({"met": met, "evidence": chosen.evidence, "conditions": [each.model_dump(mode="json") for each in conditions]})


@router.post("/{name}/versions", status_code=201)
async def register(
    name: NamePath, fields: Fields, here: Here, principal: Submitter, request: Request, project: ProjectQuery = DEFAULT_PROJECT
) -> Json:
    """Registers a version: `job_id` and `commit`, or the `content` of a model manifest; `bump`, `notes` and `tags`."""
    return await _asked(here, principal, request, ModelRegistered, project, name, fields)


@router.post("/{name}/promote")
async def promote(
    name: NamePath, fields: Fields, here: Here, principal: SubmitterOrApprover, request: Request, project: ProjectQuery = DEFAULT_PROJECT
) -> Json:
    """Promotes `version` to champion, if the gate lets it; `emergency` skips approvals alone, and is for approvers, maintainers of the
    project and operators."""
    return await _asked(here, principal, request, ModelPromotionRequested, project, name, fields)


@router.post("/{name}/archive")
async def archive(
    name: NamePath, fields: Fields, here: Here, principal: Submitter, request: Request, project: ProjectQuery = DEFAULT_PROJECT
) -> Json:
    """Archives `version`."""
    return await _asked(here, principal, request, ModelArchiveRequested, project, name, fields)


@router.post("/{name}/rollback")
async def rollback(
    name: NamePath, fields: Fields, here: Here, principal: Submitter, request: Request, project: ProjectQuery = DEFAULT_PROJECT
) -> Json:
    """Makes a past champion champion again: the last one, or `to`; `reason` is required."""
    return await _asked(here, principal, request, ModelRollbackRequested, project, name, fields)


@router.post("/{name}/approve")
async def approve(
    name: NamePath, fields: Fields, here: Here, principal: Approver, request: Request, project: ProjectQuery = DEFAULT_PROJECT
) -> Json:
    """Approves `version`, on the `evidence` that was looked at."""
    return await _asked(here, principal, request, ModelApproved, project, name, fields)


@router.post("/{name}/reject")
async def reject(
    name: NamePath, fields: Fields, here: Here, principal: Approver, request: Request, project: ProjectQuery = DEFAULT_PROJECT
) -> Json:
    """Rejects `version`."""
    return await _asked(here, principal, request, ModelRejected, project, name, fields)


@router.post("/{name}/review")
async def review(
    name: NamePath, fields: Fields, here: Here, principal: Approver, request: Request, project: ProjectQuery = DEFAULT_PROJECT
) -> Json:
    """Reviews the emergency promotion of `version`."""
    return await _asked(here, principal, request, ModelEmergencyReview, project, name, fields)


@router.post("/{name}/gate")
async def gate(
    name: NamePath, fields: Fields, here: Here, principal: Submitter, request: Request, project: ProjectQuery = DEFAULT_PROJECT
) -> Json:
    """Applies `gate`, which `replaces` the version that it was made from; maintainers of the project and operators may."""
    return await _asked(here, principal, request, ModelGateApplied, project, name, fields)


@router.post("/{name}/evaluations", status_code=201)
async def evaluate(
    name: NamePath, fields: Fields, here: Here, principal: Submitter, request: Request, project: ProjectQuery = DEFAULT_PROJECT
) -> Json:
    """Records the result of a suite for a version."""
    return await _asked(here, principal, request, ModelEvaluated, project, name, fields)


@router.post("/{name}/evaluate", status_code=201)
async def start_evaluations(
    name: NamePath, fields: Fields, here: Here, principal: Submitter, request: Request, project: ProjectQuery = DEFAULT_PROJECT
) -> Json:
    """Submits the jobs that evaluate `version` as the gate says, or the one of `suite`."""
    return await _asked(here, principal, request, ModelEvaluationRequested, project, name, fields)


@router.post("/{name}/comparisons", status_code=201)
async def compare(
    name: NamePath, fields: Fields, here: Here, principal: Submitter, request: Request, project: ProjectQuery = DEFAULT_PROJECT
) -> Json:
    """Records the comparison of two versions on the same samples."""
    return await _asked(here, principal, request, ModelCompared, project, name, fields)


@router.post("/{name}/describe")
async def describe(
    name: NamePath, fields: Fields, here: Here, principal: Submitter, request: Request, project: ProjectQuery = DEFAULT_PROJECT
) -> Json:
    """Changes notes, tags and aliases of a model, or of a `version` of it."""
    return await _asked(here, principal, request, ModelDescribed, project, name, fields)


@router.post("/{name}/observations", status_code=202)
async def observe(
    name: NamePath,
    fields: Fields,
    here: Here,
    principal: Submitter,
    request: Request,
    project: ProjectQuery = DEFAULT_PROJECT,
    key: Key = None,
) -> Json:
    """Takes what a `version` in service predicted in one window: histograms, outcomes by prediction id, also days late."""
    return await _taken(here, principal, request, PredictionsObserved, project, name, fields, key)


@router.post("/{name}/references", status_code=202)
async def refer(
    name: NamePath,
    fields: Fields,
    here: Here,
    principal: Submitter,
    request: Request,
    project: ProjectQuery = DEFAULT_PROJECT,
    key: Key = None,
) -> Json:
    """Takes the distribution that live inputs and outputs of a `version` are compared with."""
    return await _taken(here, principal, request, ReferenceRecorded, project, name, fields, key)


async def ask(here: Gateway, principal: Principal, request: Request, event: ModelRequest) -> ModelDecision:
    """Sends a request in the name of a principal; returns the first decision. Raises ProblemError where the principal may not write in the
    project, ModelRefusedError, BusUnavailableError."""
    _refuse_others(principal, event.project)
    refusal = forbidden(here.projects, principal, event)
    if refusal:
        raise ProblemError(403, "Forbidden", refusal)
    event_id = secrets.token_hex(16)
    try:
        decided = await here.models.ask(here.bus, event, event_id)
    except LateAnswerError as late:  # it may still count
        here.accepted(request, principal, late.sent, target=event.subject()[:256], project=event.project)
        raise
    sent = Sent(event_id, MODEL_REQUESTS, 0, 0)
    here.accepted(request, principal, sent, target=event.subject()[:256], project=event.project)
    return decided


def forbidden(projects: ProjectBook, principal: Principal, event: ModelRequest) -> str:
    """Returns why a principal may not ask for this, though its role lets it ask; empty if it may. An undeclared project has no
    maintainers."""
    maintains = projects.maintains(principal, event.project)
    declared = projects.get(event.project) is not None
    keepers = (
        f"maintainers of project {event.project}, and operators" if declared else f"operators, as nobody declared project {event.project}"
    )
    if isinstance(event, ModelGateApplied) and not maintains:
        return f"the gate of a model is changed by {keepers}"
    if isinstance(event, ModelPromotionRequested):
        if event.emergency and not (maintains or principal.approves):
            return f"an emergency promotion is asked for by approvers, {keepers}"
        if not event.emergency and not principal.may(Role.SUBMITTER):
            return "this needs the role submitter; an approver may promote in an emergency only"
    return ""


def by_token(principal: Principal) -> dict[str, Any]:
    """The requester, as the gateway vouches for it. The role is the one that lets people approve, where the token has it."""
    role = "approver" if principal.approves else principal.role.name.lower()
    return {"user": principal.sub[:128], "requested_by": RequestedBy(name=principal.sub[:256], via=AskedVia.GATEWAY, role=role)}


async def _asked(
    here: Gateway, principal: Principal, request: Request, kind: type[ModelRequest], project: str, name: str, fields: dict[str, Any]
) -> Json:
    try:
        event = kind.model_validate(fields | {"project": project, "name": name} | by_token(principal))
    except ValidationError as error:
        raise ProblemError(422, "Invalid request", explain_validation(error, kind)) from error
    try:
        decided = await ask(here, principal, request, event)
    except ModelRefusedError as refused:
        conditions = [each.model_dump(mode="json") for each in refused.refused.conditions]
        raise ProblemError(409, "Refused", str(refused), conditions=conditions) from refused
    return Json(decided.model_dump(mode="json") | {"type": decided.event_type}, 201 if kind is ModelRegistered else 200)


async def _taken(
    here: Gateway,
    principal: Principal,
    request: Request,
    kind: type[PredictionsObserved | ReferenceRecorded],
    project: str,
    name: str,
    fields: dict[str, Any],
    key: str | None,
) -> Json:
    """Sends an observation of a version that there is. Raises ProblemError, BusUnavailableError."""
    _refuse_others(principal, project)
    try:
        event = kind.model_validate(fields | {"project": project, "name": name} | by_token(principal))
    except ValidationError as error:
        raise ProblemError(422, "Invalid request", explain_validation(error, kind)) from error
    refusal = event.refusal(now_ms()) if isinstance(event, PredictionsObserved) else ""
    if refusal:
        raise ProblemError(422, "Invalid request", refusal)
    found = await visible_model(here, principal, project, name)
    if found.get(event.version) is None:
        raise not_found(f"version {event.version} of model {name}")
    event_id = secrets.token_hex(16) if key is None else keyed_event_id(principal.sub, key, event.model_dump_json())
    sent = await here.bus.send(OBSERVATIONS, event, event_id)
    here.accepted(request, principal, sent, target=event.subject()[:256], project=project)
    return Json({"event_id": event_id}, 202)


def _refuse_others(principal: Principal, project: str) -> None:
    """Raises ProblemError where the principal may not write in the project."""
    if not principal.sees(project):
        raise not_found(f"project {project}")
    if principal.only_reads(project):
        raise ProblemError(403, "Forbidden", f"your membership lets you read project {project}, and no more")


def _number(cursor: str) -> int:
    return int(str(cursors.decode(cursor, int)[0]))


async def visible_model(here: Gateway, principal: Principal, project: str, name: str) -> ModelEntry:
    """Returns a model. Raises ProblemError 404 where the asker may not see it, BusUnavailableError."""
    await here.models.ready()
    found = here.models.view.find(project, name)
    if found is None or not principal.sees(project):
        raise not_found(f"model {name}")
    return found


def _status(model: ModelEntry) -> dict[str, Any]:
    more = {"notes": model.notes, "tags": dict(model.tags), "aliases": dict(model.aliases)}
    return model.status(0).model_dump(mode="json", exclude={"updated_at_ms"}) | more


def version_row(version: Version, *, brief: bool = False) -> dict[str, Any]:
    """A version with its facts, as an answer has it; `brief`: without splits and results."""
    left_out = {"project", "splits"} if brief else {"project"}
    facts = version.facts.model_dump(mode="json", exclude=left_out)
    about = {"registered_by": version.registered_by, "approvers": list(version.approvers), "rejecters": list(version.rejecters)}
    texts = {"notes": version.notes, "tags": dict(version.tags), "emergency": version.emergency}
    row = version.status().model_dump(mode="json") | facts | about | texts
    if brief:
        return row
    evaluations = [each.model_dump(mode="json", exclude={"project", "name"}) for each in version.evaluations]
    comparisons = [each.model_dump(mode="json", exclude={"project", "name"}) for each in version.comparisons]
    more = {"promoted_by": version.promoted_by, "withdrawn": version.withdrawn, "was_champion": version.was_champion}
    more |= {"evaluation_jobs": [each.as_row() for each in version.jobs]}
    return row | more | {"evidence": version.evidence, "evaluations": evaluations, "comparisons": comparisons}


def _may(projects: ProjectBook, principal: Principal, project: str) -> list[str]:
    """Names of the requests about a model that the asker may make, whatever the registry says to them."""
    if principal.only_reads(project):
        return []
    maintains = projects.maintains(principal, project)
    submits = ["promote", "rollback", "archive"] if principal.may(Role.SUBMITTER) else []
    words = ["approve", "reject", "review"] if principal.approves else []
    return submits + words + (["emergency"] if maintains or principal.approves else [])
