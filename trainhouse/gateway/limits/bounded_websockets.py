"""WebSocket connections of the gateway, each with a bound on what waits for it in memory, whatever its client sends or leaves unread.

Holds: while a client reads nothing, one pong waits for it, the newest (RFC 6455, 5.5.3, lets the others go). A message has MOST_FRAGMENTS
fragments at most, else its connection is closed with the reason. Messages of bytes that came at once wait as one: tunnels are streams.
Never: stops reading because its client does not read: a key such as Ctrl-C still arrives.
"""

from __future__ import annotations

from typing import Any, Final, cast

from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame

MOST_FRAGMENTS: Final = 1024
"""Of one message. Clients of tunnels send whole ones, and what splits them on the way makes pieces of kilobytes."""
TOO_MANY: Final = f"a message came in more than {MOST_FRAGMENTS} fragments; send it in larger ones"


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """One end of a tunnel."""

    _pong = b""
    _unread: dict[str, Any] | None = None
    """Last message of the queue, of bytes, until it is read."""

    def handle_ping(self) -> None:
        writes = self.conn.data_to_send()
        if self.conn.close_sent is not None:
            self.transport.write(b"".join(writes))
        elif writes:
            self._pong = writes[-1]
            self._answer()

    def handle_cont(self, event: Frame) -> None:
        if self.close_sent:
            return
        if len(self.frames) < MOST_FRAGMENTS:
            super().handle_cont(event)
            return
        self.frames = []
        self.conn.fail(CloseCode.POLICY_VIOLATION, TOO_MANY)
        self.handle_parser_exception()

    def send_receive_event_to_app(self) -> None:
        if self.close_sent or self.curr_msg_data_type != "bytes":
            self._unread = None
            super().send_receive_event_to_app()
            return
        data, self.frames = b"".join(self.frames), []
        last = self._unread
        if last is not None and len(last["bytes"]) + len(data) <= self.config.ws_max_size:
            last["bytes"] += data
            return
        self._unread = {"type": "websocket.receive", "bytes": bytearray(data)}
        self.queue.put_nowait(cast(ASGIReceiveEvent, self._unread))
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    async def receive(self) -> ASGIReceiveEvent:
        message = cast(dict[str, Any], await super().receive())
        if message is self._unread:
            self._unread = None
        if isinstance(message.get("bytes"), bytearray):
            message["bytes"] = bytes(message["bytes"])
        return cast(ASGIReceiveEvent, message)

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        self._answer()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._answer()

    def _answer(self) -> None:
        """Sends the pong that waits, once the opening is answered and the client reads."""
        if self._pong and self.handshake_complete and self.writable.is_set() and not self.close_sent and not self.transport.is_closing():
            self.transport.write(self._pong)
            self._pong = b""
