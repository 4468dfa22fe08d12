"""A server as a child process: start, wait until it answers, stop, kill; by pid, never by name.

Always: the child dies with its parent (the kernel's parent-death signal), its output goes to a file, and an end during
the start is an error that carries the last lines of that file.  Never: a shell, a pipe that could fill up.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from trainhouse.deploy.local import free_ports
from trainhouse.deploy.local.errors import NotReadyError

PR_SET_PDEATHSIG = 1
POLL_S = 0.05
LOG_TAIL_BYTES = 2_000
# What a server makes is its owner's alone, sockets in shared folders included.
PRIVATE_UMASK = 0o077


def die_with_parent(signum: int = signal.SIGKILL) -> Callable[[], None]:
    """A `preexec_fn` of a child of this process that asks the kernel to signal it when this process ends, `kill -9` included."""
    libc = ctypes.CDLL(None, use_errno=True)  # loaded before the fork: the child only makes the call
    parent = os.getpid()

    def tie() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signum, 0, 0, 0)
        if os.getppid() != parent:  # it has ended before it was asked
            os._exit(128 + signum)

    return tie


def tail(path: Path, limit_bytes: int = LOG_TAIL_BYTES) -> str:
    """The last bytes of a log file as text, for error messages; empty if there is none."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - limit_bytes))
        return file.read().decode(errors="replace")


class Server(ABC):
    """One server in one folder: usable as a context manager, or as a command line for a supervisor."""

    name: str
    ready_timeout_s: float = 60.0
    stop_timeout_s: float = 20.0

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder).absolute()
        self._child: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def prepare(self) -> None:
        """Make folders and configuration; harmless when repeated; blocks, up to seconds the first time."""

    @abstractmethod
    def command(self) -> list[str]:
        """The command line, to be run after `prepare`."""

    def environment(self) -> Mapping[str, str]:
        """Variables to add to the child's environment."""
        return {}

    @abstractmethod
    def listens(self) -> list[int]:
        """Every port that it binds on loopback."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether the server does its work now; blocks for a second at most; never raises for a server that is away."""

    @property
    def log_file(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def pid(self) -> int:
        """The running child's pid; NotReadyError when there is none."""
        if self._child is None or self._child.poll() is not None:
            raise NotReadyError(f"{self.name} is not running: call start() first")
        return self._child.pid

    def start(self) -> None:
        """Prepare, start the child and wait until it answers; NotReadyError if it ends or stays silent."""
        self.prepare()
        free_ports.refuse_busy(self.name, self.listens())
        with self.log_file.open("ab") as log:
            self._child = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment()},
                preexec_fn=die_with_parent(),
                start_new_session=True,
                umask=PRIVATE_UMASK,
            )
        try:
            self.wait_ready()
        except BaseException:
            self.kill()
            raise

    def wait_ready(self, timeout_s: float | None = None) -> None:
        """Block until the server answers; NotReadyError after `timeout_s`, or at once when the child has ended."""
        limit_s = self.ready_timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit_s
        while not self.answers():
            code = self._child.poll() if self._child else None
            if code is not None:
                raise NotReadyError(f"{self.name} ended with status {code} while starting:\n{tail(self.log_file)}")
            if time.monotonic() > deadline:
                raise NotReadyError(f"{self.name} did not answer within {limit_s:g} s:\n{tail(self.log_file)}")
            time.sleep(POLL_S)

    def stop(self) -> None:
        """SIGTERM, wait, and SIGKILL if it does not end in time; nothing if it is not running."""
        if self._child is None:
            return
        self._child.terminate()
        try:
            self._child.wait(self.stop_timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
        self._child = None

    def kill(self) -> None:
        """SIGKILL, as a crash would; blocks until the kernel has taken the child away."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
