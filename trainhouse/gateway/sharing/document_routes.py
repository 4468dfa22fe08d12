"""Reports and views of a project over HTTP: lists, one of them, its history, saves and deletions.

Holds: a document of a project that its asker may not see does not exist for it. A save names the version that it was made from, and is
answered once it can be read: by its version where it counts, by 409 with who saved instead where another save of the version came first.
Gateways decide nothing about it: the first record on the topic counts, and each reads which one that was.
Never: renders Markdown, or runs what a panel asks: the pages do, with the rights of their reader.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from trainhouse.events.model.bounds import MOST_CHARS, MOST_SMALL
from trainhouse.events.model.project_document import MOST_NAME_CHARS, MOST_NOTE_CHARS, DocumentKind, DocumentSaved, name_problem
from trainhouse.events.wire.topics import TRACKING
from trainhouse.gateway.answers import Json
from trainhouse.gateway.auth.authentication import Submitter, Viewer
from trainhouse.gateway.auth.roles import Principal
from trainhouse.gateway.context import Gateway, Here, now_ms
from trainhouse.gateway.errors import ProblemError
from trainhouse.gateway.problems import busy, not_found
from trainhouse.gateway.queries.listing import Cursor, Limit, Order, millis, page
from trainhouse.gateway.queries.read_your_writes import FIRST_POLL_S, LONGEST_POLL_S
from trainhouse.gateway.queries.sql_reader import Row
from trainhouse.gateway.queries.where_clauses import Where
from trainhouse.gateway.requests import refuse_read_only
from trainhouse.gateway.routes.jobs import Text

router = APIRouter(prefix="/v1", tags=["reports"])

MOST_DOCUMENTS = 5000
"""Documents of one kind in a project."""
MOST_VERSIONS = 1000
"""Versions of one document; its deletion may come on top."""
MOST_SAVES = 100_000
"""Versions of all reports and views of a project."""
_LISTED = "project, kind, name, version, note, saved_by, at, created_by, created_at"
_ORDER = Order((millis("at"), ("project", "String"), ("name", "String")), descending=True)
_VERSIONS = Order((("toUInt64(version)", "UInt64"),), descending=True)
_ONE = "project = {project:String} AND kind = {kind:String} AND name = {name:String}"

# Of every version, also of a deletion: a save that follows one goes on behind it.
_NEWEST = f"SELECT version, deleted, saved_by, at FROM document_versions WHERE {_ONE} ORDER BY version DESC LIMIT 1"
_SHOWN = f"SELECT {_LISTED}, content FROM documents WHERE {_ONE}"
_VERSION = f"FROM document_versions WHERE {_ONE} AND version = {{version:UInt32}}"
_AT = f"SELECT project, kind, name, version, note, saved_by, at, deleted, content {_VERSION}"
_WON = f"SELECT event_id, saved_by, at, deleted {_VERSION}"
_COUNT = "SELECT uniqExact(name) AS documents FROM documents_rows WHERE project = {project:String} AND kind = {kind:String}"
_SAVES = "SELECT count() AS saves FROM documents_rows WHERE project = {project:String}"

Project = Annotated[str, Path(min_length=1, max_length=128, description="The project that it belongs to.")]
Name = Annotated[str, Path(min_length=1, max_length=MOST_NAME_CHARS, description="The document's name.")]
Replaces = Annotated[int, Query(ge=1, le=MOST_SMALL, description="The version that is deleted; another current one refuses it.")]


def _kind(request: Request) -> DocumentKind:
    """Returns the kind that the address names."""
    return DocumentKind.VIEW if request.scope["route"].path.startswith(f"{router.prefix}/views") else DocumentKind.REPORT


Kind = Annotated[DocumentKind, Depends(_kind)]


class NewVersion(BaseModel):
    """Content of a document, made from the version that it replaces."""

    model_config = ConfigDict(extra="forbid")

    content: Annotated[str, Field(max_length=MOST_CHARS, description="Markdown of a report; JSON of a view")]
    replaces: Annotated[
        int, Field(ge=0, le=MOST_SMALL - 1, description="version that it was made from, 0: there is none; another current one refuses it")
    ] = 0
    note: Annotated[str, Field(max_length=MOST_NOTE_CHARS, description="what changed, for people")] = ""


class SavedVersion(BaseModel):
    """Version that counts, and can be read."""

    project: Annotated[str, Field(description="project that it belongs to")]
    name: Annotated[str, Field(description="name of the document")]
    version: Annotated[int, Field(description="its version: the next save replaces it")]
    event_id: Annotated[str, Field(description="id of the event that records it")]


@router.get("/reports")
@router.get("/views")
async def documents(
    kind: Kind, here: Here, principal: Viewer, project: Text = None, name: Text = None, limit: Limit = 100, cursor: Cursor = None
) -> Json:
    """Reports, or views, without their content; those that were saved last come first."""
    where = Where()
    where.visible(principal)
    for column, value in (("kind", kind.value), ("project", project), ("name", name)):
        where.equal(column, value)
    columns = f"{_LISTED}, content" if kind is DocumentKind.VIEW else _LISTED
    return Json((await page(here.reader, columns, "documents", where, _ORDER, limit, cursor)).answer())


@router.get("/reports/{project}/{name}")
@router.get("/views/{project}/{name}")
async def document(
    kind: Kind,
    project: Project,
    name: Name,
    here: Here,
    principal: Viewer,
    version: Annotated[int | None, Query(ge=1, le=MOST_SMALL, description="An earlier version; default: the newest.")] = None,
) -> Json:
    """One report, or view, with its content; `may_save`: whether the asker may save it."""
    of = _of(kind, project, name, principal)
    found = await here.reader.one(_SHOWN if version is None else _AT, of if version is None else of | {"version": version})
    if found is None:
        raise not_found(f"{kind} {name} of project {project}" + (f" with version {version}" if version else ""))
    return Json(found | {"may_save": principal.writing().sees(project)})


@router.get("/reports/{project}/{name}/history")
@router.get("/views/{project}/{name}/history")
async def history(
    kind: Kind, project: Project, name: Name, here: Here, principal: Viewer, limit: Limit = 100, cursor: Cursor = None
) -> Json:
    """Versions of a report, or view, the newest first; `deleted`: the version is its deletion."""
    where = Where([_ONE], dict(_of(kind, project, name, principal)))
    found = await page(here.reader, "version, note, saved_by, at, deleted", "document_versions", where, _VERSIONS, limit, cursor)
    if not found.rows and cursor is None:
        raise not_found(f"{kind} {name} of project {project}")
    return Json(found.answer())


@router.put("/reports/{project}/{name}")
@router.put("/views/{project}/{name}")
async def save(
    kind: Kind, project: Project, name: Name, body: NewVersion, here: Here, principal: Submitter, request: Request
) -> SavedVersion:
    """Saves a report, or view, as the version after the one that it replaces. 409 where another version is current: read that, merge, and
    save again."""
    if problem := name_problem(name):
        raise ProblemError(422, "Invalid name", f"{name!r} names no {kind}: {problem}")
    of = _to_change(kind, project, name, principal)
    newest = await here.reader.one(_NEWEST, of)
    if newest is None and (await here.reader.rows(_COUNT, of))[0]["documents"] >= MOST_DOCUMENTS:
        raise ProblemError(422, "Limit exceeded", f"project {project} has {MOST_DOCUMENTS} {kind}s, as many as one may have")
    replaces = body.replaces
    if newest is not None and newest["deleted"] and replaces == 0:
        replaces = newest["version"]
    _check(of, newest, replaces)
    if replaces >= MOST_VERSIONS:
        raise ProblemError(
            422, "Limit exceeded", f"{kind} {name} has {replaces} versions, as many as one may have: save it under another name"
        )
    if (await here.reader.rows(_SAVES, {"project": project}))[0]["saves"] >= MOST_SAVES:
        raise ProblemError(
            422, "Limit exceeded", f"project {project} has {MOST_SAVES} versions of reports and views, as many as one may have"
        )
    event = DocumentSaved.model_validate(
        of | {"version": replaces + 1, "content": body.content, "note": body.note, "user": principal.sub[:256], "at_ms": now_ms()}
    )
    return await _published(here, principal, request, event)


@router.delete("/reports/{project}/{name}")
@router.delete("/views/{project}/{name}")
async def delete(
    kind: Kind, project: Project, name: Name, replaces: Replaces, here: Here, principal: Submitter, request: Request
) -> SavedVersion:
    """Deletes a report, or view: a version that says so. What it was before stays in its history."""
    of = _to_change(kind, project, name, principal)
    newest = await here.reader.one(_NEWEST, of)
    if newest is None or newest["deleted"]:
        raise not_found(f"{kind} {name} of project {project}")
    _check(of, newest, replaces)
    fields = {"version": replaces + 1, "deleted": True, "user": principal.sub[:256], "at_ms": now_ms()}
    return await _published(here, principal, request, DocumentSaved.model_validate(of | fields))


def _of(kind: DocumentKind, project: str, name: str, principal: Principal) -> dict[str, Any]:
    if not principal.sees(project):
        raise not_found(f"{kind} {name} of project {project}")
    return {"project": project, "kind": kind.value, "name": name}


def _to_change(kind: DocumentKind, project: str, name: str, principal: Principal) -> dict[str, Any]:
    of = _of(kind, project, name, principal)
    refuse_read_only(project, principal)
    return of


def _check(of: dict[str, Any], newest: Row | None, replaces: int) -> None:
    """Raises ProblemError 409 where another version is current than the one that a save was made from."""
    current = newest["version"] if newest is not None else 0
    if replaces == current:
        return
    if newest is None:
        detail = f"{of['kind']} {of['name']} has no version {replaces}: it does not exist yet. Save it with `replaces` 0"
        raise ProblemError(409, "Conflict", detail, version=0)
    raise conflict(of, newest, current)


def conflict(of: dict[str, Any], other: Row, version: int) -> ProblemError:
    """409: who has saved which version meanwhile, and what to do."""
    by, at = other["saved_by"] or "a user", str(other["at"])
    if other["deleted"]:
        detail = f"{by} deleted {of['kind']} {of['name']} at {at}: save it with `replaces` 0 to have it again"
    else:
        detail = f"{by} saved version {version} of {of['kind']} {of['name']} at {at}: read that one, merge, and save again"
    return ProblemError(409, "Conflict", detail, version=version, saved_by=other["saved_by"], deleted=bool(other["deleted"]))


async def _published(here: Gateway, principal: Principal, request: Request, event: DocumentSaved) -> SavedVersion:
    """Sends a save, and waits until it can be read whether it counts. Raises ProblemError 409, 503."""
    sent = await here.bus.send(TRACKING, event, secrets.token_hex(16))
    here.accepted(request, principal, sent, target=f"{event.kind} {event.name} version {event.version}", project=event.project)
    of = {"project": event.project, "kind": event.kind.value, "name": event.name}
    won = await _winner(here, of | {"version": event.version})
    if won["event_id"] != sent.event_id:
        raise conflict(of, won, event.version)
    return SavedVersion(project=event.project, name=event.name, version=event.version, event_id=sent.event_id)


async def _winner(here: Gateway, version: dict[str, Any]) -> Row:
    """The save of a version that counts, as soon as it can be read. Raises ProblemError 503."""
    deadline, pause = time.monotonic() + here.settings.after_wait_s, FIRST_POLL_S
    while (found := await here.reader.one(_WON, version)) is None:
        if time.monotonic() + pause > deadline:
            raise busy(
                f"version {version['version']} of {version['kind']} {version['name']} is on the bus, but cannot be read yet after "
                f"{here.settings.after_wait_s:g} s: the projector is behind or away. Open it again in a moment; nothing is lost"
            )
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, LONGEST_POLL_S)
    return found
