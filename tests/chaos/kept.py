"""A process beside the stack that is started again when it dies, as a supervisor would: an agent, a standby scheduler."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from trainhouse.deploy.local.servers.server_process import die_with_parent

AGAIN_AFTER_S = 1.0
STOP_TIMEOUT_S = 300.0


class Kept:
    """`trainhouse run ROLE` with these settings; its output goes to `log`. `prefix`: a command that becomes it (by exec)."""

    def __init__(self, role: str, environment: Mapping[str, str], log: Path, prefix: tuple[str, ...] = ()) -> None:
        self._command = [*prefix, sys.executable, "-m", "trainhouse.cli.main", "run", role]
        self._environment = dict(environment)
        self.log = log
        self._over = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        # The kernel asks the child to end with the thread that started it (an agent then ends its ranks): this one lives that long.
        self._thread = threading.Thread(target=self._keep, name=f"keeps-{role}", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """The pid while it runs."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def close(self) -> None:
        """SIGTERM, then SIGKILL after five minutes; blocks."""
        self._over.set()
        if self.pid is not None and self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(signal.SIGTERM)
        self._thread.join(STOP_TIMEOUT_S)
        if self.pid is not None and self._process is not None:
            self._process.kill()
        self._thread.join(STOP_TIMEOUT_S)

    def _keep(self) -> None:
        while not self._over.is_set():
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    self._command,
                    env=self._environment,
                    cwd=self.log.parent,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    preexec_fn=die_with_parent(signal.SIGTERM),
                )
            self._process.wait()
            self._over.wait(AGAIN_AFTER_S)
