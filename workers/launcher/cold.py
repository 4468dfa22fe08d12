"""The cold start: `python -m trainhouse.workers.launcher.cold REPLY_FD [STORE_FD]` reads an order from stdin and keeps its ranks.

Holds: imports no torch, so it is there within some tens of milliseconds. It leaves its parent at once (a second fork), so that nobody
has to reap it. Runs any command, by exec.
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from trainhouse.workers.launcher import store_walls
from trainhouse.workers.launcher.keeper import ENDINGS, Enter, Store, become_keeper, keep
from trainhouse.workers.launcher.output import RankOutput
from trainhouse.workers.launcher.request import Order, RankOrder, StoreOrder


class Executor:
    """Spawns ranks by exec, each in a session of its own."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []  # kept: a collected Popen would reap the rank behind our back

    def spawn(self, order: RankOrder, output: RankOutput, enter: Enter) -> int:
        process = subprocess.Popen(
            order.argv,
            env=dict(order.env),
            stdin=subprocess.DEVNULL,
            stdout=output.stdout,
            stderr=output.stderr,
            start_new_session=True,
            preexec_fn=enter,
        )
        self._processes.append(process)
        return process.pid

    def go(self) -> None:
        """They run already."""


def _become_store(folder: Path) -> None:
    """From its first instruction on it passes endings over: ranks that end still need their store, which leaves with its keeper."""
    store_walls.log_to(folder)
    for number in ENDINGS:
        signal.signal(number, signal.SIG_IGN)


class StoreProcess:
    """The rendezvous store in a child of its own, since this process has no torch."""

    def __init__(self, order: StoreOrder, fd: int, folder: Path) -> None:
        arguments = [str(fd), order.address, str(order.port), str(order.world_size)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "trainhouse.workers.launcher.store_host", *arguments],
            stdin=subprocess.PIPE,
            pass_fds=(fd,),
            preexec_fn=lambda: _become_store(folder),
        )
        self.pid = self._process.pid
        os.close(fd)

    def close(self) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        stdin.close()
        with suppress(PermissionError):  # a keeper in a scope: the store ends by what is closed above
            self._process.kill()
        self._process.wait()


def main() -> None:
    """Entry point."""
    fds = [int(a) for a in sys.argv[1:]]
    for fd in fds:
        os.set_inheritable(fd, False)
    order = Order.loads(sys.stdin.buffer.read())
    if os.fork():
        os._exit(0)
    become_keeper(order, warm=False)

    def host_store(store: StoreOrder) -> Store:
        return StoreProcess(store, fds[1], order.attempt.folder)

    keep(order, fds[0], Executor(), host_store)
    os._exit(0)


if __name__ == "__main__":
    main()
