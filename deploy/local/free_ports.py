"""TCP ports on loopback: which are free, and who holds a busy one.

Always: a free port lies below the kernel's ephemeral range, so that no outgoing connection takes it before its server
binds it; none is chosen twice within KEPT_S on this machine, so that no other server does.  Never: a listening socket beyond 127.0.0.1.
"""

from __future__ import annotations

import errno
import os
import secrets
import socket
import tempfile
import time
from collections.abc import Collection, Iterable
from pathlib import Path

import psutil

from trainhouse.deploy.local.errors import PortBusyError

LOOPBACK = "127.0.0.1"
FIRST_FREE_PORT = 20_000
LAST_FREE_PORT = 32_000
MAX_PICKS = 500
KEPT_S = 120.0
"""A server that is slow to start has bound its port by then."""


def is_free(port: int) -> bool:
    """Whether nobody listens on loopback's `port` and it can be bound now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Servers bind with SO_REUSEADDR: connections in TIME_WAIT do not make a port busy for them.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
            probe.listen(1)
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True


def free_port() -> int:
    """One free loopback port, chosen at random; OSError if none is found in a bounded number of picks."""
    return free_ports(1)[0]


def free_ports(count: int, besides: Collection[int] = ()) -> list[int]:
    """`count` different free loopback ports, none of `besides`, chosen at random; OSError after a bounded number of picks."""
    found: list[int] = []
    for _ in range(MAX_PICKS):
        if len(found) == count:
            return found
        port = FIRST_FREE_PORT + secrets.randbelow(LAST_FREE_PORT - FIRST_FREE_PORT)
        if port not in found and port not in besides and is_free(port) and _kept(port):
            found.append(port)
    raise OSError(f"no {count} free ports between {FIRST_FREE_PORT} and {LAST_FREE_PORT}: stop some servers")


def _kept(port: int) -> bool:
    """Whether the port is now kept for the caller: by a file, since whoever else looks for a port is another process."""
    folder = Path(tempfile.gettempdir()) / f"trainhouse-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    file = folder / str(port)
    try:
        if time.time() - file.stat().st_mtime > KEPT_S:
            file.unlink(missing_ok=True)
    except FileNotFoundError:
        pass
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return False
    return True


def holder(port: int) -> str:
    """Process that listens on `port`, for a message: `name (pid 123)`, or a phrase if the kernel does not name it."""
    try:
        connections = psutil.net_connections(kind="tcp")
    except psutil.AccessDenied:
        return "a process that this user may not see"
    for connection in connections:
        if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port:
            return describe(connection.pid)
    return "a process that this user may not see"


def refuse_busy(part: str, wanted: Iterable[int]) -> None:
    """PortBusyError if a port that `part` needs is taken; names the port, its holder and the way out."""
    for port in wanted:
        if not is_free(port):
            raise PortBusyError(
                f"port {port}, which {part} needs, is taken by {holder(port)}: stop that, or choose other ports "
                "(`trainhouse up --ports auto`, or `--ports BASE`)"
            )


def describe(pid: int | None) -> str:
    """A process in words: its command's name and pid."""
    if pid is None:
        return "a process of another user"
    try:
        return f"{psutil.Process(pid).name()} (pid {pid})"
    except psutil.NoSuchProcess:
        return f"pid {pid}, which just ended"


def listening(pids: set[int]) -> list[tuple[str, int]]:
    """Every (address, port) on which one of `pids` listens."""
    return sorted(
        (connection.laddr.ip, connection.laddr.port)
        for connection in psutil.net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN and connection.pid in pids and connection.laddr
    )
