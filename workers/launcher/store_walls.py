"""The walls of a rendezvous store's process: ranks fill it and talk to its C++; it can neither take the machine's memory nor harm it.

Holds: entered before the process has a second thread, and for good. It keeps LIMIT_BYTES and a little for each rank, opens no file, reaches
no TCP port but its own, has no capability, and writes LOG_BYTES of messages at most. Where the kernel has no Landlock, or no filter of
system calls is known for the machine, the other walls stand.
"""

import os
import resource
import signal
import socket
from contextlib import suppress
from pathlib import Path

import psutil

from trainhouse import landlock
from trainhouse.workers.confinement import seccomp, system
from trainhouse.workers.confinement.system import ConfinementError

LIMIT_BYTES = 512 * 2**20
BYTES_A_RANK = 2**20
SLACK_BYTES = 32 * 2**20  # torch takes values of 8 MiB at most: nearer to the limit than this, the next one is refused
LOG_BYTES = 2**20
LOG = "store.log"


def limit_of(world_size: int) -> int:
    """Returns the most bytes that the store of a gang may hold."""
    return LIMIT_BYTES + BYTES_A_RANK * world_size


def enclose(port: int, world_size: int) -> None:
    """Encloses the calling process, which has one thread. Raises ConfinementError, LandlockError or OSError."""
    most = psutil.Process().memory_info().data + limit_of(world_size)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    resource.setrlimit(resource.RLIMIT_FSIZE, (LOG_BYTES, LOG_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with suppress(ConfinementError):  # one that is not privileged has nothing to drop
        system.drop_bounding_set()
    system.drop_capabilities()
    system.prctl(system.PR_SET_NO_NEW_PRIVS, 1)
    version = landlock.abi()
    ports = version >= landlock.PORTS_SINCE_ABI
    landlock.restrict((), (), (port,) if ports else None, () if ports else None, scoped=version >= landlock.SCOPES_SINCE_ABI)
    machine = os.uname().machine
    if seccomp.known(machine):
        system.load_filter(seccomp.program(machine, tracing=False))


def numeric(fd: int, address: str) -> str:
    """Numeric address of the socket for the store's own client: names cannot be looked up within the walls."""
    with socket.socket(fileno=os.dup(fd)) as listener:
        named = str(listener.getsockname()[0])
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(named, named) or address  # nosec B104  # what is listened on, as connecting names it


def log_to(folder: Path) -> None:
    """Standard output and error go to a file of the store's own."""
    fd = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)


def words_of(pid: int) -> str:
    """Describes the store's fault when a rank failed: that it is full, or gone; else empty."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return "the gang's rendezvous store ended before its ranks did"
        most = process.rlimit(psutil.RLIMIT_DATA)[0]
        if most < 0 or process.memory_info().data < most - SLACK_BYTES:
            return ""
    except psutil.Error:
        return "the gang's rendezvous store ended before its ranks did"
    return (
        "the gang's rendezvous store reached its limit of memory and takes no more: ranks put too much into it;"
        " pass large values by collectives or files"
    )
