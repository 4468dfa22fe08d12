"""The audit: who asked what, what was let in and what refused, which tokens were made and revoked."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Query

from trainhouse.gateway.answers import Json
from trainhouse.gateway.auth.authentication import Admin
from trainhouse.gateway.context import Here
from trainhouse.gateway.errors import ProblemError
from trainhouse.gateway.queries.listing import Cursor, Limit, Order, millis, page
from trainhouse.gateway.queries.where_clauses import Where
from trainhouse.gateway.routes.jobs import Text

router = APIRouter(prefix="/v1/audit", tags=["identity"])

_COLUMNS = (
    "at, event_id, kind, status, count, since, action, target, project, sub, token_id, address, reason, done_by, topic, passed_on_id, "
    "roles, projects, expires_at, access, access_id, session_id, rows, bytes, took_ms, text, text_sha256, outcome"
)


Since = Annotated[int | None, Query(ge=0, le=4_000_000_000_000, description="Only from then on: milliseconds since 1970.")]


class AuditKind(StrEnum):
    """Kind of an audit row."""

    REFUSED = "refused"
    GRANTED = "granted"
    ENDED = "ended"
    LOST = "lost"
    ACCEPTED = "accepted"
    ISSUED = "issued"
    REVOKED = "revoked"


@router.get("")
async def audit(
    here: Here,
    principal: Admin,
    kind: AuditKind | None = None,
    sub: Text = None,
    since: Since = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Json:
    """The newest first. For an admin of all projects."""
    if not principal.everywhere:
        raise ProblemError(403, "Forbidden", "the audit tells of all projects, so it needs a token of all of them (projects: *)")
    where = Where()
    where.equal("kind", kind.value if kind else None)
    where.equal("sub", sub)
    if since is not None:
        where.add("at >= fromUnixTimestamp64Milli({since_ms:Int64}, 'UTC')", since_ms=since)
    order = Order((millis("at"), ("event_id", "String")), descending=True)
    return Json((await page(here.reader, _COLUMNS, "audit", where, order, limit, cursor)).answer())
