"""Audit of one gateway: an event for each request, whatever serves it and however it ends.

Holds: what changes something, and SQL, is told before it happens; reads are told when they ended, alike ones with a count; refusals too.
With `audit = required` nothing happens that cannot be told: writes and SQL wait until the brokers have their event, reads need room to keep
theirs. With `preferred` work goes on, and what was lost is counted.
"""

from __future__ import annotations

import secrets
import time
from typing import Any

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainhouse.events import Event
from trainhouse.events.model.audit_texts import kept_back, statement_text
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.runtime.counts import WINDOW_MS
from trainhouse.gateway.audit.accesses import ACKED, COUNTED, ENDED, Access, class_of
from trainhouse.gateway.audit.audit_log import AuditLog
from trainhouse.gateway.audit.grants import Grant, GrantBook, end_of, event_of
from trainhouse.gateway.audit.refusals import Refusal, RefusalBook
from trainhouse.gateway.audit.targets import names_in, target_of
from trainhouse.gateway.auth.roles import Principal
from trainhouse.gateway.bus import Bus
from trainhouse.gateway.errors import ProblemError
from trainhouse.gateway.problems import busy
from trainhouse.gateway.settings import GatewaySettings

NO_ROLE = "nobody's role was asked for"
State = dict[str, Any]


class Auditor:
    """Recorder of requests for the audit; `turn` is to be called about each second."""

    def __init__(self, settings: GatewaySettings, bus: Bus) -> None:
        self._required = settings.audit == "required"
        self.log = AuditLog(bus, settings.audit_waiting)
        self._refusals = RefusalBook(settings.refusals_per_minute)
        self._grants = GrantBook(settings.accesses_per_minute)

    def turn(self, now_ms: int) -> None:
        """Publishes the counts whose window is over, and resends events that the brokers did not accept."""
        for event in (*self._refusals.due(now_ms), *self._grants.due(now_ms)):
            self.log.offer(event)
        self.log.again(now_ms)

    def close(self, now_ms: int) -> None:
        """Publishes all remaining counts."""
        self.turn(now_ms + WINDOW_MS)

    def offer(self, event: Event) -> None:
        """An event of the audit, without waiting."""
        self.log.offer(event)

    def ready(self) -> None:
        """Raises ProblemError 503 where an access must be told and cannot be."""
        if self._required and (self.log.full or self._grants.full):
            raise unaudited("more accesses wait to be written than this gateway keeps")

    async def name(self, request: Request) -> None:
        """Notes what the body of a request names, where its route takes one that it has read by now."""
        if getattr(request.scope.get("route"), "body_field", None) is None:
            return
        try:
            request.scope["state"]["in_body"] = names_in(await request.json())
        except (ValueError, RecursionError):
            pass  # no JSON: its route refuses it

    async def admit(self, request: Request, principal: Principal, why: str) -> None:
        """An access that is about to happen: told now, if its class is to be. Raises ProblemError 503 where it must be told and cannot
        be."""
        self.ready()
        state: State = request.scope["state"]
        access, grant = described(request.scope, state | {"principal": principal, "why": why})
        state |= {"why": why}
        if access in COUNTED or "access_id" in state:
            return
        state["access_id"] = access_id = secrets.token_hex(8)
        more: dict[str, Any] = await _text(request) if access is Access.SQL else {}
        event = event_of(grant, at_ms := _now_ms(), at_ms, 1, access_id=access_id, **more)
        if not self._required or access not in ACKED:
            self.log.offer(event)
            return
        try:
            await self.log.write(event)
        except BusUnavailableError as error:
            raise unaudited(str(error)) from error

    def ended(self, scope: Scope, status: int, size_bytes: int, took_s: float) -> None:
        """A request that was answered, or broken off."""
        state: State = scope.get("state", {})
        access, grant = described(scope, state)
        now_ms = _now_ms()
        if status >= 400:
            refusal = Refusal(status, grant.action, grant.sub, grant.token_id, grant.address)
            self._offer(self._refusals.note(refusal, grant.target, kept_back(str(state.get("refusal", ""))), now_ms))
        elif access in COUNTED:
            self._offer(self._grants.note(grant, size_bytes, now_ms))
        elif access is not Access.PUBLIC and "access_id" not in state:
            self.log.offer(event_of(grant, now_ms, now_ms, 1, size_bytes))
        if access in ENDED and "access_id" in state:
            more = {"rows": state.get("rows"), "size_bytes": size_bytes, "took_ms": round(took_s * 1000)}
            self.log.offer(end_of(grant, now_ms, state["access_id"], status, **more))

    def _offer(self, event: Event | None) -> None:
        if event is not None:
            self.log.offer(event)


class Audited:
    """ASGI layer around all routes: tells the audit of each request when it ended."""

    def __init__(self, app: ASGIApp, auditor: Auditor) -> None:
        self._app = app
        self._auditor = auditor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})
        status, size_bytes, began_s = 500, 0, time.monotonic()

        async def noted(message: Message) -> None:
            nonlocal status, size_bytes
            if message["type"] == "http.response.start":
                status = message["status"]
            size_bytes += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            self._auditor.ended(scope, status, size_bytes, time.monotonic() - began_s)


def described(scope: Scope, state: State) -> tuple[Access, Grant]:
    """The class of a request, and what tells it apart."""
    path = getattr(scope.get("route"), "path", "")
    principal: Principal | None = state.get("principal")
    client = scope.get("client")
    access = class_of(scope["method"], path)
    target, text = target_of(scope, state.get("in_body", ()))
    grant = Grant(
        access=access.value,
        action=f"{scope['method']} {path}",
        target=target,
        text=text,
        sub=principal.sub if principal else "",
        token_id=principal.token_id if principal else "",
        session_id=principal.session_id if principal else "",
        address=client[0] if client else "",
        reason=str(state.get("why", NO_ROLE)),
    )
    return access, grant


def unaudited(cause: str) -> ProblemError:
    """503: this gateway does nothing that its audit does not have."""
    return busy(f"this access cannot be written to the audit, which this Trainhouse requires, so it was refused: {cause}")


async def _text(request: Request) -> dict[str, str]:
    """The statement of a question in SQL, with the values bound to it, as it goes to the audit."""
    try:
        body = await request.json()  # as its route reads it: a body that only one of the two can read would run without a word here
        return statement_text(str(body["query"]), body.get("parameters") or None)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return {}  # no question: its route refuses it


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
