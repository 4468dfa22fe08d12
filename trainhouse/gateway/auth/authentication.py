"""Authentication of requests: a bearer token, or the pages' session in its cookie.

Holds: without a sound token or session there is no principal, and neither passes for the other; a cookie alone writes nothing: a page
proves by a header of its own that no other site sent the request. A session that came by a link to one run reads that run alone, checked
here, before any route.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import APIKeyCookie, HTTPBearer

from trainhouse.gateway.auth import run_links, sessions, tokens
from trainhouse.gateway.auth.keyring import Keys
from trainhouse.gateway.auth.roles import Principal, Role
from trainhouse.gateway.context import gateway_of
from trainhouse.gateway.errors import InvalidTokenError, ProblemError
from trainhouse.gateway.limits.rate_limits import count
from trainhouse.gateway.problems import busy

COOKIE = "trainhouse_session"
# Browsers let no other site send it without asking this one first, and nobody else gets an answer to that.
PAGE_HEADER = "X-Trainhouse-Page"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

_bearer = HTTPBearer(auto_error=False, description="A token of `trainhouse token create` or `trainhouse env`.", scheme_name="token")
_cookie = APIKeyCookie(
    name=COOKIE, auto_error=False, description="Made by POST /v1/session, or /login, for the pages.", scheme_name="session"
)


def principal_of(request: Request) -> Principal:
    """The principal of a request. Raises ProblemError 401 or 403."""
    gateway = gateway_of(request)
    found = _shown(request, gateway.keys.now())
    if not gateway.revocations.known:
        raise busy("tokens cannot be checked yet: it is not known which were revoked; is Kafka up?")
    if over := gateway.token_over(found):
        raise unauthorized(f"{over}; {tokens.ADVICE}")
    request.state.principal = found
    if not gateway.projects.known:
        raise busy("rights cannot be checked yet: it is not known what projects there are; is Kafka up?")
    found = gateway.projects.narrowed(found)
    request.state.principal = found
    _refuse_elsewhere(request, found)
    count(gateway.limits, request, found)
    return found


def _refuse_elsewhere(request: Request, principal: Principal) -> None:
    """Raises ProblemError 403 where a link to one run does not open what is asked for."""
    path = getattr(request.scope.get("route"), "path", "")
    if not run_links.opens(principal, request.method, path, request.path_params.get("job_id")):
        raise ProblemError(
            403, "Forbidden", f"this link opens the page of run {principal.run} to read, and nothing else: sign in with a token"
        )


def _shown(request: Request, keys: Keys) -> Principal:
    """Returns the principal that the request itself names. Raises ProblemError."""
    header = request.headers.get("authorization", "")
    try:
        if header:
            token = _bearer_of(header)
            return keys.read(lambda key: tokens.read(key, token))
        if not request.cookies.get(COOKIE, ""):
            raise unauthorized(f"a token is needed: send `Authorization: Bearer TOKEN`; {tokens.ADVICE}")
        return cookie_session(request)
    except InvalidTokenError as error:
        raise unauthorized(str(error)) from error


def cookie_session(request: Request) -> Principal:
    """The session of the pages' cookie, as it was made. Raises InvalidTokenError, or ProblemError 403 where another site may have sent a
    write."""
    if request.method not in SAFE_METHODS and PAGE_HEADER not in request.headers:
        raise ProblemError(403, "Forbidden", f"a session's cookie writes only together with the header {PAGE_HEADER}")
    cookie, now_s = request.cookies.get(COOKIE, ""), int(time.time())
    read = run_links.read_session if cookie.startswith(run_links.MARK) else sessions.read
    return gateway_of(request).keys.now().read(lambda key: read(key, cookie, now_s))


def _bearer_of(header: str) -> str:
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise unauthorized("Authorization is not of the form `Bearer TOKEN`")
    return token.strip()


def unauthorized(detail: str) -> ProblemError:
    """401 with what to do."""
    return ProblemError(401, "Unauthorized", detail, headers={"WWW-Authenticate": 'Bearer realm="trainhouse"'})


async def _declared(request: Request, _b: Annotated[object, Security(_bearer)], _c: Annotated[object, Security(_cookie)]) -> Principal:
    return principal_of(request)


def needs(role: Role, or_approves: bool = False) -> Callable[..., Awaitable[Principal]]:
    """A dependency: the principal, if it has this role at least, or approves models where that is enough; ProblemError 403 otherwise. The
    audit is told, or told of, what it lets in."""

    async def check(request: Request, principal: Annotated[Principal, Depends(_declared)]) -> Principal:
        await gateway_of(request).audit.name(request)
        may = principal.approves if role is Role.APPROVER else principal.may(role) or (or_approves and principal.approves)
        if not may:
            held = ", ".join(r.name.lower() for r in principal.roles)
            raise ProblemError(403, "Forbidden", f"this needs the role {role.name.lower()}; your token has {held}")
        await gateway_of(request).audit.admit(request, principal, why(role, principal))
        return principal

    return check


def why(role: Role, principal: Principal) -> str:
    """Basis on which a principal was admitted, for the audit."""
    held = ", ".join(r.name.lower() for r in principal.roles)
    shown = "a session" if principal.session_id else "a token"
    if principal.run:
        shown = f"a link to job {principal.run} made by {principal.sub},"
    return f"needs {role.name.lower()}; {shown} with {held} in {', '.join(principal.projects)}"[:512]


# Who asks, whatever role that takes: for what a route does besides its own.
Anybody = Annotated[Principal, Depends(_declared)]
Viewer = Annotated[Principal, Depends(needs(Role.VIEWER))]
Submitter = Annotated[Principal, Depends(needs(Role.SUBMITTER))]
Operator = Annotated[Principal, Depends(needs(Role.OPERATOR))]
Approver = Annotated[Principal, Depends(needs(Role.APPROVER))]
Admin = Annotated[Principal, Depends(needs(Role.ADMIN))]
# Of an approver the route itself says what is let in.
SubmitterOrApprover = Annotated[Principal, Depends(needs(Role.SUBMITTER, or_approves=True))]
