"""Grants of datasets to other projects: which there are, and changes of them by who looks after the dataset's project.

Holds: a dataset of a project that its asker may not see does not exist for it, but for grants that its own project has; what came of a
change is asked by the id of its request.
"""

from __future__ import annotations

import secrets
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field

from trainhouse.events import GrantDataset, RevokeDatasetGrant
from trainhouse.events.model.dataset_grant import GrantKey
from trainhouse.events.model.labels import Label
from trainhouse.events.wire.topics import JOBS
from trainhouse.gateway.answers import Json
from trainhouse.gateway.auth.authentication import Submitter, Viewer
from trainhouse.gateway.auth.roles import Principal
from trainhouse.gateway.context import Gateway, Here
from trainhouse.gateway.datasets.drift_routes import Reference
from trainhouse.gateway.datasets.version_routes import NamePath
from trainhouse.gateway.errors import ProblemError
from trainhouse.gateway.problems import not_found
from trainhouse.gateway.queries import read_your_writes as after
from trainhouse.gateway.queries.listing import Cursor, Limit, Order, millis, page
from trainhouse.gateway.queries.refusals import refusal, set_aside
from trainhouse.gateway.queries.where_clauses import Where

router = APIRouter(prefix="/v1/datasets", tags=["datasets"])

RequestPath = Annotated[str, Path(description="`event_id` of the answer to the change.", min_length=1, max_length=128)]
ProjectQuery = Annotated[Label, Query(description="The other project.")]
PurposeQuery = Annotated[Label, Query(description="What its jobs may use it for.")]
ReasonQuery = Annotated[str, Query(max_length=1024, description="Why; kept with it.")]
_COLUMNS = (
    "dataset, version, sha256, owner, project, purpose, granted_by, reason, granted_at, revoked, revoked_by, revoked_reason, revoked_at"
)
_ORDER = Order((millis("granted_at"), ("sha256", "String"), ("project", "String"), ("purpose", "String")), descending=True)
_CHANGE = """
SELECT json, type FROM events_rows FINAL
WHERE job_id = '' AND event_id = {event_id:String} AND type IN ({grant:String}, {revoke:String}) AND subject = {dataset:String} LIMIT 1
"""
_HOLDS = """
SELECT 1 AS found FROM dataset_grants
WHERE dataset = {dataset:String} AND sha256 = {sha256:String} AND project = {project:String} AND purpose = {purpose:String} AND NOT revoked
"""


class Grant(BaseModel):
    """Grant of a version, or of all versions, to another project."""

    version: Annotated[
        str | None, Field(description="`sha256:…`, or a tag such as 1.2.0; absent: all versions, later ones too.", max_length=128)
    ] = None
    project: Annotated[Label, Field(description="project whose jobs may use it")]
    purpose: Annotated[Label, Field(description="what they may use it for")]
    reason: Annotated[str, Field(max_length=1024, description="why; kept with it")] = ""


class AskedGrant(BaseModel):
    """A change that Kafka holds. GET `…/grants/changes/{event_id}` with `?after=` to see what became of it."""

    dataset: Annotated[str, Field(description="name of the dataset")]
    event_id: str
    after: str


class GrantOutcome(BaseModel):
    """Outcome of a change. Where `refused` is null and `holds` is as before, it was not handled yet."""

    dataset: Annotated[str, Field(description="name of the dataset")]
    event_id: str
    refused: str | None
    holds: Annotated[bool, Field(description="whether the grant holds now")]


@router.get("/{name}/grants", dependencies=[after.After])
async def grants(
    name: NamePath,
    here: Here,
    principal: Viewer,
    revoked: Annotated[bool | None, Query(description="Only grants that were revoked, or only others.")] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Json:
    """Grants of a dataset to other projects, the newest first; to who sees one of those alone, its own."""
    owner = await _owner(here, name)
    where = Where()
    where.equal("dataset", name)
    where.equal("revoked", None if revoked is None else int(revoked), "UInt8")
    if owner is None or not principal.sees(owner):
        where.visible(principal)
    found = await page(here.reader, _COLUMNS, "dataset_grants", where, _ORDER, limit, cursor)
    if not found.rows and cursor is None and (owner is None or not principal.sees(owner)):
        raise not_found(f"dataset {name}")
    return Json(found.answer())


@router.post("/{name}/grants", status_code=202)
async def grant(name: NamePath, body: Grant, here: Here, principal: Submitter, request: Request) -> AskedGrant:
    """Asks that jobs of another project may use a dataset. For maintainers of the dataset's project, and operators."""
    owner = await _maintained(here, principal, name)
    sha256 = await _sha256(here, name, body.version)
    about = {"dataset": name, "sha256": sha256, "project": body.project, "purpose": body.purpose, "reason": body.reason}
    return await _ask(here, principal, request, owner, GrantDataset.model_validate(about | {"user": principal.sub}))


@router.delete("/{name}/grants", status_code=202)
async def revoke(
    name: NamePath,
    project: ProjectQuery,
    purpose: PurposeQuery,
    here: Here,
    principal: Submitter,
    request: Request,
    version: Reference = None,
    reason: ReasonQuery = "",
) -> AskedGrant:
    """Asks that a grant ends; without `version`, that of all versions. For maintainers of the dataset's project, and operators."""
    owner = await _maintained(here, principal, name)
    sha256 = await _sha256(here, name, version)
    about = {"dataset": name, "sha256": sha256, "project": project, "purpose": purpose, "reason": reason, "user": principal.sub}
    return await _ask(here, principal, request, owner, RevokeDatasetGrant.model_validate(about))


@router.get("/{name}/grants/changes/{event_id}", dependencies=[after.After])
async def change(name: NamePath, event_id: RequestPath, here: Here, principal: Viewer) -> GrantOutcome:
    """Outcome of a change that was asked for."""
    kinds = {"grant": GrantDataset.event_type, "revoke": RevokeDatasetGrant.event_type}
    found = await here.reader.one(_CHANGE, {"event_id": event_id, "dataset": name} | kinds)
    owner = await _owner(here, name)
    if found is None or owner is None or not principal.sees(owner):
        raise not_found(f"change {event_id} of grants of dataset {name}")
    kind = GrantDataset if found["type"] == GrantDataset.event_type else RevokeDatasetGrant
    key = GrantKey.of(kind.model_validate_json(found["json"]))
    named = {"dataset": key.dataset, "sha256": key.sha256, "project": key.project, "purpose": key.purpose}
    refused = await refusal(here.reader, event_id) or await set_aside(here.reader, event_id)
    return GrantOutcome(dataset=name, event_id=event_id, refused=refused, holds=await here.reader.one(_HOLDS, named) is not None)


async def _versions(here: Gateway, name: str) -> list[dict[str, Any]]:
    where = Where()
    where.equal("dataset", name)
    sql = f"SELECT project, sha256, tags FROM training_datasets WHERE {where.text} ORDER BY published_at"
    return await here.reader.rows(sql, where.values)


async def _owner(here: Gateway, name: str) -> str | None:
    """The project that a dataset belongs to; None: there is no such dataset."""
    found = await _versions(here, name)
    return str(found[0]["project"]) if found else None


async def _maintained(here: Gateway, principal: Principal, name: str) -> str:
    """The project of a dataset that somebody looks after. Raises ProblemError 404 or 403."""
    owner = await _owner(here, name)
    if owner is None or not principal.sees(owner):
        raise not_found(f"dataset {name}")
    if not here.projects.maintains(principal, owner):
        raise ProblemError(
            403, "Forbidden", f"{principal.sub} does not look after project {owner}: ask one of its maintainers, or an operator"
        )
    return owner


async def _sha256(here: Gateway, name: str, reference: str | None) -> str | None:
    """The hash of the version that a hash or tag names. Raises ProblemError 404."""
    if reference is None:
        return None
    for row in await _versions(here, name):
        if reference == f"sha256:{row['sha256']}" or reference in row["tags"]:
            return str(row["sha256"])
    raise not_found(f"version {name}@{reference}")


async def _ask(here: Gateway, principal: Principal, request: Request, owner: str, event: GrantDataset | RevokeDatasetGrant) -> AskedGrant:
    event_id = secrets.token_hex(16)
    sent = await here.bus.send(JOBS, event, event_id)
    here.accepted(request, principal, sent, target=f"{GrantKey.of(event).reference} {event.project} {event.purpose}"[:256], project=owner)
    written = after.Written(job_id="", event_id=event_id, partition=sent.partition, offset=sent.offset)
    return AskedGrant(dataset=event.dataset, event_id=event_id, after=after.token_of(written, here.keys.now().newest))
