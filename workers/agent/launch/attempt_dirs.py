"""The agent's folder: the lock, the fences and order tokens, and what each attempt's folder says of it.

Holds: one agent per folder. An attempt's folder without a finish mark is an attempt that a restarted agent must account for.
"""

import fcntl
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from trainhouse.events import GangAllocated, Order
from trainhouse.events.model.bounds import read_stored
from trainhouse.workers.agent.atomic_files import write_atomically
from trainhouse.workers.agent.core import AgentState, AttemptKey, Identity
from trainhouse.workers.agent.core.agent_state import Fence
from trainhouse.workers.agent.errors import CorruptStateError, FolderBusyError
from trainhouse.workers.launcher import AttemptPaths
from trainhouse.workers.launcher.ports import NUMBERED

FINISHED = "finished.json"
_NAMED = re.compile(rf"{NUMBERED}-?\d+|\d+")  # by number, or by epoch as before


class FolderLock:
    """Held for the agent's life; the kernel frees it when the agent dies, however it dies."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)  # attempts' folders are their jobs' and the agent's: nobody else on this machine reads them
        self._path = folder / "agent.lock"
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._fd)
            raise FolderBusyError(
                f"another agent (pid {holder}) holds the folder {folder}; stop it, or give this one its own: TRAINHOUSE_AGENT_DIR"
            ) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        os.close(self._fd)


class StateFile:
    """Fences, order tokens, and the partition that was written to last, on disk. `save` writes only what changed."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "state.json"
        self._saved = b""

    def load(self, identity: Identity) -> AgentState:
        """The state of the agent before, without its attempts. Raises CorruptStateError."""
        try:
            raw = self._path.read_bytes()
        except FileNotFoundError:
            return AgentState(identity)
        try:
            data = orjson.loads(raw)
            fences = {str(j): Fence(int(f[0]), int(f[1])) for j, f in data["fences"]}
            order = {o.partition: o for o in (Order.parse(text) for text in data["order"])}
            pool, control, cluster = data.get("control", ("", None, ""))  # agents of before wrote none
            control = None if control is None or pool != identity.pool else int(control)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise CorruptStateError(
                f"{self._path} cannot be read ({error}); it fences old attempts off: move it away only if no job runs on this node"
            ) from error
        self._saved = raw
        return AgentState(identity, fences=fences, order=order, control=control, cluster=str(cluster))

    def save(self, state: AgentState) -> None:
        """Durable when it returns; costs nothing when nothing changed."""
        data = {"fences": [(j, (f.seen, f.ended)) for j, f in state.fences.items()], "order": [str(o) for o in state.order.values()]}
        if state.control is not None:
            data["control"] = [state.identity.pool, state.control, state.cluster]
        raw = orjson.dumps(data)
        if raw != self._saved:
            write_atomically(self._path, raw)
            self._saved = raw


@dataclass(frozen=True)
class FoundAttempt:
    """An attempt's folder: what it was to run, in which boot, and whether nothing more will come of it."""

    paths: AttemptPaths
    allocation: GangAllocated
    boot_id: str
    finished: bool
    shipped: bool


def record_allocation(paths: AttemptPaths, allocation: GangAllocated, boot_id: str) -> None:
    """The first thing in an attempt's folder. A power cut may lose it, but with it go the processes and the boot."""
    paths.folder.mkdir(parents=True, exist_ok=True)
    write_atomically(paths.spec, allocation.spec.canonical_json(), durable=False)
    content = {"boot_id": boot_id, "allocation": orjson.Fragment(allocation.model_dump_json())}
    write_atomically(paths.allocation, orjson.dumps(content), durable=False)


def mark_finished(paths: AttemptPaths, **facts: Any) -> None:
    """AttemptStopped is with the brokers (`shipped`: and every byte of the files)."""
    if paths.folder.is_dir():
        write_atomically(paths.folder / FINISHED, orjson.dumps(facts), durable=False)


def found_attempts(agent_dir: Path) -> Iterator[FoundAttempt]:
    """Every attempt's folder that holds an allocation, oldest epoch of a job first."""
    root = agent_dir / "attempts"
    for job in sorted(root.iterdir()) if root.is_dir() else ():
        named = [AttemptPaths(e) for e in job.iterdir() if _NAMED.fullmatch(e.name)] if job.is_dir() else []
        for paths in sorted(named, key=lambda p: p.epoch):
            found = _found(paths)
            if found is not None:
                yield found


def _found(paths: AttemptPaths) -> FoundAttempt | None:
    try:
        data = orjson.loads(paths.allocation.read_bytes())
        allocation = read_stored(GangAllocated, data["allocation"], "ignore")
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None  # cut off before anything was started
    try:
        mark = orjson.loads((paths.folder / FINISHED).read_bytes())
    except (FileNotFoundError, ValueError):
        mark = None
    return FoundAttempt(paths, allocation, str(data.get("boot_id", "")), mark is not None, bool(mark and mark.get("shipped")))


def key_of(allocation: GangAllocated) -> AttemptKey:
    return AttemptKey(allocation.job_id, int(allocation.epoch))
