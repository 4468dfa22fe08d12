"""Identity of the caller; sessions for the pages, and the codes that make one.

Holds: a session is made of a token that its holder types, or of a code that `trainhouse open` asked for with it; signing out ends it at
every gateway.
Never: gives a token back, or takes one in an address.
"""

from __future__ import annotations

import html
import re
import secrets
import time
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, Field

from trainhouse.events.model.audit import TokenRevoked
from trainhouse.events.wire.topics import TOKENS
from trainhouse.gateway.auth import login_codes, sealed, sessions, tokens
from trainhouse.gateway.auth.authentication import COOKIE, Viewer, cookie_session, unauthorized
from trainhouse.gateway.auth.roles import Principal
from trainhouse.gateway.context import Gateway, Here, address_of, now_ms
from trainhouse.gateway.errors import InvalidTokenError, ProblemError
from trainhouse.gateway.problems import busy

router = APIRouter(prefix="/v1", tags=["identity"])
pages = APIRouter(include_in_schema=False)

LOGIN = "/login"
_PAGE = re.compile(r"/(?:[A-Za-z0-9._~%-]+(?:/[A-Za-z0-9._~%-]+)*)?")
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


class WhoAmI(BaseModel):
    """Claims of the caller's token."""

    sub: str
    roles: list[str]
    projects: list[str]
    expires_s: int | None = Field(description="seconds since 1970; null: the token does not expire by itself")
    run: str | None = Field(None, description="only job that may be read, of a session that came by a link to it")


class SessionRequest(BaseModel):
    """A token to make the pages' session of."""

    token: Annotated[str, Field(min_length=1, max_length=tokens.MAX_TOKEN_CHARS)]


class Code(BaseModel):
    """A code for a browser on the machine that asked: `/login?code=` takes it once."""

    code: str
    expires_s: int = Field(description="seconds since 1970")


@router.get("/whoami")
def whoami(principal: Viewer) -> WhoAmI:
    """Identity of the caller."""
    return shown(principal)


@router.post("/session")
def session(body: SessionRequest, here: Here, request: Request, response: Response) -> WhoAmI:
    """Takes a token and answers with the pages' cookie, which no script reads and no other site sends."""
    try:
        principal = here.keys.now().read(lambda key: tokens.read(key, body.token))
        if over := here.token_over(principal):
            raise InvalidTokenError(over)
        if not here.revocations.known:
            raise busy("tokens cannot be checked yet: it is not known which were revoked; is Kafka up?")
        _admitted(here, request, principal, "showed the token")
        _enter(here, response, sessions.session_of(principal, int(time.time()), round(here.settings.session_s)))
    except InvalidTokenError as error:
        raise unauthorized(str(error)) from error
    return shown(principal)


@router.delete("/session", status_code=204)
async def end_session(request: Request, here: Here, response: Response) -> None:
    """Ends the session of the pages' cookie at every gateway, and forgets the cookie.

    Also where its holder has asked too often or has lost every right: a copy of the cookie must end in any case.
    """
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    try:
        principal = cookie_session(request)
    except InvalidTokenError:
        return  # there is none that counts
    request.state.principal = principal
    here.revocations.add(principal.session_id)
    here.hub.wake()
    event = TokenRevoked(token_id=principal.session_id, at_ms=now_ms(), by=principal.sub, reason="signed out")
    await here.bus.send(TOKENS, event, secrets.token_hex(16))


@router.post("/login-codes", status_code=201)
def login_code(here: Here, principal: Viewer, request: Request, response: Response) -> Code:
    """Makes a code that signs in one browser on the machine that asks, once, within a minute. Needs a token, not a session."""
    if principal.session_id:
        raise ProblemError(403, "Forbidden", "a session makes no code for another one: ask with the token")
    now_s, lasts_s = int(time.time()), round(here.settings.login_code_s)
    made = sessions.session_of(principal, now_s, round(here.settings.session_s))
    response.headers["Cache-Control"] = "no-store"
    return Code(code=login_codes.issue(here.keys.now().newest, made, address_of(request), now_s, lasts_s), expires_s=now_s + lasts_s)


@pages.get(LOGIN)
async def login(
    here: Here, request: Request, code: Annotated[str, Query(max_length=sealed.MAX_CHARS)], to: Annotated[str, Query(max_length=512)] = "/"
) -> Response:
    """Takes a code, once; the browser goes on to a page with the session's cookie.

    The page is opened by a document of ours, not by a redirect: a browser that was sent here by a file, or by another program, keeps a
    cookie of SameSite=Strict back from redirects.
    """
    if not here.revocations.known:
        raise busy("codes cannot be checked yet: it is not known which were used; is Kafka up?")
    if _PAGE.fullmatch(to) is None:
        raise ProblemError(400, "Bad request", "`to` is no page of this gateway")
    try:
        address, now_s = address_of(request), int(time.time())
        found = here.keys.now().read(lambda key: login_codes.read(key, code, address, now_s))
        principal = sessions.principal_of(found.session)
        _admitted(here, request, principal, f"showed the code {found.code_id}")
        if over := here.token_over(principal):
            raise InvalidTokenError(over)
        await login_codes.use(here, found)
        response = HTMLResponse(_onward(to), headers=_HEADERS)
        _enter(here, response, found.session)
    except InvalidTokenError as error:
        raise unauthorized(f"{error}; run `trainhouse open` again") from error
    return response


def _admitted(here: Gateway, request: Request, principal: Principal, why: str) -> None:
    here.audit.ready()
    request.state.principal, request.state.why = principal, why


def _enter(here: Gateway, response: Response, made: sessions.Session) -> None:
    cookie = sessions.cookie_of(here.keys.now().newest, made)
    response.set_cookie(COOKIE, cookie, path="/", httponly=True, samesite="strict", secure=here.settings.secure)


def _onward(to: str) -> str:
    place = html.escape(to, quote=True)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Trainhouse</title>'
        f'<meta http-equiv="refresh" content="0;url={place}"><a href="{place}">Go on</a></html>'
    )


def shown(principal: Principal) -> WhoAmI:
    """As an answer."""
    return WhoAmI(
        sub=principal.sub,
        roles=[role.name.lower() for role in principal.roles],
        projects=list(principal.projects),
        expires_s=principal.expires_s,
        run=principal.run or None,
    )
