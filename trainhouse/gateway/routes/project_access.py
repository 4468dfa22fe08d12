"""Projects: what there are, and changes of members and purposes by who looks after them.

Holds: a project that its asker may not see does not exist for it; a change is made from the version that this gateway knows, so of two at
once one is refused by intake; what came of each is asked by the id of its request. Limits and everything else of a project are for
operators.
"""

from __future__ import annotations

import secrets
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, Field, ValidationError

from trainhouse.events import ChangeProject, MemberRole, Project, ProjectApplied
from trainhouse.events.wire.topics import JOBS
from trainhouse.events.wire.validation_messages import explain_validation
from trainhouse.gateway.answers import Json
from trainhouse.gateway.audit.targets import changed_members
from trainhouse.gateway.auth.authentication import Operator, Submitter, Viewer
from trainhouse.gateway.auth.roles import Principal
from trainhouse.gateway.context import Gateway, Here
from trainhouse.gateway.errors import ProblemError
from trainhouse.gateway.problems import not_found
from trainhouse.gateway.queries import read_your_writes as after
from trainhouse.gateway.queries.project_versions import shown, version_made
from trainhouse.gateway.queries.refusals import refusal, set_aside
from trainhouse.scheduler.core.intake.projects import as_asked

router = APIRouter(prefix="/v1/projects", tags=["projects"])

ProjectPath = Annotated[str, Path(description="The project's name.", min_length=1, max_length=128)]
Name = Annotated[str, Path(min_length=1, max_length=128)]
RequestPath = Annotated[str, Path(description="`event_id` of the answer to the change.", min_length=1, max_length=128)]

_CHANGE = """
SELECT json FROM events_rows FINAL
WHERE job_id = '' AND event_id = {event_id:String} AND type = {type:String} AND subject = {project:String} LIMIT 1
"""


class Member(BaseModel):
    """Role of a member."""

    role: MemberRole


class Approved(BaseModel):
    """Approval of a purpose, with its description."""

    description: Annotated[str, Field(max_length=1024)] = ""


class Asked(BaseModel):
    """A change that Kafka holds. GET `…/changes/{event_id}` with `?after=` to see what became of it."""

    project: str
    event_id: str
    replaces: int
    after: str


class Outcome(BaseModel):
    """Outcome of a change. Where both are null, it was not handled yet."""

    project: str
    event_id: str
    refused: str | None
    version: Annotated[int | None, Field(description="version of the project that is as was asked")]


@router.get("")
async def projects(here: Here, principal: Viewer) -> Json:
    """Projects that were declared, as they are now."""
    return Json({"items": [_shown(a) for a in here.projects.all() if principal.sees(a.project.name)], "next_cursor": None})


@router.get("/{project}")
async def project(project: ProjectPath, here: Here, principal: Viewer) -> Json:
    """One project that was declared."""
    return Json(_shown(_visible(here, principal, project)))


@router.get("/{project}/changes/{event_id}", dependencies=[after.After])
async def change(project: ProjectPath, event_id: RequestPath, here: Here, principal: Viewer) -> Outcome:
    """Outcome of a change that was asked for."""
    found = await here.reader.one(_CHANGE, {"event_id": event_id, "type": ChangeProject.event_type, "project": project})
    if found is None or not principal.sees(project):
        raise not_found(f"change {event_id} of project {project}")
    refused = await refusal(here.reader, event_id) or await set_aside(here.reader, event_id)
    version = None if refused is not None else await _version(here, ChangeProject.model_validate_json(found["json"]))
    return Outcome(project=project, event_id=event_id, refused=refused, version=version)


@router.put("/{project}", status_code=202)
async def set_project(project: ProjectPath, body: Project, here: Here, principal: Operator, request: Request) -> Asked:
    """Asks that a project be so, declared before or not."""
    if body.name != project:
        raise ProblemError(422, "Invalid request", f"name: the body says {body.name}, the address {project}; make them equal")
    if not principal.sees(project):
        raise not_found(f"project {project}")
    return await _ask(here, principal, request, body, here.projects.get(project))


@router.put("/{project}/members/{user}", status_code=202)
async def put_member(project: ProjectPath, user: Name, body: Member, here: Here, principal: Submitter, request: Request) -> Asked:
    """Makes somebody a member, or gives a member another role. For maintainers and operators."""
    known = _maintained(here, principal, project)
    if known.project.members is None:
        raise ProblemError(409, "No members", f"project {project} has no list of members, tokens alone decide: an operator gives it one")
    return await _changed(here, principal, request, known, members={**known.project.members, user: body.role})


@router.delete("/{project}/members/{user}", status_code=202)
async def delete_member(project: ProjectPath, user: Name, here: Here, principal: Submitter, request: Request) -> Asked:
    """Ends a membership: tokens of this user open the project no more. For maintainers and operators."""
    known = _maintained(here, principal, project)
    members = known.project.members or {}
    if user not in members:
        raise not_found(f"member {user} of project {project}")
    return await _changed(here, principal, request, known, members={member: role for member, role in members.items() if member != user})


@router.put("/{project}/purposes/{purpose}", status_code=202)
async def approve(project: ProjectPath, purpose: Name, body: Approved, here: Here, principal: Submitter, request: Request) -> Asked:
    """Allows jobs of a project to be for this. For maintainers and operators."""
    known = _maintained(here, principal, project)
    return await _changed(here, principal, request, known, purposes={**_purposes(known), purpose: body.model_dump()})


@router.delete("/{project}/purposes/{purpose}", status_code=202)
async def revoke(project: ProjectPath, purpose: Name, here: Here, principal: Submitter, request: Request) -> Asked:
    """Allows no new job of a project to be for this. For maintainers and operators."""
    known = _maintained(here, principal, project)
    if purpose not in known.project.purposes:
        raise not_found(f"purpose {purpose} of project {project}")
    left = {p: approval for p, approval in _purposes(known).items() if p != purpose}
    return await _changed(here, principal, request, known, purposes=left)


def _shown(applied: ProjectApplied) -> dict[str, Any]:
    about = {"version": applied.version, "set_by": applied.user, "reason": applied.reason, "applied_at_ms": applied.applied_at_ms}
    return applied.project.model_dump(mode="json") | about


async def _version(here: Gateway, asked: ChangeProject) -> int | None:
    """The version that a request made, else the newest one, where that is as was asked; it may have been before."""
    made = await version_made(here.reader, asked)
    known = here.projects.get(asked.project.name)
    if made is not None or known is None or known.version < (asked.replaces or 0):  # what this gateway knows is older than the request
        return made
    return known.version if as_asked(asked, known.model_copy(update={"project": shown(known.project)})) else None


def _purposes(applied: ProjectApplied) -> dict[str, dict[str, Any]]:
    return {name: purpose.model_dump() for name, purpose in applied.project.purposes.items()}


def _visible(here: Gateway, principal: Principal, name: str) -> ProjectApplied:
    found = here.projects.get(name)
    if found is None or not principal.sees(name):
        raise not_found(f"project {name}")
    return found


def _maintained(here: Gateway, principal: Principal, name: str) -> ProjectApplied:
    """A project that somebody looks after. Raises ProblemError 404 or 403."""
    found = _visible(here, principal, name)
    if not here.projects.maintains(principal, name):
        raise ProblemError(
            403, "Forbidden", f"{principal.sub} does not look after project {name}: ask one of its maintainers, or an operator"
        )
    return found


async def _changed(here: Gateway, principal: Principal, request: Request, known: ProjectApplied, **fields: Any) -> Asked:
    try:
        project = Project.model_validate(known.project.model_dump() | fields)
    except ValidationError as error:
        raise ProblemError(422, "Invalid request", explain_validation(error, Project)) from error
    return await _ask(here, principal, request, project, known)


async def _ask(here: Gateway, principal: Principal, request: Request, project: Project, known: ProjectApplied | None) -> Asked:
    event_id, replaces = secrets.token_hex(16), known.version if known else 0
    sent = await here.bus.send(JOBS, ChangeProject(project=project, replaces=replaces, user=principal.sub), event_id)
    target = changed_members(known.project if known else None, project)
    here.accepted(request, principal, sent, target=target, project=project.name)
    written = after.Written(job_id="", event_id=event_id, partition=sent.partition, offset=sent.offset)
    return Asked(project=project.name, event_id=event_id, replaces=replaces, after=after.token_of(written, here.keys.now().newest))
