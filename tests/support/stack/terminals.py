"""Commands of the command line on a pseudo terminal, as a person types them, beside a whole stack."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping

import pexpect
import psutil

PATIENCE_S = 480
PROMPT = r"\$ "


def spawned(environment: Mapping[str, str], *words: str) -> pexpect.spawn:
    """Starts a command; its owner closes it. Ctrl-C reaches it also where these tests run in the background of a shell."""
    command = ["-m", "trainhouse.cli.main", *words]
    return pexpect.spawn(
        sys.executable,
        command,
        env={**environment, "TERM": "dumb"},
        encoding="utf-8",
        timeout=PATIENCE_S,
        dimensions=(33, 101),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def begun(terminal: pexpect.spawn, kind: str = "shell") -> str:
    """The job of a session that has just been submitted, by what its command printed. Blocks."""
    terminal.expect(rf"({kind}-[0-9a-z]+)\r")
    return str(terminal.match[1])


def processes_of(job: str) -> dict[str, int]:
    """Names and ids of the processes that run for a job."""
    found = {}
    for process in psutil.process_iter(["name", "environ"]):
        if (process.info["environ"] or {}).get("TRAINHOUSE_JOB_ID") == job:
            found[str(process.info["name"])] = process.pid
    return found
