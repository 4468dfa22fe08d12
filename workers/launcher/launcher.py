"""Start the ranks of an attempt: warm where that is sound, cold otherwise or when the warm process fails.

Holds: after `start` either every rank has a process and a keeper that records its end, or nothing of the attempt is left.
Ranks outlive this object and its process. Secrets go through a pipe or a file in memory only.
Never: restarts ranks, reads Kafka.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainhouse.workers.confinement.plan import Confinement
from trainhouse.workers.launcher.eligible import Wanted, never_warm, start_time_environment, why_cold
from trainhouse.workers.launcher.interpreters import identify, local_modules, looks_like_python, resolve
from trainhouse.workers.launcher.ports import AttemptPaths, LaunchError, RankLaunch, Started, StoreSocket
from trainhouse.workers.launcher.processes import attempt_processes, kill_all
from trainhouse.workers.launcher.request import Order, RankOrder, StoreOrder
from trainhouse.workers.launcher.warm_process import AUTHORITIES, PASSED_ON, PROXIES, WarmProcess, WarmProcessLostError
from trainhouse.workers.readable import readable

MAX_REPLY_BYTES = 1 << 20


class Launcher:
    """One per agent. `interpreter` is the agent's Python, for which a warm process is held; it must have trainhouse and torch.

    `warm_wait_s`: how long `start` waits for a warm process that is still importing (a cold start would import the same, longer).
    `warm_start` False: none is held, and every start is cold.
    """

    def __init__(
        self, interpreter: str = sys.executable, *, warm_wait_s: float = 60.0, start_timeout_s: float = 60.0, warm_start: bool = True
    ) -> None:
        self._interpreter = interpreter
        self._warm_start = warm_start
        self._warm_wait_s = warm_wait_s
        self._start_timeout_s = start_timeout_s
        self._warm: WarmProcess | None = None
        self._lock = threading.Lock()

    def prepare(self) -> None:
        """Begin to start the warm process, or replace one that died; returns at once."""
        if not self._warm_start:
            return
        with self._lock:
            if self._warm is None or not self._warm.alive():
                if self._warm is not None:
                    self._warm.close()
                self._warm = WarmProcess(self._interpreter)

    def close(self) -> None:
        """Let the warm process go. Ranks that run go on."""
        with self._lock:
            if self._warm is not None:
                self._warm.close()
            self._warm = None

    def warm_ready(self) -> bool:
        """True when a start would be warm by now."""
        with self._lock:
            return self._warm is not None and self._warm.facts(0.0) is not None

    def warm_pid(self) -> int | None:
        """The warm process, ready or not; None when there is none."""
        with self._lock:
            return self._warm.pid if self._warm is not None else None

    def start(
        self, attempt: AttemptPaths, ranks: Sequence[RankLaunch], store: StoreSocket | None, confinement: Confinement | None = None
    ) -> Started:
        """Start all ranks of this node; blocks until each has a pid. Raises LaunchError; then nothing is left running."""
        for rank in ranks:
            if not rank.cwd.is_dir():
                raise LaunchError(f"rank {rank.rank}: its working folder {rank.cwd} does not exist")
        attempt.folder.mkdir(parents=True, exist_ok=True)
        order = Order(
            str(attempt.folder),
            tuple(self._order(r) for r in ranks),
            StoreOrder(store.address, store.port, store.world_size) if store else None,
            confinement,
        )
        fd = store.fd if store else None
        reason = self._why_cold(order)
        if not reason:
            try:
                return self._start_warm(order, fd)
            except WarmProcessLostError as error:
                kill_all(attempt_processes(attempt))
                reason = str(error)
        self.prepare()
        return self._start_cold(order, fd, reason)

    def _order(self, launch: RankLaunch) -> RankOrder:
        env = {"PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1", **launch.env, **launch.secrets}
        argv = resolve(launch.command, launch.interpreter or self._interpreter, env)
        secrets = tuple(launch.secrets.values())
        return RankOrder(launch.rank, str(launch.folder), argv, env, str(launch.cwd), secrets, str(launch.secrets_dir or ""))

    def _why_cold(self, order: Order) -> str:
        if not self._warm_start:
            return "warm starts are switched off"
        wanted = [_wanted(rank) for rank in order.ranks]
        never = next(filter(None, map(never_warm, wanted)), "")
        if never:
            return never
        with self._lock:
            facts = self._warm.facts(self._warm_wait_s) if self._warm else None
        return next(filter(None, (why_cold(w, facts) for w in wanted)), "")

    def _start_warm(self, order: Order, store_fd: int | None) -> Started:
        reader, writer = os.pipe()
        try:
            with self._lock:
                if self._warm is None:
                    raise WarmProcessLostError("no warm process is ready")
                self._warm.send(order, (writer,) if store_fd is None else (writer, store_fd))
            os.close(writer)
            writer = -1
            return self._answer(reader, "")
        finally:
            for fd in (reader, writer):
                if fd >= 0:
                    os.close(fd)

    def _start_cold(self, order: Order, store_fd: int | None, reason: str) -> Started:
        reader, writer = os.pipe()
        fds = (writer,) if store_fd is None else (writer, store_fd)
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "trainhouse.workers.launcher.cold", *map(str, fds)],
                stdin=subprocess.PIPE,
                env=starters_environment(os.environ),
                pass_fds=fds,
                start_new_session=True,
            )
            os.close(writer)
            process.communicate(order.dumps(), timeout=self._start_timeout_s)
            return self._answer(reader, reason)
        except (WarmProcessLostError, subprocess.TimeoutExpired) as error:
            kill_all(attempt_processes(order.attempt))
            raise LaunchError(f"the ranks' keeper did not start: {error}; see {order.attempt.folder / 'keeper.log'}") from error
        finally:
            os.close(reader)

    def _answer(self, reader: int, why_cold: str) -> Started:
        """Wait for the keeper's reply."""
        raw, end = b"", time.monotonic() + self._start_timeout_s
        while True:
            if not readable(reader, end - time.monotonic()):
                raise WarmProcessLostError(f"the keeper gave no answer within {self._start_timeout_s:g} s")
            piece = os.read(reader, MAX_REPLY_BYTES)
            if not piece:
                break
            raw += piece
        if not raw:
            raise WarmProcessLostError("the keeper died before it answered")
        answer = json.loads(raw)
        if "error" in answer:
            raise LaunchError(f"the command could not be started: {answer['error']}", retryable=answer["retryable"])
        pids = {int(rank): pid for rank, pid in answer["pids"].items()}
        return Started(not why_cold, pids, answer["keeper"], why_cold)


def _wanted(rank: RankOrder) -> Wanted:
    interpreter = identify(rank.argv[0]) if looks_like_python(rank.argv[0]) else None
    return Wanted(rank.argv, rank.env, interpreter, local_modules(rank.argv, Path(rank.cwd), rank.env))


def starters_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of a cold starter, and nothing else of the agent's: processes of the job can read it."""
    named = (*PASSED_ON, *PROXIES, *AUTHORITIES, "PYTHONPATH")
    return {name: environ[name] for name in named if name in environ} | start_time_environment(environ)
