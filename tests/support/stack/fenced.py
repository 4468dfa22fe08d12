"""A way to a broker that may end as a broker that stops ends it: the last answer about topics lists no brokers, and the connection is gone.

Holds: looks into nothing but answers to Metadata (from version 9 on), and changes nothing but their lists of brokers.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress

METADATA = 3
FLEXIBLE_FROM = 9


class Fenced:
    """Listens on a free port and connects to `to_port`. An answer about topics ends its connection while `fenced`; new ones end then."""

    def __init__(self, to_port: int) -> None:
        self._to_port = to_port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self.fenced = threading.Event()
        self.ended = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Takes no more connections."""
        self._listening.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                if self.fenced.is_set():
                    client.close()
                    continue
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                _Way(client, socket.create_connection(("127.0.0.1", self._to_port)), self)


class _Way:
    """One connection; requests that wait for an answer, by their numbers."""

    def __init__(self, client: socket.socket, server: socket.socket, owner: Fenced) -> None:
        self._client, self._server, self._owner = client, server, owner
        self._asked: set[int] = set()
        for source, act in ((client, self._request), (server, self._answer)):
            threading.Thread(target=self._carry, args=(source, act), daemon=True).start()

    def _carry(self, source: socket.socket, act: Callable[[bytes], None]) -> None:
        with suppress(OSError):
            while head := _exactly(source, 4):
                act(head + _exactly(source, struct.unpack(">i", head)[0]))
        for each in (self._client, self._server):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _request(self, frame: bytes) -> None:
        kind, version, number = struct.unpack(">hhi", frame[4:12])
        if kind == METADATA and version >= FLEXIBLE_FROM:
            self._asked.add(number)
        self._server.sendall(frame)

    def _answer(self, frame: bytes) -> None:
        (number,) = struct.unpack(">i", frame[4:8])
        about_topics = number in self._asked
        self._asked.discard(number)
        if not (about_topics and self._owner.fenced.is_set()):
            self._client.sendall(frame)
            return
        self._owner.ended += 1
        self._client.sendall(_without_brokers(frame))
        self._client.shutdown(socket.SHUT_RDWR)
        raise OSError("as the broker ends it")


def _without_brokers(frame: bytes) -> bytes:
    """The answer with an empty list of brokers: behind its size, its number, a byte of tags and the time to hold back."""
    begin = at = 4 + 4 + 1 + 4
    count, at = frame[at] - 1, at + 1
    for _ in range(count):
        at += 4  # the node's id
        at += max(1, frame[at])  # its host, whose length plus one comes first
        at += 4  # its port
        at += max(1, frame[at])  # its rack; none is one byte
        at += 1  # no tags
    body = frame[4:begin] + b"\1" + frame[at:]
    return struct.pack(">i", len(body)) + body


def _exactly(source: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = source.recv(count - len(found))
        if not more:
            raise OSError("the other side has ended it")
        found += more
    return found
