"""Supervisor of this node's holder of chunks: starts the process, writes its record into the store, starts another when it ends.

Holds: each process has a secret of its own, so that tokens and records of one before are worth nothing. A process that ends at once again
and again is started more and more rarely. A store that is away costs the record, not the process. The process ends with the agent.
"""

import json
import secrets
import select
import subprocess  # nosec B404  # starts this package's own module
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass

import structlog

from trainhouse.checkpointing.errors import CheckpointError
from trainhouse.checkpointing.peer_memory.holder_choice import Place
from trainhouse.checkpointing.peer_memory.holder_records import STALE_S, HolderRecord, HolderRecords

LOOK_S = 0.5
START_S = 60.0
WRITE_S = STALE_S / 3
AGAIN_S = 5.0
PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
COMMAND = (sys.executable, "-P", "-m", "trainhouse.checkpointing.peer_memory.holder_server")
log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class HolderSettings:
    """Settings of the process. `port` 0: any that is free."""

    address: str
    port: int
    budget_bytes: int


class HolderKeeper:
    """Of one agent. `start` and `close` are of its main thread."""

    def __init__(self, own: Place, records: HolderRecords, settings: HolderSettings) -> None:
        self._own = own
        self._records = records
        self._settings = settings
        self.pid: int | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holder", daemon=True)

    def start(self) -> None:
        """Starts the process, in a thread."""
        self._thread.start()

    def close(self) -> None:
        """Ends the process, and removes its record."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        pause_s = PAUSE_S
        while not self._ended.is_set():
            try:
                lived = self._run_once()
            except Exception:
                log.exception("the process that holds checkpoints of other nodes is started again")
                lived = False
            pause_s = PAUSE_S if lived else min(2 * pause_s, LONGEST_PAUSE_S)
            self._ended.wait(pause_s)

    def _run_once(self) -> bool:
        """Runs one process until it ends, or the agent does; returns whether it served."""
        secret = secrets.token_hex(32)
        try:
            process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # nosec B603
        except OSError as error:
            log.warning("the process that holds checkpoints of other nodes could not be started", error=str(error))
            return False
        assert process.stdin is not None and process.stdout is not None
        self.pid = process.pid
        try:
            port = self._port(process, secret)
            if port is None:
                return False
            log.info("holding checkpoints of other nodes", port=port, budget_bytes=self._settings.budget_bytes)
            self._keep_record_fresh(process, HolderRecord(self._settings.address, port, secret))
            return True
        finally:
            self.pid = None
            process.kill()
            with suppress(OSError):
                process.stdin.close()
            status = process.wait()
            process.stdout.close()
            if not self._ended.is_set():
                log.warning("the process that holds checkpoints of other nodes ended, and is started again", status=status)

    def _port(self, process: "subprocess.Popen[bytes]", secret: str) -> int | None:
        assert process.stdin is not None and process.stdout is not None
        settings = {"address": self._settings.address, "port": self._settings.port, "budget_bytes": self._settings.budget_bytes}
        try:
            process.stdin.write(json.dumps(settings | {"secret": secret}).encode() + b"\n")
            process.stdin.flush()
            # `select.select` refuses numbers of files from 1,024 on; an agent of many ranks has more open.
            answers = select.poll()
            answers.register(process.stdout, select.POLLIN)
            for _ in range(round(START_S / LOOK_S)):
                if self._ended.is_set():
                    break
                if answers.poll(LOOK_S * 1000):
                    return int(json.loads(process.stdout.readline())["port"])
        except (OSError, ValueError) as error:
            log.warning("the process that holds checkpoints of other nodes did not start", error=str(error))
        return None

    def _keep_record_fresh(self, process: "subprocess.Popen[bytes]", record: HolderRecord) -> None:
        due_s = time.monotonic()
        while process.poll() is None:
            if time.monotonic() >= due_s:
                due_s = time.monotonic() + (WRITE_S if self._write(record) else AGAIN_S)
            if self._ended.wait(LOOK_S):
                break
        with suppress(CheckpointError):
            self._records.remove(self._own)

    def _write(self, record: HolderRecord) -> bool:
        try:
            self._records.write(self._own, record)
        except CheckpointError as error:
            log.warning("other nodes do not learn that this one holds checkpoints", error=str(error))
            return False
        except Exception:  # the process and what it holds outlast it
            log.exception("other nodes do not learn that this one holds checkpoints")
            return False
        return True
