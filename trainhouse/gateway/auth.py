"""Who sends a request: a bearer token, or the pages' cookie.

Holds: without a sound token there is no principal; a cookie alone writes nothing: a page proves by a header of its own that no
other site sent the request.
"""

from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import APIKeyCookie, HTTPBearer

from trainhouse.gateway import tokens
from trainhouse.gateway.context import gateway_of
from trainhouse.gateway.errors import BadToken, Problem
from trainhouse.gateway.limiting import count
from trainhouse.gateway.problems import busy
from trainhouse.gateway.roles import Principal, Role

COOKIE = "trainhouse_session"
# Browsers let no other site send it without asking this one first, and nobody else gets an answer to that.
PAGE_HEADER = "X-Trainhouse-Page"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

_bearer = HTTPBearer(auto_error=False, description="A token of `trainhouse token create` or `trainhouse env`.", scheme_name="token")
_cookie = APIKeyCookie(name=COOKIE, auto_error=False, description="Made by POST /v1/session, for the pages.", scheme_name="session")


def principal_of(request: Request) -> Principal:
    """The principal of a request. Raises Problem 401 or 403."""
    gateway = gateway_of(request)
    token = _token(request)
    try:
        found = tokens.read(gateway.key, token)
    except BadToken as error:
        raise unauthorized(str(error)) from error
    if not gateway.revocations.known:
        raise busy("tokens cannot be checked yet: it is not known which were revoked; is Kafka up?")
    if found.token_id in gateway.revocations.ids:
        raise unauthorized(f"the token was revoked; {tokens.ADVICE}")
    request.state.principal = found
    if not gateway.projects.known:
        raise busy("rights cannot be checked yet: it is not known what projects there are; is Kafka up?")
    found = gateway.projects.narrowed(found)
    request.state.principal = found
    count(gateway.limits, request, found)
    return found


def _token(request: Request) -> str:
    header = request.headers.get("authorization", "")
    scheme, _, token = header.partition(" ")
    if header:
        if scheme.lower() != "bearer" or not token.strip():
            raise unauthorized("Authorization is not of the form `Bearer TOKEN`")
        return token.strip()
    cookie = request.cookies.get(COOKIE, "")
    if not cookie:
        raise unauthorized(f"a token is needed: send `Authorization: Bearer TOKEN`; {tokens.ADVICE}")
    if request.method not in SAFE_METHODS and PAGE_HEADER not in request.headers:
        raise Problem(403, "Forbidden", f"a session's cookie writes only together with the header {PAGE_HEADER}")
    return cookie


def unauthorized(detail: str) -> Problem:
    """401 with what to do."""
    return Problem(401, "Unauthorized", detail, headers={"WWW-Authenticate": 'Bearer realm="trainhouse"'})


def _declared(request: Request, _b: Annotated[object, Security(_bearer)], _c: Annotated[object, Security(_cookie)]) -> Principal:
    return principal_of(request)


def needs(role: Role) -> Callable[..., Principal]:
    """A dependency: the principal, if it has this role at least; Problem 403 otherwise."""

    def check(principal: Annotated[Principal, Depends(_declared)]) -> Principal:
        if not principal.may(role):
            held = ", ".join(r.name.lower() for r in principal.roles)
            raise Problem(403, "Forbidden", f"this needs the role {role.name.lower()}; your token has {held}")
        return principal

    return check


Viewer = Annotated[Principal, Depends(needs(Role.VIEWER))]
Submitter = Annotated[Principal, Depends(needs(Role.SUBMITTER))]
Operator = Annotated[Principal, Depends(needs(Role.OPERATOR))]
Admin = Annotated[Principal, Depends(needs(Role.ADMIN))]
