"""Bytes within a tunnel between a client and the program of an interactive job: a line each way, then what was asked for.

The first line of each side is a JSON object. What follows is the raw stream (ssh, HTTP), or frames of a terminal: a letter, the length of
the payload in four bytes (big endian), the payload.

Holds: pure; a line and a frame have a bound, and what exceeds it, or is no JSON object, raises TunnelFormatError.
"""

import json
import struct
from collections.abc import Iterator
from typing import Any, Final

MAX_LINE_BYTES: Final = 64 * 1024
MAX_PAYLOAD_BYTES: Final = 64 * 1024
DATA, RESIZE, EXIT, NOTICE = b"d", b"r", b"x", b"n"
"""Terminal's bytes, its size (rows and columns, two bytes each), the exit code (four bytes, signed), and a line for the person."""
TERMINAL, SSH, HTTP = "terminal", "ssh", "http"
_HEAD: Final = struct.Struct("!cI")
_SIZE: Final = struct.Struct("!HH")
_CODE: Final = struct.Struct("!i")


class TunnelFormatError(ValueError):
    """Bytes that neither side of a tunnel writes."""


def line(values: dict[str, Any]) -> bytes:
    """A side's first line. Raises TunnelFormatError for one that the other side would refuse."""
    found = json.dumps(values).encode() + b"\n"
    if len(found) > MAX_LINE_BYTES:
        raise TunnelFormatError(f"the first line of a tunnel has {len(found)} bytes, and {MAX_LINE_BYTES} is the most")
    return found


def parsed_line(raw: bytes) -> dict[str, Any]:
    """The object of a line. Raises TunnelFormatError."""
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise TunnelFormatError("a tunnel does not begin with a line of JSON") from error
    if not isinstance(found, dict):
        raise TunnelFormatError("a tunnel does not begin with a JSON object")
    return found


def frame(kind: bytes, payload: bytes) -> bytes:
    """One frame; DATA of any length becomes several."""
    pieces = [payload[at : at + MAX_PAYLOAD_BYTES] for at in range(0, len(payload), MAX_PAYLOAD_BYTES)] or [b""]
    return b"".join(_HEAD.pack(kind, len(piece)) + piece for piece in pieces)


def resize(rows: int, columns: int) -> bytes:
    """The frame of a window's size."""
    return frame(RESIZE, _SIZE.pack(min(max(rows, 1), 0xFFFF), min(max(columns, 1), 0xFFFF)))


def size_of(payload: bytes) -> tuple[int, int]:
    """Rows and columns. Raises TunnelFormatError."""
    if len(payload) != _SIZE.size:
        raise TunnelFormatError("a window's size has another length")
    rows, columns = _SIZE.unpack(payload)
    return rows, columns


def exited(code: int) -> bytes:
    """The frame of a program's end; a signal's number is negative."""
    return frame(EXIT, _CODE.pack(code))


def code_of(payload: bytes) -> int:
    """The exit code. Raises TunnelFormatError."""
    if len(payload) != _CODE.size:
        raise TunnelFormatError("an exit code has another length")
    (code,) = _CODE.unpack(payload)
    return int(code)


class Frames:
    """Splits a stream into frames, however it is cut."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yields the frames that are whole by now: kind and payload. Raises TunnelFormatError."""
        self._rest += data
        while len(self._rest) >= _HEAD.size:
            kind, size = _HEAD.unpack_from(self._rest)
            if kind not in (DATA, RESIZE, EXIT, NOTICE) or size > MAX_PAYLOAD_BYTES:
                raise TunnelFormatError("a terminal's stream has no frame where one begins")
            if len(self._rest) < _HEAD.size + size:
                return
            payload = bytes(self._rest[_HEAD.size : _HEAD.size + size])
            del self._rest[: _HEAD.size + size]
            yield kind, payload
