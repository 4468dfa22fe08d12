"""Context of requests: the ports to the servers behind the gateway, made once.

Holds: nothing global; a request finds its gateway at its app; what is remembered between requests is bounded and only makes things quick.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Annotated, cast

from fastapi import Depends, Request

from trainhouse.events import RequestAccepted
from trainhouse.events.settings import KafkaSettings
from trainhouse.gateway.audit.auditor import Auditor
from trainhouse.gateway.auth.keyring import Keyring
from trainhouse.gateway.auth.memberships import ProjectBook
from trainhouse.gateway.auth.revocations import Revocations
from trainhouse.gateway.auth.roles import Principal
from trainhouse.gateway.bus import Bus, Sent
from trainhouse.gateway.limits.queue_room import Queued
from trainhouse.gateway.limits.rate_limits import Limits
from trainhouse.gateway.limits.storage_room import Storage
from trainhouse.gateway.live.hub import Hub
from trainhouse.gateway.models.model_book import ModelBook
from trainhouse.gateway.queries.sql_reader import SqlReader
from trainhouse.gateway.settings import GatewaySettings
from trainhouse.gateway.studies.study_answers import StudyAnswers
from trainhouse.gateway.studies.trial_importance import Importances
from trainhouse.gateway.tunnels.tunnel_desk import TunnelDesk

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
    keys: Keyring
    reader: SqlReader
    bus: Bus
    hub: Hub
    # None: nothing is followed on the bus; then somebody else says which tokens are revoked.
    kafka: KafkaSettings | None = None
    # Requests to agents, signed as this gateway's; None: as all else, unsigned.
    operations: Bus | None = None
    revocations: Revocations = field(default_factory=Revocations)
    projects: ProjectBook = field(default_factory=ProjectBook)
    models: ModelBook = field(init=False)
    studies: StudyAnswers = field(init=False)
    importances: Importances = field(default_factory=Importances)
    recent: Recent = field(default_factory=Recent)
    tunnels: TunnelDesk = field(init=False)
    audit: Auditor = field(init=False)
    limits: Limits = field(init=False)
    storage: Storage = field(init=False)
    queued: Queued = field(init=False)

    def __post_init__(self) -> None:
        self.models = ModelBook(self.kafka)
        self.studies = StudyAnswers(self.kafka)
        self.tunnels = TunnelDesk(self.settings.tunnels_at_once, self.settings.tunnels_per_user)
        self.audit = Auditor(self.settings, self.bus)
        self.limits = Limits(self.settings.requests_per_minute, self.projects)
        self.storage = Storage(self.reader, self.projects)
        self.queued = Queued(self.reader, self.projects)

    def token_over(self, principal: Principal) -> str:
        """Returns the reason that a principal's token is no longer valid; empty while it is."""
        if any(one in self.revocations.ids for one in principal.ids):
            if principal.run and principal.session_id not in self.revocations.ids:
                return "the link was revoked, or the token that made it"
            return "the token was revoked" if principal.token_id in self.revocations.ids else "the session was ended"
        if principal.key_id and principal.key_id not in self.keys.now().ids:
            return "the key that signed the token was retired"
        if principal.expires_s is not None and time.time() > principal.expires_s:
            return (
                "the link has expired" if principal.run else "the session has expired" if principal.session_id else "the token has expired"
            )
        return ""

    def rights_over(self, principal: Principal) -> str:
        """Returns the reason that an admitted principal lost its access, by its token or a membership; empty while both are valid."""
        return self.token_over(principal) or self.projects.lost(principal)

    def accepted(self, request: Request, principal: Principal, sent: Sent, *, target: str = "", project: str = "") -> None:
        """Audits a write that was passed on to Kafka."""
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
        self.audit.offer(event)


def now_ms() -> int:
    """The clock, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def action_of(request: Request) -> str:
    """Method and route, without what callers fill in."""
    route = request.scope.get("route")
    return f"{request.method} {getattr(route, 'path', '')}"[:256]


def address_of(request: Request) -> str:
    """Client address of a request."""
    return (request.client.host if request.client else "")[:64]


def gateway_of(request: Request) -> Gateway:
    """The gateway that a request came to."""
    return cast(Gateway, request.app.state.gateway)


Here = Annotated[Gateway, Depends(gateway_of)]
