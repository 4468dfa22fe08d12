"""Links to one run's page: what a link holds, the session that it becomes, and the routes that this opens.

Holds: pure. A link is no token: only the session of it is let in, to read, and to the routes of RUN_ROUTES with its own job's id; every
other route, those to come included, is closed to it. It ends by itself, with the token or session that made it, with a revocation of it or
of the token, with the key, and with the rights of its maker in the project.
Never: holds the token; a version of the program that knows no links takes neither the link nor its session for anything.
"""

from __future__ import annotations

import hashlib
import secrets

from trainhouse.gateway.auth import sealed
from trainhouse.gateway.auth.keyring import id_of
from trainhouse.gateway.auth.roles import Principal, Role
from trainhouse.gateway.auth.sessions import MAX_COOKIE_CHARS
from trainhouse.gateway.errors import InvalidTokenError

LINK = "run link"
SESSION = "run session"
MARK = "run."
"""Begins the cookie's value of a session that came by a link."""
_JOB = "/v1/training-jobs/{job_id}"
RUN_ROUTES = frozenset(
    {_JOB}
    | {
        f"{_JOB}/{part}"
        for part in (
            *("stream", "curves", "metrics", "points", "step-heatmap", "logs", "ranks", "attempts", "timeline", "gpu-seconds"),
            *("checkpoints", "checkpoint-tags", "config", "artifacts"),
            *("media", "media/items", "media/histograms", "media/table", "media/text", "media/content"),
        )
    }
)
"""Routes that a link opens, to read, where they are about its job. Left out is what names other jobs, or whole events."""
OWN_ROUTES = frozenset({"/v1/whoami"})


class RunLink(sealed.Sealed):
    """A link to one run's page."""

    link_id: str
    job_id: str
    project: str
    # Who made it, with which token, signed by which key.
    sub: str
    token_id: str
    key_id: str


class RunSession(RunLink):
    """A session of a browser that opened a link."""

    session_id: str


def new_link_id(job_id: str) -> str:
    """A fresh id of a link to a job; the job can be told from it by `is_of`."""
    return f"link-{_of(job_id)}-{secrets.token_hex(12)}"


def is_of(link_id: str, job_id: str) -> bool:
    """Whether an id is that of a link to a job."""
    return link_id.startswith(f"link-{_of(job_id)}-")


def link_to(principal: Principal, job_id: str, project: str, until_s: int) -> RunLink:
    """A new link of a token's holder; it ends with the token or session that made it, or before."""
    return RunLink(
        until_s=until_s if principal.expires_s is None else min(until_s, principal.expires_s),
        link_id=new_link_id(job_id),
        job_id=job_id,
        project=project,
        sub=principal.sub,
        token_id=principal.token_id,
        key_id=principal.key_id,
    )


def text_of(key: bytes, link: RunLink) -> str:
    """The link as text, for what follows "#" in an address."""
    return sealed.seal(key, LINK, link)


def read_link(key: bytes, text: str, now_s: int) -> RunLink:
    """Reads a link. Raises InvalidTokenError, UnknownKeyError where another key made it."""
    return sealed.unseal(key, LINK, text, RunLink, now_s)


def session_of(link: RunLink, now_s: int, lasts_s: int) -> RunSession:
    """A new session of a link; it ends with the link, or before."""
    fields = link.model_dump() | {"until_s": min(link.until_s, now_s + lasts_s), "session_id": f"session-{secrets.token_hex(12)}"}
    return RunSession.model_validate(fields)


def cookie_of(key: bytes, session: RunSession) -> str:
    """The cookie's value. Raises InvalidTokenError where a browser has no room for it."""
    made = MARK + sealed.seal(key, SESSION, session)
    if len(made) > MAX_COOKIE_CHARS:
        raise InvalidTokenError("the link is longer than a browser's cookie")
    return made


def read_session(key: bytes, cookie: str, now_s: int) -> Principal:
    """Returns the principal of a link's session. Raises InvalidTokenError, UnknownKeyError where another key made it."""
    return principal_of(sealed.unseal(key, SESSION, cookie.removeprefix(MARK), RunSession, now_s), key)


def principal_of(link: RunLink, key: bytes) -> Principal:
    """The principal that a link, or its session, speaks for: its maker, reading one run."""
    session_id = link.session_id if isinstance(link, RunSession) else ""
    return Principal(
        link.sub,
        (Role.VIEWER,),
        (link.project,),
        link.link_id,
        link.until_s,
        session_id,
        key_id=link.key_id or id_of(key),
        run=link.job_id,
        made_by=link.token_id,
    )


def opens(principal: Principal, method: str, path: str, job_id: str | None) -> bool:
    """Returns whether a principal's link, if it came by one, opens a route. `path`: the route's pattern; `job_id`: that of its address."""
    if not principal.run:
        return True
    if method not in ("GET", "HEAD"):
        return False
    return path in OWN_ROUTES or (path in RUN_ROUTES and job_id == principal.run)


def _of(job_id: str) -> str:
    return hashlib.sha256(b"trainhouse run link\0" + job_id.encode()).hexdigest()[:16]
