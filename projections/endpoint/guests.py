"""The projector's side of the process of guests: starts it, asks it, and starts it anew when it ends or does not answer.

Holds: what it says is data, never trusted: it is bounded, and a message that makes no sense ends it. A question has a time limit here too,
so that a text that holds the engine's parser costs this process nothing.
Never: gives it more than its tables, its limits and one socket.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as Late
from dataclasses import asdict
from pathlib import Path
from typing import Any

import structlog

from trainhouse.projections.endpoint.engine import TOO_MANY_QUERIES, Limits, QueryResult
from trainhouse.projections.endpoint.frames import FrameError, receive, send
from trainhouse.projections.errors import QueryRefusedError

log = structlog.get_logger(__name__)

START_S = 120.0
GRACE_S = 10.0
PAUSE_S = 1.0
IDLE_S = 600.0
# An answer's bytes in its format may be more than the engine counts for its rows.
MAX_ANSWER_RATIO = 4
KEPT_VARIABLES = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
Answer = tuple[dict[str, Any], bytes]


class GuestProcess:
    """`query` as a ReadPool's, in a process of its own; blocks, from any thread. `start` once; `close` at the end.

    The process begins with the first question and ends after `idle_s` without one: it takes 145 MB, and 2% of a core to look for new parts.
    """

    def __init__(self, data: Path, tables: Sequence[Sequence[str]], limits: Limits, connections: int, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._limits = limits
        self._asked = {
            "data": str(data.resolve()),
            "tables": [list(row) for row in tables],
            "limits": asdict(limits),
            "connections": connections,
            "memory_bytes": limits.memory_bytes * connections + 512 * 1024**2,
        }
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._waiting: dict[int, Future[Answer]] = {}
        self._link: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._wanted = threading.Event()
        self._ready = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="guests", daemon=True)

    def start(self) -> None:
        """Lets it begin with the first question; one that dies is replaced."""
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """Of the process that serves now, or did last."""
        return self._process.pid if self._process is not None else None

    def query(
        self, sql: str, default_format: str, parameters: Mapping[str, str], database: str = "", wait_s: float = START_S
    ) -> QueryResult:
        """Runs one read there. Raises QueryRefusedError with ClickHouse's code, whatever goes wrong."""
        number, answer = next(self._numbers), Future[Answer]()
        asked = {"id": number, "format": default_format, "values": dict(parameters), "database": database}
        with self._lock:
            self._waiting[number] = answer  # from here on it does not end for want of questions
            self._wanted.set()
        try:
            if not self._ready.wait(wait_s):
                raise QueryRefusedError("the process for guests' SQL is starting; try again in a moment", TOO_MANY_QUERIES)
            with self._lock:
                if self._link is None:
                    raise OSError("it ended")
                send(self._link, asked, sql.encode("utf-8", "replace"))
            header, body = answer.result(self._limits.time_s + GRACE_S)
        except Late:
            self._end()
            raise QueryRefusedError("the query did not end in its time and was ended with its process", 159) from None
        except (OSError, FrameError) as error:
            raise QueryRefusedError(f"the process for guests' SQL ended: {error}; try again", TOO_MANY_QUERIES) from error
        finally:
            self._waiting.pop(number, None)
        if "refused" in header:
            raise QueryRefusedError(str(header["refused"]), int(header.get("code", 1002)))
        return QueryResult(body, str(header["format"]), int(header["read_rows"]), int(header["read_bytes"]), float(header["elapsed_s"]))

    def close(self) -> None:
        """Ends it."""
        self._closed.set()
        self._wanted.set()
        self._end()
        self._thread.join(10)

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()

    def _keep(self) -> None:
        while True:
            self._wanted.wait()
            if self._closed.is_set():
                return
            scratch, idle = Path(tempfile.mkdtemp(prefix="trainhouse-guests-")), False
            try:
                idle = self._once(scratch)
            except (OSError, FrameError, KeyError, ValueError) as error:
                if not self._closed.is_set():
                    log.warning("the process for guests' SQL ended; it is started again", error=str(error))
            finally:
                if not idle:
                    self._fail_waiting()
                self._reap()
                shutil.rmtree(scratch, ignore_errors=True)
            if not idle:
                self._closed.wait(PAUSE_S)

    def _once(self, scratch: Path) -> bool:
        """One process's life; True where it ended because it had nothing to do. Raises OSError and FrameError where it died."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            environment = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ} | {"TMPDIR": str(scratch)}
            # -P: the folder where it starts is no library. The projector's own has the stack's keys in it.
            command = [sys.executable, "-P", "-m", "trainhouse.projections.endpoint.guest", str(theirs.fileno())]
            self._process = subprocess.Popen(
                command, env=environment, cwd=scratch, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, start_new_session=True
            )
            theirs.close()
            if self._closed.is_set():
                self._end()
            send(ours, self._asked | {"scratch": str(scratch)})
            hello, _ = receive(ours, 0)
            if not hello.get("confined"):
                log.warning("no Landlock in this kernel: the process for guests' SQL can open files and ports")
            with self._lock:
                self._link = ours
            self._ready.set()
            poller = select.poll()  # not `select`, which takes no descriptor over 1023
            poller.register(ours, select.POLLIN)
            while poller.poll(self._idle_s * 1000) or not self._retire():
                header, body = receive(ours, MAX_ANSWER_RATIO * self._limits.result_bytes)
                answer = self._waiting.get(int(header["id"]))
                if answer is not None:
                    with contextlib.suppress(InvalidStateError):
                        answer.set_result((header, body))
        return True

    def _retire(self) -> bool:
        """Takes no more questions for this process, if none waits; a question from now on starts the next one."""
        with self._lock:
            if self._waiting:
                return False
            self._ready.clear()
            self._link = None
            self._wanted.clear()
            return True

    def _fail_waiting(self) -> None:
        self._ready.clear()
        with self._lock:
            self._link = None
            left, self._waiting = self._waiting, {}
        for answer in left.values():
            with contextlib.suppress(InvalidStateError):
                answer.set_exception(FrameError("it ended while it answered"))

    def _reap(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
