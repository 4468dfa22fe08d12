"""Protocol between a rank and its node's agent about the store: a JSON line each way, over the attempt's Unix socket.

    {"asks": [{"operation": "get", "key": "jobs/j/commits/0000000000"}, ...]}   ->   {"answers": [{"url": ..., "headers": {}}, ...]}
    {"session": true}   ->   {"session": {"access_key": ..., ...}} or {"session": null} where requests are signed one by one
    {"holder": "node-a"}   ->   {"holder": {"node_id": ..., "address": ..., "port": ..., "token": ...}} or {"holder": {"why": ...}}:
        access to chunks in a node's memory; of the node that this one's chunks are copied to for an empty name. With
        `"kind": "none"` no other node of the pool offers memory

Holds: lines and batches have a bound. A socket's path may be longer than the 107 bytes that an address takes.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NotRequired, TypedDict

MAX_BATCH = 256
MAX_LINE_BYTES = 1 << 20
_MAX_ADDRESS_BYTES = 107

# `refused`: never ask so again. `stale`: a newer attempt has the job. `unavailable`: ask again a little later.
Kind = Literal["refused", "stale", "unavailable"]


class LeaseReply(TypedDict):
    """For one request: signed, or why not."""

    url: NotRequired[str]
    headers: NotRequired[dict[str, str]]
    kind: NotRequired[Kind]
    why: NotRequired[str]


class HolderReply(TypedDict):
    """Access to one holder of chunks, or why not. `kind`: there is no holder at all."""

    node_id: NotRequired[str]
    address: NotRequired[str]
    port: NotRequired[int]
    token: NotRequired[str]
    kind: NotRequired[Literal["none"]]
    why: NotRequired[str]


class SessionKeys(TypedDict):
    """Keys of the store that end by themselves. `expires`: ISO 8601."""

    access_key: str
    secret_key: str
    token: str
    expires: str


@contextmanager
def address_of(path: Path) -> Iterator[str]:
    """An address of the socket at `path` that is short enough, while the block lasts. Raises OSError."""
    if len(os.fsencode(path)) <= _MAX_ADDRESS_BYTES:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def connected(path: Path, timeout_s: float) -> socket.socket:
    """A connection to who listens there. Raises OSError."""
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        channel.settimeout(timeout_s)
        with address_of(path) as address:
            channel.connect(address)
    except BaseException:
        channel.close()
        raise
    return channel
