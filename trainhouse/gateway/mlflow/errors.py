"""Errors as MLflow's clients expect them: an `error_code` of theirs, a message, a status.

Holds: whatever a route raises becomes such an answer, also where another part of the gateway noticed it; the audit
is told of what was refused.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Final

import orjson
import structlog
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from trainhouse.checkpointing.errors import CheckpointError
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.gateway.errors import GatewayError, ProblemError, SqlUnavailableError
from trainhouse.gateway.problems import too_deep

log = structlog.get_logger(__name__)
STATUS: Final = {
    "INVALID_PARAMETER_VALUE": 400,
    "RESOURCE_ALREADY_EXISTS": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "RESOURCE_DOES_NOT_EXIST": 404,
    "ENDPOINT_NOT_FOUND": 404,
    "BAD_REQUEST": 400,
    "DATA_LOSS": 422,  # not 500, which clients ask for again
    "INTERNAL_ERROR": 500,
    "NOT_IMPLEMENTED": 501,
    "REQUEST_LIMIT_EXCEEDED": 429,
    "TEMPORARILY_UNAVAILABLE": 503,
}
_OF_STATUS: Final = {400: "BAD_REQUEST", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "RESOURCE_DOES_NOT_EXIST"}
_MORE: Final = {429: "REQUEST_LIMIT_EXCEEDED", 413: "INVALID_PARAMETER_VALUE", 501: "NOT_IMPLEMENTED", 503: "TEMPORARILY_UNAVAILABLE"}


class MlflowError(GatewayError):
    """An answer that is no success."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def invalid(message: str) -> MlflowError:
    """The request is not as it must be."""
    return MlflowError("INVALID_PARAMETER_VALUE", message)


def missing(what: str) -> MlflowError:
    """One and the same for what does not exist and for what its asker may not see."""
    return MlflowError("RESOURCE_DOES_NOT_EXIST", f"there is no {what} that you may see")


def unsupported(message: str) -> MlflowError:
    """Something of MLflow's that Trainhouse does not have."""
    return MlflowError("NOT_IMPLEMENTED", message)


class MlflowRoute(APIRoute):
    """A route whose every error has MLflow's form."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            try:
                return await handle(request)
            except Exception as raised:
                error = (await too_deep(request) or raised) if isinstance(raised, RecursionError) else raised
                shown = answer(error, request.url.path)
                request.state.refusal = str(getattr(error, "detail", None) or error)
                return shown

        return guarded


def answer(error: Exception, path: str) -> Response:
    """The response of an error; one that nobody foresaw is logged, and says nothing of its inside."""
    match error:
        case MlflowError():
            return _shown(error.code, str(error), STATUS[error.code])
        case ProblemError():
            return _shown(_code(error.status), error.detail, error.status, error.headers)
        case HTTPException():
            return _shown(_code(error.status_code), str(error.detail), error.status_code, dict(error.headers or {}))
        case RequestValidationError():
            found = "; ".join(f"{'.'.join(map(str, e['loc'][1:])) or 'body'}: {e['msg']}" for e in error.errors()[:5])
            return _shown("INVALID_PARAMETER_VALUE", f"the request is not valid: {found}", 400)
        case SqlUnavailableError() | BusUnavailableError() | CheckpointError():
            return _shown("TEMPORARILY_UNAVAILABLE", str(error), 503, {"Retry-After": "1"})
    log.error("a request of MLflow's API failed", path=path, exc_info=error)
    return _shown("INTERNAL_ERROR", "this is a bug of Trainhouse; the gateway's log tells where", 500)


def _code(status: int) -> str:
    return _OF_STATUS.get(status) or _MORE.get(status) or ("INTERNAL_ERROR" if status >= 500 else "BAD_REQUEST")


def _shown(code: str, message: str, status: int, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps({"error_code": code, "message": message}), status, headers, "application/json")
