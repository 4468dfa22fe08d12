"""Host key of a job's ssh server, as it goes through a tunnel into a user's known hosts. Pure.

Holds: a key is one line, `ssh-ed25519 BASE64`, of a point of 32 bytes: no options, no second key, no comment. The job's program writes it,
so nothing else of its text reaches a file.
"""

import base64
import binascii
import re
import struct
from typing import Any, Final

from trainhouse.events.tunnel import tunnel_frames as frames

TYPE: Final = "ssh-ed25519"
_FORM: Final = re.compile(rf"{TYPE} ([A-Za-z0-9+/]{{68}})")
_BLOB: Final = struct.pack("!I", len(TYPE)) + TYPE.encode() + struct.pack("!I", 32)
NO_HOST_KEY: Final = f"the job offers a host key that is none: it has to be `{TYPE} BASE64` and nothing else"


class HostKeyError(ValueError):
    """Host key of another form than the one that counts."""


def checked_host_key(value: Any) -> str:
    """The key, if its form is right. Raises HostKeyError."""
    form = _FORM.fullmatch(value) if isinstance(value, str) else None
    try:
        blob = base64.b64decode(form[1], validate=True) if form is not None else b""
    except binascii.Error:
        blob = b""
    if form is None or not blob.startswith(_BLOB) or len(blob) != len(_BLOB) + 32:
        raise HostKeyError(NO_HOST_KEY)
    return str(value)


class FirstLine:
    """First line of a job, looked at as its bytes pass."""

    def __init__(self) -> None:
        self._begun: bytearray | None = bytearray()

    def check(self, data: bytes) -> None:
        """Takes the next bytes, before they are passed on. Raises HostKeyError for a line whose host key has another form, and where none
        of MAX_LINE_BYTES ends: a client waits for its end, so it gets nothing of it."""
        if self._begun is None:
            return
        end = data.find(b"\n")
        self._begun += data if end < 0 else data[:end]
        if len(self._begun) > frames.MAX_LINE_BYTES:
            raise HostKeyError(f"the first line of the job has more than {frames.MAX_LINE_BYTES} bytes")
        if end < 0:
            return
        whole, self._begun = bytes(self._begun), None
        try:
            answer = frames.parsed_line(whole)
        except frames.TunnelFormatError:
            return  # a client says so itself
        if "host_key" in answer:
            checked_host_key(answer["host_key"])
