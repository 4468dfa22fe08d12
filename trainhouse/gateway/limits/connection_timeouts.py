"""The server's patience with connections: how long one may take to say what it wants, or take nothing of its answer.

Holds: a connection that has sent no whole request head in time is closed; one whose client reads nothing is closed by the kernel.
"""

from __future__ import annotations

import asyncio
import socket

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

HEAD_S = 15.0
UNREAD_MS = 30_000
BACKLOG = 2048
KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))


class PatientProtocol(H11Protocol):
    """HTTP/1.1 with a limit of time for a request's head, from the connection or the head's first byte on."""

    _late: asyncio.TimerHandle | None = None
    _upgraded = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._late = self.loop.call_later(HEAD_S, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        self._in_time()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before: object = self.cycle
        super().data_received(data)
        if self._upgraded:
            return
        if self.cycle is not before:
            self._in_time()
        elif self._late is None and self._between():
            # The first bytes of a later head end the keep-alive's limit: from here on this one counts.
            self._late = self.loop.call_later(HEAD_S, self._give_up)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Leaves the connection to the protocol of websockets, without a limit of time."""
        self._upgraded = True
        self._in_time()
        super().handle_websocket_upgrade(event)

    def _in_time(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _between(self) -> bool:
        """Returns whether no request is being served. `cycle` is None until a request's head is whole, whatever its type says."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def _give_up(self) -> None:
        if self._between() and not self.transport.is_closing():
            self.transport.abort()


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens; the kernel drops connections whose peer takes nothing for UNREAD_MS. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.create_server((host, port), family=family, backlog=BACKLOG, reuse_port=False)
    # Connections inherit it. Without it a body waits until its head is acknowledged, which a client delays by 40 ms; asyncio sets it on
    # sockets alone that were made with the protocol's number.
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A tunnel may be silent for hours; its client may be gone without a word.
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE:
        if hasattr(socket, name):
            found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_MS)
    return found
