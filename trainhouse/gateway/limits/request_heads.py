"""Checks of a request's head before its body is read: host, origin, length, size.

Holds: pure rules, and one ASGI layer around everything, pages, figures and files included. A name that this gateway does not know as its
own is refused, so that a site cannot reach it through a name of its own (DNS rebinding); numbers cannot be rebound, so any address is
taken. A page of another site writes nothing. Two lengths of one body are refused, whichever of them a proxy before us believed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainhouse.gateway import problems
from trainhouse.gateway.errors import ProblemError

ANY = "*"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
HSTS = (b"strict-transport-security", b"max-age=31536000")
Headers = Iterable[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Limits:
    """Of a head: bytes of its names, values and target together, and how many fields it may have."""

    most_bytes: int
    most_fields: int


def names_of(hosts: Iterable[str], listens_on: str, url: str) -> frozenset[str]:
    """The names that are this gateway's own: those of the settings, and those of the address that it has."""
    named = {*hosts, listens_on, urlsplit(url).hostname or ""}
    return frozenset(name.lower().rstrip(".") for name in named if name)


def refused(method: str, target_bytes: int, headers: Headers, names: frozenset[str], limits: Limits) -> ProblemError | None:
    """Returns the problem with a request's head, or None for a valid one."""
    fields = list(headers)
    size_bytes = target_bytes + sum(len(name) + len(value) + 4 for name, value in fields)
    if len(fields) > limits.most_fields or size_bytes > limits.most_bytes:
        detail = f"a request's head may have {limits.most_fields} fields and {limits.most_bytes} bytes at most"
        return ProblemError(431, "Head too large", detail)
    by_name: dict[bytes, list[bytes]] = {}
    for name, value in fields:
        by_name.setdefault(name.lower(), []).append(value)
    return _lengths(by_name) or _host(by_name.get(b"host", []), names) or _origin(method, by_name, names)


def _lengths(fields: Mapping[bytes, list[bytes]]) -> ProblemError | None:
    if b"transfer-encoding" in fields and b"content-length" in fields:
        return ProblemError(
            400, "Bad request", "Content-Length and Transfer-Encoding together say two lengths of one body: send one of them"
        )
    return None


def _host(given: list[bytes], names: frozenset[str]) -> ProblemError | None:
    if len(given) != 1:
        return ProblemError(400, "Bad request", "a request needs one Host")
    name = host_name(given[0])
    if name is not None and known(name, names):
        return None
    shown = given[0][:100].decode("ascii", "replace")
    return ProblemError(421, "Unknown host", f"{shown!r} is no name of this gateway; its operator adds names by TRAINHOUSE_GATEWAY_HOSTS")


def _origin(method: str, fields: Mapping[bytes, list[bytes]], names: frozenset[str]) -> ProblemError | None:
    origins = fields.get(b"origin", [])
    if not origins or method in SAFE_METHODS:
        return None
    name = host_name(urlsplit(origins[0].decode("ascii", "replace")).netloc.encode())
    hosts = {host_name(host) for host in fields.get(b"host", [])}
    if len(origins) == 1 and name is not None and (name in hosts or name in names):
        return None
    return ProblemError(403, "Forbidden", "a page of another site writes nothing here")


def host_name(host: bytes) -> str | None:
    """The name or address in a Host, lower case, without its port; None for what is neither."""
    try:
        text = host.decode("ascii")
        if any(not c.isalnum() and c not in "-_.:[]" for c in text):
            return None
        parts = urlsplit(f"//{text}")
        # Asked for, so that a port that is no number is refused.
        return (parts.hostname or "").rstrip(".") or None if parts.port is None or parts.port >= 0 else None
    except ValueError:
        return None


def known(name: str, names: frozenset[str]) -> bool:
    """Returns whether a name is this gateway's own."""
    return ANY in names or name in names or name == "localhost" or name.endswith(".localhost") or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Heads:
    """ASGI layer around the whole app."""

    def __init__(self, app: ASGIApp, names: frozenset[str], limits: Limits, https: bool) -> None:
        self._app = app
        self._names = names
        self._limits = limits
        self._https = https

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        secured = self._secured(scope, send)
        target_bytes = len(scope.get("raw_path") or b"") + len(scope["query_string"])
        problem = refused(scope.get("method", "GET"), target_bytes, scope["headers"], self._names, self._limits)
        if problem is None:
            await self._app(scope, receive, secured)
            return
        scope.setdefault("state", {})["refusal"] = problem.detail
        answer = problems.answer(problem, "")
        # What follows on this connection may be the rest of a body that was counted otherwise.
        answer.headers["Connection"] = "close"
        await answer(scope, receive, secured)

    def _secured(self, scope: Scope, send: Send) -> Send:
        host = next((value for name, value in scope["headers"] if name == b"host"), b"")
        name = host_name(host) or ""
        # A browser that keeps this for `localhost` would keep it for every other server of that machine.
        if not (self._https or scope.get("scheme") == "https") or name == "localhost" or name.endswith(".localhost"):
            return send

        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), HSTS]}
            await send(message)

        return secured
