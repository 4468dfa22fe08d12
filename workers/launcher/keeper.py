"""The keeper: parent of all ranks of one attempt on one node. It starts them, masks their output, and records how each one ended.

Holds: it lives in a session of its own and outlives the agent; being a subreaper, every process of the attempt descends from it.
A rank's exit.json is written after all of its output. When the last rank is gone, what ranks left behind is killed, and the keeper ends.
Never: runs a thread before its ranks are forked, restarts a rank, or reads Kafka.
Never: leaves a core dump of a rank that has secrets, or the folder of these.
"""

import ctypes
import json
import os
import selectors
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil

from trainhouse.workers.confinement.plan import Confinement
from trainhouse.workers.confinement.sandbox import Sandbox
from trainhouse.workers.confinement.system import without_core_dumps
from trainhouse.workers.launcher.output import RankOutput
from trainhouse.workers.launcher.processes import kill_all, write_exit, write_process
from trainhouse.workers.launcher.request import Order, RankOrder, StoreOrder
from trainhouse.workers.launcher.store_walls import words_of

# What asks a program to end. It is the agent that lets a keeper and its store go, not these.
ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
LEFTOVER_GRACE_S = 1.0
PR_SET_CHILD_SUBREAPER = 36

ORPHANS_EVERY_S = 5.0


Enter = Callable[[], None]


class Spawner(Protocol):
    """Start of a rank: forked, or executed."""

    def spawn(self, order: RankOrder, output: RankOutput, enter: Enter) -> int:
        """Make the rank's process, in a session of its own, and return its pid. It need not run the program before `go`.

        It calls `enter` in the new process, before anything of the job's runs.
        """

    def go(self) -> None:
        """All ranks are recorded: let them run."""


class Store(Protocol):
    """A rendezvous store that answers until it is closed, in a process of its own, which may end before."""

    pid: int

    def close(self) -> None: ...


@dataclass
class _Running:
    order: RankOrder
    pid: int
    pidfd: int
    output: RankOutput


def become_keeper(order: Order, warm: bool) -> None:
    """Leave the agent's session, adopt orphans, and say in the attempt's folder who we are. Call it in the process that will keep."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    log = os.open(order.attempt.folder / "keeper.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    if any(rank.secrets for rank in order.ranks):
        without_core_dumps()
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    for fd in {null, log} - {0, 1, 2}:
        os.close(fd)
    # Heard and passed over, not ignored: what is ignored stays so in every program that a cold keeper starts, and then a rank that
    # does nothing about SIGTERM would not end by it.
    for number in ENDINGS:
        signal.signal(number, _pass_over)
    write_process(order.attempt.keeper, os.getpid(), warm=warm)


def _pass_over(number: int, frame: object) -> None:
    """A keeper stays until its ranks are gone."""


def keep(order: Order, reply_fd: int, spawner: Spawner, host_store: Callable[[StoreOrder], Store]) -> None:
    """Start the ranks, answer on `reply_fd` with their pids (or the error), and stay until the attempt is over. Blocks."""
    running: list[_Running] = []
    store: Store | None = None
    sandbox: Sandbox | None = None
    try:
        if order.confinement is not None:
            # Its process is born before the namespaces: whoever is born after is born in them.
            store = host_store(order.store) if order.store else None
            sandbox = _open_sandbox(order, order.confinement)
            if store:
                sandbox.groups.add(store.pid)  # what its ranks put there counts as theirs
            sandbox.scope()
        for rank in order.ranks:
            running.append(_start(rank, spawner, sandbox))
    except Exception as error:
        if store:
            store.close()
        if sandbox:
            sandbox.close()
        for started in running:
            os.kill(started.pid, signal.SIGKILL)
            os.waitpid(started.pid, 0)
        _remove_secrets(order)
        retryable = not isinstance(error, FileNotFoundError | PermissionError)
        _reply(reply_fd, {"error": f"{type(error).__name__}: {error}", "retryable": retryable})
        return
    spawner.go()
    _reply(reply_fd, {"pids": {r.order.rank: r.pid for r in running}, "keeper": os.getpid()})
    if order.confinement is None and order.store:
        store = host_store(order.store)
    _watch(running, sandbox, store)
    if store:
        store.close()
    _sweep(sandbox)
    _remove_secrets(order)


def _remove_secrets(order: Order) -> None:
    """Removes the attempt's secrets: no process is left to read them, and the agent may be gone by now."""
    for folder in secrets_of(order):
        shutil.rmtree(folder, ignore_errors=True)


def secrets_of(order: Order) -> set[str]:
    """The folders of the attempt's secrets: one, or none."""
    return {rank.secrets_dir for rank in order.ranks if rank.secrets_dir}


def _open_sandbox(order: Order, confinement: Confinement) -> Sandbox:
    attempt = order.attempt
    own = [attempt.code, *(rank.paths.own for rank in order.ranks), *map(Path, secrets_of(order))]
    sandbox = Sandbox.open(attempt.folder, own, confinement)
    record = sandbox.record()
    write_process(attempt.confinement, record.pop("pid"), **record)
    return sandbox


def _start(order: RankOrder, spawner: Spawner, sandbox: Sandbox | None) -> _Running:
    paths = order.paths
    paths.folder.mkdir(parents=True, exist_ok=True)
    output = RankOutput.open(paths, order.secrets, order.secrets_dir)

    def enter() -> None:
        if sandbox is not None:
            sandbox.enter(order.cwd)
        else:
            os.chdir(order.cwd)

    pid = spawner.spawn(order, output, enter)
    write_process(paths.pid, pid)
    output.close_writers()
    return _Running(order, pid, os.pidfd_open(pid), output)


def _reply(fd: int, answer: object) -> None:
    try:
        os.write(fd, json.dumps(answer).encode())
    except BrokenPipeError:
        pass  # the agent died meanwhile: the one after it finds us by the attempt's folder
    os.close(fd)


def _watch(running: list[_Running], sandbox: Sandbox | None, store: Store | None) -> None:
    """Pump output and record exits until every rank is gone."""
    kept = {r.pid for r in running} | ({store.pid} if store else set())
    selector = selectors.DefaultSelector()
    for r in running:
        selector.register(r.pidfd, selectors.EVENT_READ, r)
        for pump in r.output.pumps:
            selector.register(pump.source, selectors.EVENT_READ, pump)
    left = len(running)
    while left:
        found = selector.select(ORPHANS_EVERY_S)
        if not found:
            _reap_orphans(kept)
        for key, _ in found:
            if not isinstance(key.data, _Running):
                if not key.data.pump():
                    selector.unregister(key.fileobj)
                continue
            selector.unregister(key.fileobj)
            _ended(key.data, sandbox, store)
            left -= 1
    for r in running:
        r.output.close()


def _ended(r: _Running, sandbox: Sandbox | None, store: Store | None) -> None:
    _, status = os.waitpid(r.pid, 0)
    os.close(r.pidfd)
    r.output.drain()
    noted = (sandbox.out_of_memory() if sandbox is not None and status else "", words_of(store.pid) if store and status else "")
    write_exit(r.order.paths, status, "; ".join(filter(None, noted)))


def _reap_orphans(kept: set[int]) -> None:
    """Collect adopted processes that ended, but leave ranks and store to who waits for them."""
    for child in psutil.Process().children():
        if child.pid not in kept and child.status() == psutil.STATUS_ZOMBIE:
            try:
                os.waitpid(child.pid, os.WNOHANG)
            except ChildProcessError:
                pass


def _sweep(sandbox: Sandbox | None) -> None:
    """Give what the ranks left behind a moment, then kill it: its devices are to be free. Stays as long as any of it does."""
    first = sandbox.pid if sandbox is not None else None
    patience_s, pause_s = LEFTOVER_GRACE_S, 0.02
    while True:
        _reap_orphans(set())
        left = [p for p in psutil.Process().children(recursive=True) if _runs(p)]
        if not left:
            break
        if sandbox is not None and [p.pid for p in left] == [first]:
            sandbox.close()
        elif patience_s <= 0:
            print(f"keeper: killing {len(left)} processes that the ranks left behind: {[p.pid for p in left]}", file=sys.stderr, flush=True)
            kill_all(left)
            if sandbox is not None:
                sandbox.close()  # commands beside the ranks are in scopes of their own, which a keeper may not signal
            pause_s = min(1.0, 2 * pause_s)
        time.sleep(pause_s)
        patience_s -= pause_s
    if sandbox is not None:
        sandbox.groups.remove()


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
