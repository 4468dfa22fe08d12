"""Frames between a rank and a holder of chunks: the length of a JSON header, the header, and the bytes that it announces.

Holds: everything that is sent or received has a deadline; a header has a bound.
"""

import json
import socket
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any

from trainhouse.checkpointing.stores.object_store import Body

MAX_HEADER_BYTES = 8 * 2**20
PIECE_BYTES = 2**20
_LENGTH = struct.Struct(">I")


class ChannelError(Exception):
    """The other end is gone, too slow, or does not follow the protocol."""


def _unseen(piece: memoryview) -> None:
    """Ignores a piece."""


class Channel:
    """One end of a connection; of one thread at a time."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected
        self._until_s = 0.0

    def allow(self, seconds: float) -> None:
        """Sets the deadline of what follows."""
        self._until_s = time.monotonic() + seconds

    def send(self, header: Mapping[str, Any], body: Body = b"") -> None:
        """Sends a frame. Raises ChannelError."""
        content = json.dumps(header).encode()
        try:
            self._limit()
            self._socket.sendall(_LENGTH.pack(len(content)) + content)
            if len(body):
                self._limit()
                self._socket.sendall(body)
        except OSError as error:
            raise _broken(error) from error

    def header(self, most_bytes: int = MAX_HEADER_BYTES) -> dict[str, Any]:
        """Receives a header. Raises ChannelError."""
        start = bytearray(_LENGTH.size)
        self.fill(memoryview(start))
        (size_bytes,) = _LENGTH.unpack(start)
        if size_bytes > most_bytes:
            raise ChannelError(f"a header of {size_bytes} bytes, where {most_bytes} are allowed")
        content = bytearray(size_bytes)
        self.fill(memoryview(content))
        try:
            found = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise ChannelError(f"a header that is no JSON: {error}") from error
        if not isinstance(found, dict):
            raise ChannelError("a header that is no JSON object")
        return found

    def fill(self, room: memoryview, seen: Callable[[memoryview], None] = _unseen) -> None:
        """Receives as many bytes as there is room for; `seen` gets them piece by piece. Raises ChannelError."""
        at, handed = 0, 0
        while at < len(room):
            try:
                self._limit()
                count = self._socket.recv_into(room[at : at + PIECE_BYTES])
            except OSError as error:
                raise _broken(error) from error
            if not count:
                raise ChannelError("the other end closed the connection")
            at += count
            if at - handed >= PIECE_BYTES or at == len(room):
                seen(room[handed:at])
                handed = at

    def close(self) -> None:
        """Ends the connection, also under a thread that waits for it."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._socket.close()

    def _limit(self) -> None:
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("it took too long")
        self._socket.settimeout(left_s)


def _broken(error: OSError) -> ChannelError:
    return ChannelError("no answer in time" if isinstance(error, TimeoutError) else str(error))
