"""Links to one run's page: made and revoked by those who answer for the run, opened by a browser without an account.

Holds: a link is an event when it is made and when it is revoked; every access by it is audited under its id. A browser takes it out of the
address and gives it here once, for a cookie that no script reads.
Never: keeps links: one that was lost is revoked by its id, and made anew.
"""

from __future__ import annotations

import secrets
import time
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from trainhouse.events import JobId, TokenIssued, TokenRevoked
from trainhouse.events.wire.topics import TOKENS
from trainhouse.gateway.answers import Json
from trainhouse.gateway.auth import run_links, sealed
from trainhouse.gateway.auth.authentication import COOKIE, Submitter, unauthorized
from trainhouse.gateway.auth.roles import Principal, Role
from trainhouse.gateway.context import Gateway, Here, now_ms
from trainhouse.gateway.errors import InvalidTokenError, ProblemError
from trainhouse.gateway.problems import busy
from trainhouse.gateway.requests import refuse_read_only
from trainhouse.gateway.routes.identity import WhoAmI, shown
from trainhouse.gateway.routes.jobs import JobPath, visible_job

router = APIRouter(prefix="/v1", tags=["identity"])

PAGE = "/shared"
DAY_S = 86_400
MOST_DAYS = 365
LinkId = Annotated[str, Path(pattern=r"^link-[0-9a-f]{16}-[0-9a-f]{24}$", description="The link's id.")]
_ISSUED = """
SELECT token_id AS link_id, sub, at, expires_at FROM audit_rows FINAL
WHERE kind = 'issued' AND job_id = {job_id:String} AND expires_at > now64(3) ORDER BY at DESC, link_id LIMIT 1000
"""


class NewLink(BaseModel):
    """Life of a new link."""

    model_config = ConfigDict(extra="forbid")

    days: Annotated[int, Field(ge=1, le=MOST_DAYS, description="days after which it ends by itself")] = 7


class MadeLink(BaseModel):
    """A link, given once."""

    link_id: Annotated[str, Field(description="its id, which revokes it")]
    url: Annotated[str, Field(description="address that opens the run's page; give it only to those who may read the run")]
    expires_s: Annotated[int, Field(description="its end, in seconds since 1970")]


class ShownLink(BaseModel):
    """A link that a browser was given."""

    model_config = ConfigDict(extra="forbid")

    link: Annotated[str, Field(min_length=1, max_length=sealed.MAX_CHARS, description="what follows # in the link's address")]


@router.get("/training-jobs/{job_id}/links")
async def links(job_id: JobPath, here: Here, principal: Submitter) -> Json:
    """Links to a run's page that still count, the newest first; never the links themselves."""
    await _own(here, principal, job_id)
    rows = await here.reader.rows(_ISSUED, {"job_id": job_id})
    return Json({"items": [row for row in rows if row["link_id"] not in here.revocations.ids], "next_cursor": None})


@router.post("/training-jobs/{job_id}/links", status_code=201)
async def make(job_id: JobPath, body: NewLink, here: Here, principal: Submitter, request: Request, response: Response) -> MadeLink:
    """Makes a link that opens this run's page to read, without an account: asked by the run's user, a maintainer of its project, or an
    operator who is a member of it."""
    job = await _own(here, principal, job_id)
    most = here.settings.run_link_days
    if body.days > most:
        why = "makes no links to runs" if not most else f"makes links for at most {most} days"
        raise ProblemError(422, "Limit exceeded", f"days: this gateway {why} (run_link_days of its settings)")
    now_s = int(time.time())
    link = run_links.link_to(principal, job_id, job["project"], now_s + body.days * DAY_S)
    key = here.keys.now().newest
    here.projects.narrowed(run_links.principal_of(link, key))  # its maker is a member: else it would open nothing
    event = TokenIssued(
        token_id=link.link_id,
        sub=principal.sub,
        roles=(Role.VIEWER.name.lower(),),
        projects=(job["project"],),
        at_ms=now_ms(),
        expires_at_ms=link.until_s * 1000,
        by=principal.sub[:128],
        job_id=JobId.parse(job_id),
    )
    sent = await here.bus.send(TOKENS, event, secrets.token_hex(16))
    here.accepted(request, principal, sent, target=f"link {link.link_id} to {job_id}", project=job["project"])
    response.headers["Cache-Control"] = "no-store"
    base = here.settings.url.rstrip("/") or str(request.base_url).rstrip("/")
    return MadeLink(link_id=link.link_id, url=f"{base}{PAGE}#{quote(run_links.text_of(key, link))}", expires_s=link.until_s)


@router.delete("/training-jobs/{job_id}/links/{link_id}", status_code=204)
async def revoke(job_id: JobPath, link_id: LinkId, here: Here, principal: Submitter, request: Request) -> None:
    """Revokes a link: every gateway refuses it within a second, and ends the streams that were opened by it."""
    job = await _own(here, principal, job_id)
    if not run_links.is_of(link_id, job_id):
        raise ProblemError(404, "Not found", f"{link_id} is no link to job {job_id}")
    event = TokenRevoked(token_id=link_id, at_ms=now_ms(), by=principal.sub, reason="the link was revoked")
    sent = await here.bus.send(TOKENS, event, secrets.token_hex(16))
    here.revocations.add(link_id)
    here.hub.wake()
    here.accepted(request, principal, sent, target=f"link {link_id} to {job_id}", project=job["project"])


@router.post("/link-session")
def open_link(body: ShownLink, here: Here, request: Request, response: Response) -> WhoAmI:
    """Takes a link and answers with the cookie of a session that reads one run, and nothing else."""
    now_s = int(time.time())
    try:
        if not here.settings.run_link_days:
            raise InvalidTokenError("this gateway opens no links to runs")
        keys = here.keys.now()
        link = keys.read(lambda key: run_links.read_link(key, body.link, now_s))
        made = run_links.session_of(link, now_s, round(here.settings.session_s))
        principal = run_links.principal_of(made, keys.newest)
        if not (here.revocations.known and here.projects.known):
            raise busy("links cannot be checked yet: it is not known which were revoked; is Kafka up?")
        if over := here.token_over(principal):
            raise InvalidTokenError(over)
        here.projects.narrowed(principal)
        here.audit.ready()
        request.state.principal, request.state.why = principal, f"showed a link to job {link.job_id} that {link.sub} made"[:512]
        cookie = run_links.cookie_of(keys.newest, made)
    except InvalidTokenError as error:
        raise unauthorized(f"{error}; ask for a new link") from error
    response.set_cookie(COOKIE, cookie, path="/", httponly=True, samesite="strict", secure=here.settings.secure)
    return shown(principal)


async def _own(here: Gateway, principal: Principal, job_id: str) -> dict[str, Any]:
    """A job that the principal answers for. Raises ProblemError 403, 404."""
    job = await visible_job(here, principal, job_id)
    refuse_read_only(job["project"], principal)
    if job["user"] != principal.sub and not here.projects.maintains(principal, job["project"]):
        detail = (
            f"links to job {job_id} are made by {job['user']}, whose it is, by a maintainer of project {job['project']}, or an operator"
        )
        raise ProblemError(403, "Forbidden", detail)
    return job
