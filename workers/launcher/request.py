"""Request of the launcher to a keeper, and its transport: JSON, in a file in memory for the warm process, which passes it on unread.

Messages to and from the warm process have their length in front and descriptors beside.

Holds: a request is whole or refused; secrets travel only here, through a pipe or such a file, never in arguments or on a disk.
"""

import json
import os
import socket
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from trainhouse.workers.confinement.plan import Confinement
from trainhouse.workers.launcher.ports import AttemptPaths, RankPaths

MAX_REQUEST_BYTES = 64 * 1024 * 1024
MAX_FDS = 4
_LENGTH = struct.Struct("!I")


@dataclass(frozen=True)
class RankOrder:
    """One rank to spawn: `argv[0]` is a path by now, `env` is whole and holds the secrets' values too."""

    rank: int
    folder: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    cwd: str
    secrets: tuple[str, ...] = field(default=(), repr=False)
    secrets_dir: str = ""

    @property
    def paths(self) -> RankPaths:
        return RankPaths(Path(self.folder))


@dataclass(frozen=True)
class StoreOrder:
    """Host the rendezvous store on the descriptor that comes with the request."""

    address: str
    port: int
    world_size: int


@dataclass(frozen=True)
class Order:
    """All that a keeper needs."""

    folder: str
    ranks: tuple[RankOrder, ...]
    store: StoreOrder | None = None
    confinement: Confinement | None = None

    @property
    def attempt(self) -> AttemptPaths:
        return AttemptPaths(Path(self.folder))

    def dumps(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def loads(cls, raw: bytes) -> "Order":
        data: dict[str, Any] = json.loads(raw)
        ranks = tuple(RankOrder(**(r | {"argv": tuple(r["argv"]), "secrets": tuple(r["secrets"])})) for r in data["ranks"])
        store, confinement = data["store"], data.get("confinement")
        return cls(
            data["folder"],
            ranks,
            StoreOrder(**store) if store else None,
            Confinement.from_json(confinement) if confinement else None,
        )


def in_memory(order: Order) -> int:
    """A descriptor of a file without a name that holds the order, to be read from its beginning. The caller closes it."""
    payload = order.dumps()
    _check_size(payload)
    with open(os.memfd_create("order"), "wb") as file:
        file.write(payload)
        file.flush()
        file.seek(0)
        return os.dup(file.fileno())


def _check_size(payload: bytes) -> None:
    if len(payload) > MAX_REQUEST_BYTES:
        raise ValueError(f"a launch request of {len(payload)} bytes is over the limit of {MAX_REQUEST_BYTES}; shorten env or command")


def send(channel: socket.socket, payload: bytes, fds: tuple[int, ...] = ()) -> None:
    """Send one message with its descriptors; blocks until the peer has taken it (bound it with the socket's timeout)."""
    _check_size(payload)
    socket.send_fds(channel, [_LENGTH.pack(len(payload))], list(fds))
    channel.sendall(payload)


def receive(channel: socket.socket) -> tuple[bytes, list[int]]:
    """The next message and its descriptors; raises EOFError when the peer is gone."""
    head, fds, _, _ = socket.recv_fds(channel, _LENGTH.size, MAX_FDS)
    head += _exactly(channel, _LENGTH.size - len(head)) if head else b""
    if not head:
        raise EOFError("the peer closed the channel")
    return _exactly(channel, _LENGTH.unpack(head)[0]), fds


def _exactly(channel: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        piece = channel.recv(min(1 << 20, size - len(parts)))
        if not piece:
            raise EOFError("the peer closed the channel within a message")
        parts += piece
    return bytes(parts)
