"""The command line as a program of a shell: hands its arguments, environment, folder and streams to the process of `warm_cli.py`.

Holds: it ends as the command does; signals that it gets, the command gets; the command ends with it, even if it is killed.
It imports little: a shell runs many.
"""

import json
import os
import signal
import socket
import sys
from collections.abc import Mapping

# What an interpreter reads before a command can set it; the process that is forked writes where its threads are in any case.
READ_AT_START = ("PYTHON", "LC_", "LANG")
IN_ANY_CASE = "PYTHONFAULTHANDLER"
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGABRT)


def read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that an interpreter reads at its start."""
    return {name: value for name, value in environment.items() if name.startswith(READ_AT_START) and name != IN_ANY_CASE}


def main(address: str, forked_with: Mapping[str, str], installed: str) -> None:
    """Blocks until the command has ended, and ends this process likewise; one that has to start anew is `installed`."""
    if read_at_start(os.environ) != forked_with:
        os.execv(installed, [installed, *sys.argv[1:]])
    request = {"arguments": sys.argv[1:], "environment": dict(os.environ), "folder": os.getcwd()}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.connect(address)
        socket.send_fds(door, [json.dumps(request).encode()], [0, 1, 2])
        pid = number(door.recv(8))
        for signum in PASSED_ON:
            signal.signal(signum, lambda signum, _: os.kill(pid, signum))
        code = number(door.recv(8))
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def number(raw: bytes) -> int:
    """A pid or an exit code, as the process that forks sends it."""
    assert len(raw) == 8, "the process that commands are forked from is gone"
    return int.from_bytes(raw, "little", signed=True)
