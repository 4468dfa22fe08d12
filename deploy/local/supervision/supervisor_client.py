"""Speaks to the supervisor of a data folder over its Unix socket: start parts, ask for their state, shut down.

Always: a bounded wait.  Never: a guess from pid files; the supervisor itself answers, or there is none.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast
from xmlrpc.client import Fault, ServerProxy  # nosec B411  # a unix socket in a folder of our own, mode 0700

from supervisor.xmlrpc import Faults, SupervisorTransport

from trainhouse.deploy.local.errors import AlreadyRunningError, NotRunningError
from trainhouse.deploy.local.layout import StackFolder

POLL_S = 0.05


@dataclass(frozen=True)
class PartState:
    """One part as the supervisor sees it. `pid` is 0 when it does not run.

    `exit_status`: of the run that ended last, -1 where it was killed.
    """

    name: str
    pid: int
    state: str
    restarts: int
    exit_status: int = 0


def proxy(folder: StackFolder) -> Any:
    """The supervisor's XML-RPC interface; calls raise OSError when nobody listens."""
    transport = SupervisorTransport(None, None, f"unix://{folder.socket}")
    return ServerProxy("http://localhost", transport=transport)


def supervisor_pid(folder: StackFolder) -> int | None:
    """The supervisor's pid, None when there is none."""
    try:
        return int(proxy(folder).supervisor.getPID())
    except (OSError, Fault):
        return None


def states(folder: StackFolder) -> list[PartState]:
    """All parts in the order of their start; NotRunningError without a supervisor."""
    try:
        remote = proxy(folder)
        found = cast(list[dict[str, Any]], remote.supervisor.getAllProcessInfo())
        restarts = cast(dict[str, int], remote.trainhouse.restarts())
    except (OSError, Fault) as error:
        raise NotRunningError(f"no stack runs on {folder.root}: `trainhouse up --data-dir {folder.root}` starts it") from error
    return [
        PartState(each["name"], each["pid"], each["statename"], restarts.get(each["name"], 0), each.get("exitstatus") or 0)
        for each in found
    ]


def start(folder: StackFolder, group: str, name: str) -> None:
    """Start a part, unless it runs; without waiting for it."""
    with _already(Faults.ALREADY_STARTED):
        proxy(folder).supervisor.startProcess(f"{group}:{name}", False)


def load(folder: StackFolder) -> None:
    """Have the supervisor import what own parts share, before the first of them starts. Blocks for a few seconds."""
    proxy(folder).trainhouse.load()


def stop(folder: StackFolder, group: str, name: str) -> None:
    """Stop a part, if it runs, and wait until it has ended."""
    with _already(Faults.NOT_RUNNING):
        proxy(folder).supervisor.stopProcess(f"{group}:{name}", True)


def signal(folder: StackFolder, group: str, name: str, signal_name: str) -> None:
    """Send a part a signal; one that it ends by makes the supervisor start it again."""
    proxy(folder).supervisor.signalProcess(f"{group}:{name}", signal_name)


def replace(folder: StackFolder, group: str, name: str) -> None:
    """Kill a part that the supervisor starts again by itself; start it where it does not run."""
    try:
        signal(folder, group, name, "KILL")
    except Fault as fault:
        if fault.faultCode != Faults.NOT_RUNNING:
            raise
        start(folder, group, name)


@contextmanager
def _already(code: int) -> Iterator[None]:
    """Ignores the fault of this code: the process is in the requested state already."""
    try:
        yield
    except Fault as fault:
        if fault.faultCode != code:
            raise


def shut_down(folder: StackFolder, timeout_s: float) -> bool:
    """Stop all parts and the supervisor; blocks until the folder's lock is free; False if it was not in time."""
    try:
        proxy(folder).supervisor.shutdown()
    except (OSError, Fault):
        pass  # it is shutting down already
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            with locked(folder):
                return True
        except AlreadyRunningError:
            time.sleep(POLL_S)
    return False


@contextmanager
def locked(folder: StackFolder) -> Iterator[int]:
    """Hold the folder's lock, yielding its descriptor (hand it on to keep it held); AlreadyRunningError if it is taken."""
    descriptor = os.open(folder.lock_file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            pid = supervisor_pid(folder)
            state = f"pid {pid}" if pid else "it is starting or stopping"
            raise AlreadyRunningError(
                f"a stack already runs on {folder.root} ({state}): `trainhouse ps` shows it, `trainhouse down` stops it, "
                "`--data-dir DIR` runs another one beside it"
            ) from error
        yield descriptor
    finally:
        os.close(descriptor)
