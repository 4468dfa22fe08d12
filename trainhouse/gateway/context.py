"""What requests share: the ports to the world behind the gateway, made once, found by each request.

Holds: nothing global; a request finds its gateway at its app; what is remembered between requests is bounded and only makes things quick.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Annotated, cast

import structlog
from fastapi import Depends, Request

from trainhouse.events import AccessRefused, RequestAccepted
from trainhouse.events.errors import BusUnavailable
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.topics import AUDIT
from trainhouse.gateway.auditing import Refusal, RefusalBook
from trainhouse.gateway.bus import Bus, Sent
from trainhouse.gateway.limiting import Limits
from trainhouse.gateway.live.hub import Hub
from trainhouse.gateway.projects import ProjectBook
from trainhouse.gateway.reader import SqlReader
from trainhouse.gateway.revocations import Revocations
from trainhouse.gateway.roles import Principal
from trainhouse.gateway.settings import GatewaySettings
from trainhouse.gateway.storage import Storage

log = structlog.get_logger(__name__)

REMEMBERED = 10_000


class Recent(OrderedDict[str, str]):
    """The newest pairs, so many at most."""

    def setdefault(self, key: str, default: str = "") -> str:
        """The value that a key has already, or has from now on."""
        found = super().setdefault(key, default)
        if len(self) > REMEMBERED:
            self.popitem(last=False)
        return found


@dataclass
class Gateway:
    """One gateway's ports."""

    settings: GatewaySettings
    key: bytes
    reader: SqlReader
    bus: Bus
    hub: Hub
    # None: nothing is followed on the bus; then somebody else says which tokens are revoked.
    kafka: KafkaSettings | None = None
    revocations: Revocations = field(default_factory=Revocations)
    projects: ProjectBook = field(default_factory=ProjectBook)
    recent: Recent = field(default_factory=Recent)
    book: RefusalBook = field(init=False)
    limits: Limits = field(init=False)
    storage: Storage = field(init=False)

    def __post_init__(self) -> None:
        self.book = RefusalBook(self.settings.refusals_per_minute)
        self.limits = Limits(self.settings.requests_per_minute, self.projects)
        self.storage = Storage(self.reader, self.projects)

    def token_over(self, principal: Principal) -> str:
        """Why a principal's token counts no more; empty while it counts."""
        if principal.token_id in self.revocations.ids:
            return "the token was revoked"
        if principal.expires_s is not None and time.time() > principal.expires_s:
            return "the token has expired"
        return self.projects.lost(principal)

    def refused(self, request: Request, status: int, reason: str) -> None:
        """Tells the audit of a request that was refused; a repeated one is counted."""
        principal: Principal | None = getattr(request.state, "principal", None)
        who = (principal.sub, principal.token_id) if principal else ("", "")
        target = next((str(value) for value in request.path_params.values()), "")
        event = self.book.note(Refusal(status, action_of(request), *who, address_of(request)), target, reason, now_ms())
        if event is not None:
            self.tell(event)

    def tell(self, event: AccessRefused | RequestAccepted) -> None:
        """Sends an event of the audit, without waiting; what Kafka has no room for is told in the log."""
        try:
            self.bus.tell(AUDIT, event, secrets.token_hex(16))
        except BusUnavailable as error:
            log.warning("an event of the audit could not be sent", error=str(error), event=event.model_dump(mode="json"))

    def accepted(self, request: Request, principal: Principal, sent: Sent, *, target: str = "", project: str = "") -> None:
        """Tells the audit of a write that was passed on."""
        event = RequestAccepted(
            at_ms=now_ms(),
            action=action_of(request),
            target=target[:256],
            project=project,
            sub=principal.sub,
            token_id=principal.token_id,
            address=address_of(request),
            event_id=sent.event_id,
            topic=sent.topic,
        )
        self.tell(event)


def now_ms() -> int:
    """The clock, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def action_of(request: Request) -> str:
    """Method and route, without what callers fill in."""
    route = request.scope.get("route")
    return f"{request.method} {getattr(route, 'path', '')}"[:256]


def address_of(request: Request) -> str:
    """Where a request came from."""
    return (request.client.host if request.client else "")[:64]


def gateway_of(request: Request) -> Gateway:
    """The gateway that a request came to."""
    return cast(Gateway, request.app.state.gateway)


Here = Annotated[Gateway, Depends(gateway_of)]
