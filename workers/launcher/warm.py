"""The warm process: it has imported torch and waits to be forked. `python -m trainhouse.workers.launcher.warm FD` is started by Launcher.

Holds: one thread, no device, no client, no state of any job, and no line of a job's code: that runs in forks alone, once they are
confined. It ends when the launcher at the other end of FD is gone; keepers that it forked, and their ranks, stay.
Never: reads an order. Its memory is what every later job's ranks inherit, so the keeper reads the order, after the fork.
"""

import ctypes
import gc
import json
import os
import signal
import socket
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

from trainhouse.workers.launcher import store_walls
from trainhouse.workers.launcher.keeper import Enter, become_keeper, keep
from trainhouse.workers.launcher.output import RankOutput
from trainhouse.workers.launcher.preload import preload
from trainhouse.workers.launcher.rank import become_rank, open_fds
from trainhouse.workers.launcher.request import Order, RankOrder, StoreOrder, receive, send


class Forker:
    """Spawns ranks by fork. They wait for `go`: should the keeper die before, they leave without having run anything."""

    def __init__(self, keep_fds: frozenset[int]) -> None:
        self._keep_fds = keep_fds
        self._reader, self._writer = os.pipe()
        self._ranks = 0

    def spawn(self, order: RankOrder, output: RankOutput, enter: Enter) -> int:
        pid = os.fork()
        if pid == 0:
            os.close(self._writer)
            become_rank(order, output, enter, self._reader, self._keep_fds)
        self._ranks += 1
        return pid

    def go(self) -> None:
        os.write(self._writer, b"g" * self._ranks)
        os.close(self._reader)
        os.close(self._writer)


def hosted_store(order: StoreOrder, fd: int) -> object:
    """torch's TCPStore server in this process, on a socket that listens already; encloses the process for good."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    address = store_walls.numeric(fd, order.address)
    store_walls.enclose(order.port, order.world_size)
    return TCPStore(address, order.port, order.world_size, True, timedelta(seconds=60), wait_for_workers=False, master_listen_fd=fd)


class ForkedStore:
    """The gang's store in a child: it has threads, which a keeper may not have, and walls of its own. It ends when its keeper does."""

    def __init__(self, order: StoreOrder, fd: int, folder: Path) -> None:
        reader, self._writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self._host(order, fd, reader, folder)
        os.close(reader)
        os.close(fd)

    def _host(self, order: StoreOrder, fd: int, reader: int, folder: Path) -> NoReturn:
        code = 1
        try:
            for other in open_fds() - {0, 1, 2, fd, reader}:
                os.close(other)
            store_walls.log_to(folder)
            store = hosted_store(order, fd)  # noqa: F841  # held until the end
            os.read(reader, 1)
            code = 0  # with no look back at the store: what ranks did to it may not hold up its end
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)

    def close(self) -> None:
        os.close(self._writer)
        with suppress(ProcessLookupError, PermissionError):  # a keeper in a scope: the store ends by what is closed above
            os.kill(self.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def serve(channel: socket.socket) -> None:
    """Fork a keeper for every order, until the launcher is gone. Blocks."""
    keep_fds = open_fds() - {channel.fileno()}
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers need no reaping
    while True:
        try:
            _, fds = receive(channel)
        except EOFError:
            return
        if os.fork() == 0:
            channel.close()
            _keeper(fds, keep_fds)
        for fd in fds:
            os.close(fd)


def _keeper(fds: list[int], keep_fds: frozenset[int]) -> NoReturn:
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        with open(fds[0], "rb") as file:
            order = Order.loads(file.read())
        become_keeper(order, warm=True)
        keep(order, fds[1], Forker(keep_fds), lambda store: ForkedStore(store, fds[2], order.attempt.folder))
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def main() -> None:
    """Entry point: import, say hello, serve."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    preload()
    gc.collect()
    gc.freeze()
    ctypes.CDLL(None).malloc_trim(0)  # 10 MB that imports took for a moment
    send(channel, json.dumps({"modules": sorted({name.partition(".")[0] for name in sys.modules})}).encode())
    serve(channel)
    os._exit(0)  # tearing torch down takes time and talks


if __name__ == "__main__":
    main()
