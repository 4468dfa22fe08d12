"""The rank's end of its upload process: starts it, hands staged memory to it, starts another when it was killed.

Holds: the process starts before the first save. It is forked while this process has one thread and no device, otherwise it is an
interpreter of its own: a fork of several threads may find locks that are never opened. What is uploaded is read from the shared arena, so
that a request is small, and the thread that waits for the answer leaves the interpreter to training. A process that is silent for long is
killed; after FUTILE_STARTS that died in a row, this process uploads itself.
Never: sends a credential by an argument or the environment of a process.
"""

import os
import signal
import socket
import struct
import subprocess  # nosec B404  # starts this package's own module
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

from trainhouse.checkpointing.chain.chunks import ChunkStore, Sent
from trainhouse.checkpointing.errors import CheckpointError, SaveFailedError
from trainhouse.checkpointing.peer_memory.holder_client import Source
from trainhouse.checkpointing.peer_memory.peers import Grant, Peers
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.staging.arena import Arena
from trainhouse.checkpointing.stores.object_store import ObjectStore
from trainhouse.checkpointing.uploading import upload_process
from trainhouse.checkpointing.uploading.upload_request import Hurry, Upload
from trainhouse.checkpointing.uploading.uploaded import Uploaded
from trainhouse.checkpointing.uploading.uploader import Bodies

SILENT_S = 60
"""A process that uploads sends a sign of life each second."""
FUTILE_STARTS = 2
LINE_BYTES = 4096
HOLDER_LOST = "the node that had copies offers no memory any more, and no other node of the pool does (TRAINHOUSE_AGENT_PEER_MEMORY_GIB)"


class UploadHelper:
    """One upload process. `store`: the settings of the object store, or a store that can be pickled."""

    def __init__(self, store: StoreSettings | ObjectStore) -> None:
        """Starts it. Raises OSError."""
        self._store = store
        self.arena = Arena()
        self._connection: Connection | None = None
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._closed = False
        self._deaths = 0
        self.pid = 0
        self._reap: Callable[[], int] = int
        self._errors: IO[bytes] | None = None
        self._start()

    @property
    def futile(self) -> bool:
        """Whether so many processes in a row ended before they answered that another would, too."""
        return self._deaths >= FUTILE_STARTS

    def send(self, request: Upload) -> Uploaded:
        """Blocks until it is done. Raises SaveFailedError if the process ended or fell silent meanwhile, and what it met."""
        try:
            connection = self._connected()
            with self._writing:
                connection.send(request)
            answer = _answer(connection)
        except (EOFError, OSError) as error:
            self._deaths += 1
            raise SaveFailedError(f"{self._ended(error)}; the older checkpoints stand, and the next save starts another") from error
        self._deaths = 0
        if isinstance(answer, CheckpointError):
            raise answer
        assert isinstance(answer, Uploaded)
        return answer

    def hurry(self, save: int) -> None:
        """Has the uploads of this save go at full pace from now on. Returns at once; without a process it does nothing."""
        with self._lock, self._writing, suppress(OSError):  # of a process that has ended, which the upload itself finds
            if self._connection is not None:
                self._connection.send(Hurry(save))

    def close(self) -> None:
        """Ends the process, and gives its memory back. No other is started."""
        with self._lock:
            self._closed = True
        self._kill()
        self.arena.close()

    def _connected(self) -> Connection:
        with self._lock:
            if self._closed:
                raise SaveFailedError("the process that uploads was ended")
            if self._connection is None:
                self._start()
            assert self._connection is not None
            return self._connection

    def _start(self) -> None:
        ours, its = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SILENT_S, 0))
        errors = os.fdopen(os.memfd_create("trainhouse-upload-errors", os.MFD_CLOEXEC), "r+b", buffering=0)
        try:
            start = _fork if _may_fork() else _spawn
            self.pid, self._reap = start(its.fileno(), self.arena.fd, errors.fileno())
        except BaseException:
            ours.close()
            errors.close()
            raise
        finally:
            its.close()
        self._errors = errors
        self._connection = Connection(ours.detach())
        self._connection.send(self._store)

    def _ended(self, error: Exception) -> str:
        """Takes down what is left of the process, and describes its end."""
        pid, (status, line) = self.pid, self._kill()
        if not pid:
            return (
                "the process that uploads was ended" if isinstance(error, EOFError) else f"no process to upload could be started ({error})"
            )
        if isinstance(error, (TimeoutError, BlockingIOError)):
            return f"the process that uploads (pid {pid}) was silent for {SILENT_S} s, and was killed"
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with {status}"
        return f"the process that uploads (pid {pid}) {how}{line and f' ({line})'}"

    def _kill(self) -> tuple[int, str]:
        """Returns how it ended, a signal as a negative number, and the last line of its errors."""
        with self._lock:
            connection, self._connection = self._connection, None
            errors, self._errors = self._errors, None
            pid, self.pid = self.pid, 0
        if connection is None or errors is None:
            return 0, ""
        connection.close()  # it ends by itself at that, unless it uploads
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        try:
            status = self._reap()
        except ChildProcessError:  # a program that waits for all of its children had it first
            status = 0
        with errors:
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - LINE_BYTES))
            lines = errors.read().decode(errors="replace").strip().splitlines()
        return status, lines[-1] if lines else ""


def _answer(connection: Connection) -> Any:
    """Waits for the answer, past signs of life. Raises TimeoutError after a long silence.

    It counts short waits: a rank that was stopped with its process, and goes on with it, has waited for one.
    """
    silent_s = 0
    while silent_s < SILENT_S:
        if not connection.poll(1):
            silent_s += 1
        elif (answer := connection.recv()) is None:
            silent_s = 0
        else:
            return answer
    raise TimeoutError(f"no sign of life for {SILENT_S} s")


class HelperUploader:
    """Uploads one job's chunks by an upload process, or by `chunks` in this one where no process lasts.

    The chunks that `chunks` distrusts are sent again, whatever the store says; it is kept up to date. With `peers` the process copies
    them into the memory of another node, too; without a process they are not copied.
    """

    def __init__(
        self, helper: UploadHelper, chunks: ChunkStore, job_id: str, grace_s: float, peers: Peers | None = None, rank: int = 0
    ) -> None:
        self._helper = helper
        self._chunks = chunks
        self._job_id = job_id
        self._grace_s = grace_s
        self._peers = peers
        self._rank = rank
        self._warned = False
        self._no_copies = ""
        self._has_had_holder = False

    @property
    def arena(self) -> Arena:
        return self._helper.arena

    def send(self, bodies: Bodies, named: frozenset[str]) -> list[Sent]:
        """By the process, where one lasts."""
        if self._helper.futile:
            self._warn()
            return self._chunks.send([self.arena.view(*place) for place in bodies.places], named, pace=bodies.pace)
        distrusted = frozenset(self._chunks.distrusted)
        copies = self._copies(bodies.save, named)
        with bodies.pace.watched(lambda: self._helper.hurry(bodies.save)) as full:
            request = Upload(
                self._job_id, self._grace_s, self.arena.size_bytes, tuple(bodies.places), named, distrusted, copies, bodies.save, full
            )
            answer = self._helper.send(request)
        self._chunks.distrusted.difference_update(s.chunk.sha256 for s in answer.sent)
        if copies is not None:
            self._report_copies(answer.no_copies)
        return answer.sent

    def close(self) -> None:
        """Ends the process."""
        self._helper.close()

    def _copies(self, save: int, named: frozenset[str]) -> tuple[Grant, Source] | None:
        """The holder of this rank's chunks, asked anew for each save: it may have gone, and access ends."""
        if self._peers is None:
            return None
        grant = self._peers.holder()
        if isinstance(grant, Grant):
            self._has_had_holder = True
            return grant, Source(self._rank, save, named)
        # A pool in which no node offers memory is as its operator wants it: nothing to report.
        self._report_copies(grant or (HOLDER_LOST if self._has_had_holder else ""))
        return None

    def _report_copies(self, why: str) -> None:
        """Reports a reason when it is another than before."""
        if why and why != self._no_copies:
            sentence = f"trainhouse: not all of this rank's checkpoint is in another node's memory; the store has it: {why}"
            print(sentence, file=sys.stderr, flush=True)
        self._no_copies = why

    def _warn(self) -> None:
        if not self._warned:
            self._warned = True
            copied = self._peers is not None and self._peers.holder() is not None
            none = ", and copies nothing into other nodes' memory" if copied else ""
            sentence = "trainhouse: processes to upload checkpoints end at once; training's own process uploads them from now on"
            print(sentence + none, file=sys.stderr, flush=True)


def _may_fork() -> bool:
    torch = sys.modules.get("torch")
    has_device = torch is not None and torch.cuda.is_initialized()
    tasks = Path("/proc/self/task")
    return not has_device and tasks.is_dir() and len(list(tasks.iterdir())) == 1


def _fork(socket_fd: int, arena_fd: int, errors_fd: int) -> tuple[int, Callable[[], int]]:
    rank_pid = os.getpid()
    pid = os.fork()
    if pid:
        return pid, lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for fd, target in enumerate((nothing, nothing, errors_fd)):
            os.dup2(target, fd)
        _close_all_but({0, 1, 2, socket_fd, arena_fd})
        upload_process.serve(Connection(socket_fd), arena_fd, rank_pid)
        os._exit(0)
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(1)


def _close_all_but(kept: set[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with suppress(OSError):
                os.close(int(name))


def _spawn(socket_fd: int, arena_fd: int, errors_fd: int) -> tuple[int, Callable[[], int]]:
    # -P: a module of the program's own folder, such as a calendar.py, must not be taken for one of the library's
    command = [sys.executable, "-P", "-m", "trainhouse.checkpointing.uploading.upload_process", str(socket_fd), str(arena_fd)]
    nowhere = subprocess.DEVNULL
    process = subprocess.Popen(command, pass_fds=(socket_fd, arena_fd), stdin=nowhere, stdout=nowhere, stderr=errors_fd)  # nosec B603
    return process.pid, process.wait
