"""Turn a freshly forked process into a rank: nothing of the warm process shows but its imports.

Holds: own session, default signals, the rank's descriptors, environment, folder and random state; then the program runs as `__main__`.
Never: returns.
"""

import ctypes
import faulthandler
import gc
import io
import os
import signal
import sys
import time
from collections.abc import Callable, Collection
from typing import NoReturn

from trainhouse.workers.launcher.output import RankOutput
from trainhouse.workers.launcher.request import RankOrder
from trainhouse.workers.launcher.script import run_and_exit

PR_SET_NAME = 15


def become_rank(order: RankOrder, output: RankOutput, enter: Callable[[], None], go_fd: int, keep_fds: Collection[int]) -> NoReturn:
    """Call in the child right after the fork. Runs the program only after a byte came on `go_fd`; without it, leaves."""
    try:
        os.setsid()
        _signals()
        ctypes.CDLL(None).prctl(PR_SET_NAME, f"rank-{order.rank}".encode(), 0, 0, 0)
        os.dup2(output.stdout, 1)
        os.dup2(output.stderr, 2)
        if os.read(go_fd, 1) != b"g":
            os._exit(1)
        enter()
        _close_others(keep_fds)
        _environment(order)
        _streams()
        _library_state()
    except BaseException as error:
        os.write(2, f"the rank could not be set up: {type(error).__name__}: {error}\n".encode())
        os._exit(1)
    run_and_exit(order.argv)


def _signals() -> None:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        try:
            signal.signal(number, signal.SIG_DFL)
        except (OSError, ValueError):
            continue  # reserved by the C library
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())


def _close_others(keep: Collection[int]) -> None:
    for fd in open_fds() - {0, 1, 2, *keep}:
        os.close(fd)


def open_fds() -> frozenset[int]:
    """The descriptors that this process holds."""
    found = [int(name) for name in os.listdir("/proc/self/fd")]  # has the listing's own, which is closed by now
    return frozenset(fd for fd in found if os.path.exists(f"/proc/self/fd/{fd}"))


def _environment(order: RankOrder) -> None:
    os.environ.clear()
    os.environ.update(order.env)
    time.tzset()
    if os.environ.get("PYTHONFAULTHANDLER"):
        faulthandler.enable(file=2)


def _streams() -> None:
    """Fresh text streams over 0, 1 and 2; lines are written at once, so that a SIGKILL loses none."""
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, "r", closefd=False)), encoding="utf-8")
    sys.stdout = _writer(1, "strict")
    sys.stderr = _writer(2, "backslashreplace")
    vars(sys).update(__stdin__=sys.stdin, __stdout__=sys.stdout, __stderr__=sys.stderr)


def _writer(fd: int, errors: str) -> io.TextIOWrapper:
    raw = io.BufferedWriter(io.FileIO(fd, "w", closefd=False))
    return io.TextIOWrapper(raw, encoding="utf-8", errors=errors, line_buffering=True)


def _library_state() -> None:
    """Resets state that a fresh interpreter would have drawn or read by itself."""
    import multiprocessing.process

    import numpy as np
    import torch

    np.random.seed(int.from_bytes(os.urandom(4), "big"))
    torch.default_generator.seed()
    multiprocessing.process.ORIGINAL_DIR = os.getcwd()  # type: ignore[attr-defined]
    if os.environ.get("OMP_NUM_THREADS", "").isdigit():
        torch.set_num_threads(max(1, int(os.environ["OMP_NUM_THREADS"])))
    gc.enable()
