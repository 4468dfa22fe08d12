"""Every error as `application/problem+json` (RFC 9457).

Holds: each answer that is no success has this form, whoever noticed the problem; a real fault says nothing of its inside.
"""

from __future__ import annotations

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.wire.codec import MAX_DEPTH, is_deep
from trainhouse.gateway.answers import Json
from trainhouse.gateway.errors import ProblemError, SqlRefusedError, SqlUnavailableError

log = structlog.get_logger(__name__)
MEDIA_TYPE = "application/problem+json"
RETRY_S = "1"
TITLES = {400: "Bad request", 404: "Not found", 405: "Method not allowed", 406: "Not acceptable", 413: "Too large"}
"""Of errors that the framework itself finds."""
FORMS = ("in whole", "in few words")
"""Names of forms of one body, which the framework puts into the place of an error; no part of the body has them."""


def answer(problem: ProblemError, instance: str = "") -> Response:
    """The response of a problem."""
    slug = problem.title.lower().replace(" ", "-")
    body = {"type": f"urn:trainhouse:problem:{slug}", "title": problem.title, "status": problem.status, "detail": problem.detail}
    if instance:
        body["instance"] = instance
    return Json(body | problem.more, problem.status, dict(problem.headers or {}), MEDIA_TYPE)


def not_found(what: str) -> ProblemError:
    """One and the same for what does not exist and for what its asker may not see."""
    return ProblemError(404, "Not found", f"there is no {what} that you may see")


def busy(detail: str) -> ProblemError:
    """Something behind the gateway is away or behind: the same request will do in a moment."""
    return ProblemError(503, "Not available", detail, headers={"Retry-After": RETRY_S})


async def too_deep(request: Request) -> ProblemError | None:
    """Returns the problem of a body that is nested too deep, from a RecursionError; None where it is a fault of Trainhouse."""
    try:
        body = await request.json()
    except (ValueError, RecursionError):
        return None  # the framework refuses it
    if not is_deep(body):
        return None
    return ProblemError(422, "Invalid request", f"body: it is nested more than {MAX_DEPTH} levels deep; send a flatter one")


def register(app: FastAPI) -> None:
    """Makes the app answer so."""
    app.add_exception_handler(ProblemError, _problem)
    app.add_exception_handler(HTTPException, _framework)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(SqlUnavailableError, _unavailable)
    app.add_exception_handler(BusUnavailableError, _unavailable)
    app.add_exception_handler(SqlRefusedError, _fault)
    app.add_exception_handler(RecursionError, _too_deep)
    app.add_exception_handler(Exception, _fault)


def _response(request: Request, problem: ProblemError) -> Response:
    """The response of a problem, whose reason the audit gets with it."""
    request.state.refusal = problem.detail
    return answer(problem, request.url.path)


def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, ProblemError)
    return _response(request, error)


def _framework(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    title = TITLES.get(error.status_code, "Refused")
    return _response(request, ProblemError(error.status_code, title, str(error.detail), headers=dict(error.headers or {})))


def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = [{"where": ".".join(str(part) for part in e["loc"] if part not in FORMS), "what": e["msg"]} for e in error.errors()][:20]
    first = found[0] if found else {"where": "request", "what": "is invalid"}
    return _response(request, ProblemError(422, "Invalid request", f"{first['where']}: {first['what']}", errors=found))


async def _too_deep(request: Request, error: Exception) -> Response:
    problem = await too_deep(request)
    return _fault(request, error) if problem is None else _response(request, problem)


def _unavailable(request: Request, error: Exception) -> Response:
    return _response(request, busy(str(error)))


def _fault(request: Request, error: Exception) -> Response:
    log.error("a request failed", path=request.url.path, method=request.method, exc_info=error)
    return answer(ProblemError(500, "A fault of Trainhouse", "this is a bug; the gateway's log tells where"), request.url.path)
