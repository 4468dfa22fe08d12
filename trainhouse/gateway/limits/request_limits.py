"""Limits of a request before its route: bytes, and the time that its body takes.

Holds: a body that says that it is too large is refused unread; one that turns out to be is refused when it does; a sender that is too slow
is told so. Every answer says to browsers that its type is what it says.
"""

from __future__ import annotations

import asyncio
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainhouse.gateway import problems
from trainhouse.gateway.errors import ProblemError

NOSNIFF = (b"x-content-type-options", b"nosniff")
# Files of tracked runs and archives of code are stored as they come: their routes count for themselves.
LARGE = ("/api/2.0/mlflow-artifacts/", "/v1/code", "/v1/artifacts/files/")


class Bounds:
    """ASGI middleware around the whole app."""

    def __init__(self, app: ASGIApp, body_bytes: int, body_time_s: float) -> None:
        self._app = app
        self._body_bytes = body_bytes
        self._body_time_s = body_time_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sending = _Sending(send)
        if scope["path"].startswith(LARGE):
            await self._app(scope, receive, sending)
            return
        try:
            refuse_declared(scope, self._body_bytes)
            body = _Body(receive, self._body_bytes, self._body_time_s)
            await self._app(scope, body, sending)
        except ProblemError as problem:
            if sending.began:
                raise
            scope.setdefault("state", {})["refusal"] = problem.detail
            answer = problems.answer(problem, scope["path"])
            answer.headers["Connection"] = "close"
            await answer(scope, receive, sending)


def refuse_declared(scope: Scope, most_bytes: int, way_out: str = "") -> None:
    """Raises ProblemError 413 where the sender itself says that the body is too large."""
    if declared_bytes(scope) > most_bytes:
        raise too_large(most_bytes, way_out)


def declared_bytes(scope: Scope) -> int:
    """Size of the body as its sender declares it; 0 where it does not."""
    return max((int(value) for name, value in scope["headers"] if name == b"content-length" and value.isdigit()), default=0)


def too_large(most_bytes: int, way_out: str = "") -> ProblemError:
    """413 with the limit, and what to do."""
    return ProblemError(413, "Too large", f"this body may have {most_bytes} bytes at most" + (f": {way_out}" if way_out else ""))


class _Sending:
    def __init__(self, send: Send) -> None:
        self._send = send
        self.began = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.began = True
            headers = list(message.get("headers", ()))
            if not any(name.lower() == NOSNIFF[0] for name, _ in headers):
                message = {**message, "headers": [*headers, NOSNIFF]}
        await self._send(message)


class _Body:
    """`receive` that counts bytes and time until the body is whole."""

    def __init__(self, receive: Receive, most_bytes: int, time_s: float) -> None:
        self._receive = receive
        self._left_bytes = most_bytes
        self._most_bytes = most_bytes
        self._time_s = time_s
        self._deadline: float | None = None
        self._whole = False

    async def __call__(self) -> Message:
        if self._whole:
            return await self._receive()
        if self._deadline is None:
            self._deadline = time.monotonic() + self._time_s
        try:
            message = await asyncio.wait_for(self._receive(), max(0.0, self._deadline - time.monotonic()))
        except TimeoutError as error:
            raise ProblemError(408, "Too slow", f"the request's body did not come within {self._time_s:g} s") from error
        if message["type"] == "http.request":
            self._left_bytes -= len(message.get("body", b""))
            if self._left_bytes < 0:
                raise too_large(self._most_bytes)
            self._whole = not message.get("more_body", False)
        return message
