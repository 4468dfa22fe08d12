"""The rank's end of its upload process: starts it, hands staged memory to it, starts another when it was killed.

Holds: the process starts before the first save. It is forked while this process has one thread and no device, otherwise it is an
interpreter of its own: a fork of several threads may find locks that are never opened. What is uploaded is read from the shared arena, so
that a request is small, and the thread that waits for the answer leaves the interpreter to training.
Never: sends a credential by an argument or the environment of a process.
"""

import os
import signal
import socket
import subprocess  # nosec B404  # starts this package's own module
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from trainhouse.checkpointing.chain.chunks import Sent
from trainhouse.checkpointing.errors import CheckpointError, SaveFailedError
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.staging.arena import Arena
from trainhouse.checkpointing.stores.object_store import ObjectStore
from trainhouse.checkpointing.uploading import upload_process
from trainhouse.checkpointing.uploading.upload_process import Upload
from trainhouse.checkpointing.uploading.uploader import Bodies


class UploadHelper:
    """One upload process. `store`: the settings of the object store, or a store that can be pickled."""

    def __init__(self, store: StoreSettings | ObjectStore) -> None:
        """Starts it. Raises OSError."""
        self._store = store
        self.arena = Arena()
        self._connection: Connection | None = None
        self.pid = 0
        self._reap: Callable[[], int] = int
        self._start()

    def send(self, request: Upload) -> list[Sent]:
        """Blocks until it is done. Raises SaveFailedError if the process ended meanwhile, and what it met."""
        try:
            if self._connection is None:
                self._start()
            assert self._connection is not None
            self._connection.send(request)
            answer = self._connection.recv()
        except (EOFError, OSError) as error:
            raise SaveFailedError(f"{self._ended(error)}; the older checkpoints stand, and the next save starts another") from error
        if isinstance(answer, CheckpointError):
            raise answer
        return list(answer)

    def close(self) -> None:
        """Ends the process, and gives its memory back."""
        if self._connection is not None:
            self._kill()
        self.arena.close()

    def _start(self) -> None:
        ours, its = socket.socketpair()
        try:
            start = _fork if _may_fork() else _spawn
            self.pid, self._reap = start(its.fileno(), self.arena.fd)
        except BaseException:
            ours.close()
            raise
        finally:
            its.close()
        self._connection = Connection(ours.detach())
        self._connection.send(self._store)

    def _ended(self, error: Exception) -> str:
        """Takes down what is left of the process, and describes its end."""
        pid, status = self.pid, self._kill() if self._connection is not None else 0
        if not pid:
            return (
                "the process that uploads was ended" if isinstance(error, EOFError) else f"no process to upload could be started ({error})"
            )
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with {status}"
        return f"the process that uploads (pid {pid}) {how}"

    def _kill(self) -> int:
        """Returns how it ended, a signal as a negative number."""
        connection, self._connection = self._connection, None
        assert connection is not None
        connection.close()  # it ends by itself at that, unless it uploads
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.pid, reap = 0, self._reap
        try:
            return reap()
        except ChildProcessError:  # a program that waits for all of its children had it first
            return 0


class HelperUploader:
    """Uploads one job's chunks by an upload process. `distrusted`: chunks to send again, whatever the store says; it is kept up to date."""

    def __init__(self, helper: UploadHelper, job_id: str, grace_s: float, distrusted: set[str]) -> None:
        self._helper = helper
        self._job_id = job_id
        self._grace_s = grace_s
        self._distrusted = distrusted

    @property
    def arena(self) -> Arena:
        return self._helper.arena

    def send(self, bodies: Bodies, named: frozenset[str]) -> list[Sent]:
        """By the process."""
        distrusted = frozenset(self._distrusted)
        sent = self._helper.send(
            Upload(self._job_id, self._grace_s, self.arena.size_bytes, tuple(bodies.places), named, distrusted=distrusted)
        )
        self._distrusted.difference_update(s.chunk.sha256 for s in sent)
        return sent

    def close(self) -> None:
        """Ends the process."""
        self._helper.close()


def _may_fork() -> bool:
    torch = sys.modules.get("torch")
    has_device = torch is not None and torch.cuda.is_initialized()
    tasks = Path("/proc/self/task")
    return not has_device and tasks.is_dir() and len(list(tasks.iterdir())) == 1


def _fork(socket_fd: int, arena_fd: int) -> tuple[int, Callable[[], int]]:
    rank_pid = os.getpid()
    pid = os.fork()
    if pid:
        return pid, lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(nothing, fd)
        _close_all_but({0, 1, 2, socket_fd, arena_fd})
        upload_process.serve(Connection(socket_fd), arena_fd, rank_pid)
    finally:
        os._exit(0)


def _close_all_but(kept: set[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with suppress(OSError):
                os.close(int(name))


def _spawn(socket_fd: int, arena_fd: int) -> tuple[int, Callable[[], int]]:
    command = [sys.executable, "-m", "trainhouse.checkpointing.uploading.upload_process", str(socket_fd), str(arena_fd)]
    nowhere = subprocess.DEVNULL
    process = subprocess.Popen(command, pass_fds=(socket_fd, arena_fd), stdin=nowhere, stdout=nowhere, stderr=nowhere)  # nosec B603
    return process.pid, process.wait
