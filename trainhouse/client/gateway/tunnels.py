"""Tunnels to interactive jobs over the gateway: a stream of bytes in both directions.

Holds: a tunnel is asked for by the user's token, and connected by the ticket that answers; certificates are checked as for all requests.
Bytes that wait have a bound.
"""

import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from trainhouse.client.errors import ClientError, NotReachableError, UnknownJobError
from trainhouse.client.gateway import transport
from trainhouse.client.gateway.exchange import Flow, Request, away, error_of
from trainhouse.client.gateway.reads import job_path
from trainhouse.events.tunnel import tunnel_frames as frames
from trainhouse.events.tunnel.tunnel_call import MAX_MESSAGE_BYTES, TICKET_HEADER, client_path

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

    from trainhouse.client.gateway.backend import ByGateway

NOT_YET: Final = 425
AGAIN_S: Final = 0.3
OPEN_S: Final = 15.0
PING_S: Final = 20.0
UNACKED_MS: Final = 30_000
QUEUED_MESSAGES: Final = 8
SEND_BYTES: Final = 32 * 1024
MAX_REASON_CHARS: Final = 1000


class TunnelRefusedError(ClientError):
    """The job does not do what was asked; its sentence says why."""


class TunnelLostError(ClientError):
    """The stream broke off before its end."""


@dataclass
class TunnelStream:
    """Open tunnel. One thread may send while another receives. `answer`: the job's first line."""

    connection: "ClientConnection" = field(repr=False)
    answer: Mapping[str, Any] = field(default_factory=dict)
    _rest: bytes = b""

    def send(self, data: bytes) -> None:
        """Sends bytes. Blocks while the other side takes none. Raises TunnelLostError at the stream's end."""
        from websockets.exceptions import ConnectionClosed

        try:
            for at in range(0, len(data), SEND_BYTES):
                self.connection.send(data[at : at + SEND_BYTES])
        except ConnectionClosed as error:
            raise TunnelLostError(_why(error)) from error

    def receive(self) -> bytes:
        """Returns the next bytes; empty at the stream's end. Blocks. Raises TunnelLostError where it broke off."""
        from websockets.exceptions import ConnectionClosed, ConnectionClosedOK

        if self._rest:
            found, self._rest = self._rest, b""
            return found
        try:
            message = self.connection.recv()
        except ConnectionClosedOK:
            return b""
        except ConnectionClosed as error:
            raise TunnelLostError(_why(error)) from error
        return message.encode() if isinstance(message, str) else message

    def begin(self, asked: Mapping[str, Any]) -> None:
        """Sends the first line, and reads that of the job into `answer`. Blocks. Raises TunnelRefusedError, TunnelLostError."""
        self.send(frames.line(dict(asked)))
        got = b""
        while b"\n" not in got:
            piece = self.receive()
            if not piece or len(got) > frames.MAX_LINE_BYTES:
                raise TunnelLostError("the job closed the connection without an answer")
            got += piece
        first, _, self._rest = got.partition(b"\n")
        try:
            self.answer = frames.parsed_line(first)
        except frames.TunnelFormatError as error:
            raise TunnelLostError(str(error)) from error
        if "error" in self.answer:
            # The job's program writes it, and a terminal shows it.
            text = str(self.answer["error"])[:MAX_REASON_CHARS]
            raise TunnelRefusedError("".join(char if char.isprintable() else " " for char in text))

    def close(self) -> None:
        """Ends the stream. May block for a moment."""
        self.connection.close()


def asked(job_id: str) -> Flow[Mapping[str, Any] | None]:
    """Asks for a tunnel: its id, ticket and address; None while the job cannot be reached yet. Raises UnknownJobError, AccessDeniedError,
    ChangeRefusedError, NoReplyError."""
    answer = yield Request("POST", job_path(job_id, "tunnels"))
    if answer.status == NOT_YET:
        return None
    if answer.status == 404:
        raise UnknownJobError(job_id)
    if answer.status >= 300:
        raise error_of(answer)
    found: Mapping[str, Any] = answer.json()
    return found


def opened(way: "ByGateway", job_id: str, first: Mapping[str, Any], patience_s: float = 60.0) -> TunnelStream:
    """Opens a tunnel and asks the job by a first line. Blocks. Raises ClientError."""
    until_s = time.monotonic() + patience_s
    while (found := way.run(asked(job_id))) is None:
        if time.monotonic() > until_s:
            raise NotReachableError(f"{job_id} could not be reached for {patience_s:.0f} s: see `trainhouse status {job_id}`")
        time.sleep(AGAIN_S)
    stream = TunnelStream(_connected(found.get("url") or way.url, way.token, str(found["tunnel"]), str(found["ticket"])))
    try:
        stream.begin(first)
    except BaseException:
        stream.close()
        raise
    return stream


def _connected(url: str, token: str, tunnel: str, ticket: str) -> "ClientConnection":
    from websockets.exceptions import InvalidHandshake
    from websockets.sync.client import connect

    parts = transport.parts_of(url)
    trusted = transport.trusted(parts.scheme)
    context = None if parts.scheme == "http" else trusted if isinstance(trusted, ssl.SSLContext) else ssl.create_default_context()
    try:
        found = connect(
            f"ws{url.rstrip('/').removeprefix('http')}{client_path(tunnel)}",
            additional_headers={"Authorization": f"Bearer {token}", TICKET_HEADER: ticket},
            ssl=context,
            compression=None,
            open_timeout=OPEN_S,
            # An answer may be held up by who reads nothing for a while, as behind a pager: TCP finds out who is gone.
            ping_interval=PING_S,
            ping_timeout=None,
            max_size=MAX_MESSAGE_BYTES,
            max_queue=QUEUED_MESSAGES,
        )
    except (OSError, InvalidHandshake) as error:
        raise away(url, error) from error
    if hasattr(socket, "TCP_USER_TIMEOUT") and not isinstance(found.socket, ssl.SSLSocket):
        found.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKED_MS)
    return found


def _why(error: Any) -> str:
    reason = error.rcvd.reason if getattr(error, "rcvd", None) is not None else ""
    return reason or "the connection to the gateway was lost; the job goes on, attach again"
