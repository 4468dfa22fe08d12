"""Tunnels of one gateway process: who asked for which, and its two ends.

Holds: a tunnel counts once on each side, for who has its secret: a node's key on one, a ticket on the other. Their number has a bound, for
each user too. Bytes that wait between the ends are those of one message and of the sockets.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

from starlette.websockets import WebSocketDisconnect

from trainhouse.events.security.signing import HEADER, signature_of
from trainhouse.events.tunnel.tunnel_call import SIGNED_AS, call_bytes
from trainhouse.gateway.auth.roles import Principal
from trainhouse.gateway.errors import ProblemError


class TunnelEnd(Protocol):
    """Accepted connection of one side."""

    async def send_bytes(self, data: bytes) -> None: ...
    async def close(self, code: int = 1000, reason: str | None = None) -> None: ...


@dataclass(eq=False)
class Tunnel:
    """One tunnel. `node_key`: public key of the node, empty where settings let nodes without one answer; `answered`: the node's refusal,
    empty for none."""

    principal: Principal
    node_key: str
    tunnel_id: str = field(default_factory=lambda: secrets.token_hex(16))
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))
    ticket: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    answered: asyncio.Future[str] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    joined: asyncio.Event = field(default_factory=asyncio.Event)
    node: TunnelEnd | None = None
    client: TunnelEnd | None = None
    is_over: bool = False
    # Of who waits for its user: held, or the loop forgets it.
    waiting: asyncio.Task[None] | None = None

    def is_called_by_node(self, header: str | None) -> bool:
        """Whether the node that was asked calls, by the header of its signature; nothing is asked of one that has no key."""
        if not self.node_key:
            return True
        signature = signature_of({HEADER: header.encode("ascii", "replace")}) if header else None
        if signature is None or signature.public_key != self.node_key:
            return False
        return signature.holds(SIGNED_AS, call_bytes(self.tunnel_id, self.nonce))

    def is_users(self, ticket: str | None) -> bool:
        """Whether its user has sent this ticket."""
        return ticket is not None and hmac.compare_digest(ticket.encode("utf-8", "replace"), self.ticket.encode())


class TunnelDesk:
    """All tunnels of this process, in its event loop."""

    def __init__(self, most: int, most_of_user: int) -> None:
        self._most = most
        self._most_of_user = most_of_user
        self._open: dict[str, Tunnel] = {}
        self._of_user: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def open(self, principal: Principal, node_key: str) -> Tunnel:
        """Adds a tunnel without ends. Raises ProblemError where there are too many."""
        if len(self._open) >= self._most:
            raise ProblemError(
                503, "Too many tunnels", f"this gateway has {self._most} tunnels open, and that is the most: ask again later"
            )
        if self._of_user[principal.sub] >= self._most_of_user:
            raise ProblemError(
                429, "Too many tunnels", f"{principal.sub} has {self._most_of_user} tunnels open, and that is the most: close one of them"
            )
        found = Tunnel(principal, node_key)
        self._open[found.tunnel_id] = found
        self._of_user[principal.sub] += 1
        return found

    def find(self, tunnel_id: str) -> Tunnel | None:
        """The tunnel of this id, while it is open."""
        return self._open.get(tunnel_id)

    async def end(self, tunnel: Tunnel, code: int = 1000, reason: str = "") -> None:
        """Removes a tunnel and closes both of its ends, for a reason of 120 characters at most. A repeat does nothing."""
        if tunnel.is_over:
            return
        tunnel.is_over = True
        self._open.pop(tunnel.tunnel_id, None)
        self._of_user[tunnel.principal.sub] -= 1
        self._of_user += Counter()  # leaves users with none out
        tunnel.joined.set()
        for side in (tunnel.node, tunnel.client):
            if side is not None:
                try:
                    await side.close(code, reason.encode()[:120].decode("utf-8", "ignore"))
                except (RuntimeError, WebSocketDisconnect):
                    continue  # that side is gone already
