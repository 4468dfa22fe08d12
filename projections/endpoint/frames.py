"""Messages between the projector and the process of guests, over one socket: a JSON header and bytes.

Holds: plain data alone, whatever the other side sends; lengths are bounded.  Never: unpickles.
"""

from __future__ import annotations

import socket
import struct
from typing import Any

import orjson

MAX_HEADER_BYTES = 4 * 1024 * 1024
_LENGTHS = struct.Struct("!IQ")


class FrameError(Exception):
    """The other side is gone, or sent what is no message."""


def send(to: socket.socket, header: dict[str, Any], body: bytes = b"") -> None:
    """One message. Blocks; one thread at a time. Raises OSError."""
    raw = orjson.dumps(header)
    to.sendall(_LENGTHS.pack(len(raw), len(body)) + raw)
    if body:
        to.sendall(body)


def receive(source: socket.socket, max_body_bytes: int) -> tuple[dict[str, Any], bytes]:
    """The next message. Blocks. Raises FrameError, OSError."""
    header_bytes, body_bytes = _LENGTHS.unpack(_exactly(source, _LENGTHS.size))
    if header_bytes > MAX_HEADER_BYTES or body_bytes > max_body_bytes:
        raise FrameError(f"a message of {header_bytes} and {body_bytes} bytes is longer than any may be")
    raw, body = _exactly(source, header_bytes), _exactly(source, body_bytes)
    try:
        header = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise FrameError(f"a header is no JSON: {error}") from error
    if not isinstance(header, dict):
        raise FrameError("a header is no object")
    return header, body


def _exactly(source: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view, got = memoryview(data), 0
    while got < size:
        more = source.recv_into(view[got:])
        if not more:
            raise FrameError("the other side is gone")
        got += more
    return bytes(data)
