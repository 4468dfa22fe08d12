"""Errors of the gateway. A small tree; `problems` makes answers of it.

Holds: a message names the thing, the cause and the way out, and nothing that its reader may not know.
"""

from starlette.exceptions import HTTPException


class GatewayError(Exception):
    """Base of all errors of the gateway."""


class KeyUnusableError(GatewayError):
    """Tokens can be neither made nor read: there is no sound key."""


class InvalidTokenError(GatewayError):
    """A token is missing, damaged, forged, expired or revoked."""


class UnknownKeyError(InvalidTokenError):
    """None of the keys that count made it."""


class SqlUnavailableError(GatewayError):
    """The projections do not answer; retryable."""


class SqlRefusedError(GatewayError):
    """ClickHouse refused a query; `code` is its own number."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class ProblemError(GatewayError, HTTPException):
    """An answer that is no success, as RFC 9457 has it. `more` are members beside the standard ones.

    One of the framework's own, so that it passes through whatever part of the framework it was raised in.
    """

    def __init__(self, status: int, title: str, detail: str, *, headers: dict[str, str] | None = None, **more: object) -> None:
        HTTPException.__init__(self, status, detail, headers or {})
        self.headers: dict[str, str] = headers or {}
        self.status = status
        self.title = title
        self.more = more
