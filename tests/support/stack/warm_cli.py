"""The command line for tests that give many commands: each is a process forked from one that has imported it already.

Holds: a command has an environment, a working folder, standard streams and an end of the interpreter of its own, and dies with who gave it;
the process that it is forked from has one thread and runs no command, so nothing of one command reaches another.
Never: where the start itself is what a test is about (`python -m trainhouse.cli.main`, as `OwnStack` does).
"""

from __future__ import annotations

import atexit
import faulthandler
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

from tests.support.stack.warm_command import number as _int
from tests.support.stack.warm_command import read_at_start as _read_at_start
from trainhouse.deploy.local.servers.server_process import die_with_parent

ROOT = Path(__file__).parents[3]
REQUEST_BYTES = 1024 * 1024


def run(
    arguments: Sequence[str], environment: Mapping[str, str], folder: Path, stdin: str, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """One command to its end. Raises TimeoutExpired, with the command ended; its `stderr` says where each of its threads was."""
    assert _read_at_start(environment) == _started().read_at_start, "such a command has to start anew"
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin.encode())
        given.seek(0)
        try:
            code = _asked(arguments, environment, folder, (given, out, err), timeout_s)
        except subprocess.TimeoutExpired as error:
            error.output, error.stderr = _text(out), _text(err)
            error.add_note(error.stderr[-8000:])
            raise
        said = [_text(stream) for stream in (out, err)]
    return subprocess.CompletedProcess(arguments, code, *said)


def put_on_path(folder: Path) -> None:
    """Makes `trainhouse` in a folder that a shell has in its PATH: a program whose commands are forked likewise."""
    folder.mkdir()
    program = folder / "trainhouse"
    from_here = (_started().address, _started().read_at_start, str(Path(sys.executable).parent / "trainhouse"))
    program.write_text(
        f"#!{sys.executable} -IS\nimport sys\nsys.path.append({str(ROOT)!r})\n"
        f"from tests.support.stack.warm_command import main\nmain(*{from_here!r})\n"
    )
    program.chmod(0o755)


def _asked(arguments: Sequence[str], environment: Mapping[str, str], folder: Path, streams: tuple[IO[bytes], ...], timeout_s: float) -> int:
    request = {"arguments": list(arguments), "environment": dict(environment), "folder": str(folder)}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.connect(_started().address)
        socket.send_fds(door, [json.dumps(request).encode()], [stream.fileno() for stream in streams])
        pid = _int(door.recv(8))
        door.settimeout(timeout_s)
        try:
            return _int(door.recv(8))
        except TimeoutError:
            os.kill(pid, signal.SIGABRT)  # faulthandler writes where its threads are
            with suppress(TimeoutError, AssertionError):
                door.settimeout(30)
                _int(door.recv(8))
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(list(arguments), timeout_s) from None


@dataclass(frozen=True)
class _Imported:
    """The process that has imported the command line; it ends with this one."""

    address: str
    read_at_start: dict[str, str]


@cache
def _started() -> _Imported:
    folder = tempfile.TemporaryDirectory(prefix="th-")  # a socket's path has 107 bytes at most
    atexit.register(folder.cleanup)
    address = str(Path(folder.name) / "door")
    command = [sys.executable, "-m", "tests.support.stack.warm_cli", address]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, preexec_fn=die_with_parent())
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n", "it ended before it was ready"
    return _Imported(address, _read_at_start(os.environ))


def _text(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read().decode().replace("\r\n", "\n")


def _bytes(number: int) -> bytes:
    return number.to_bytes(8, "little", signed=True)


def _serve(address: str) -> None:
    """Forks a process for each command, from here, until this one is killed; returns in such a process only."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as doors:
        doors.bind(address)
        doors.listen(64)
        assert len(os.listdir("/proc/self/task")) == 1, "a thread would be lost in what is forked"
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        tie = die_with_parent()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            door, _ = doors.accept()
            if os.fork() == 0:
                break
            door.close()
    tie()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    raw, streams, _, _ = socket.recv_fds(door, REQUEST_BYTES, 3)
    tie_command = die_with_parent()
    pid = os.fork()
    if pid:
        with door:
            door.send(_bytes(pid))
            _end_with(door, pid)
            door.send(_bytes(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
        os._exit(0)
    tie_command()
    door.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    _become(json.loads(raw))


def _end_with(door: socket.socket, pid: int) -> None:
    """Blocks until the process has ended; ends it when who gave the command is gone."""
    ended = os.pidfd_open(pid)
    readable, _, _ = select.select([door, ended], [], [])
    if ended not in readable:
        os.kill(pid, signal.SIGABRT)
    os.close(ended)


def _become(request: dict[str, Any]) -> None:
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.path[0] = request["folder"]
    sys.argv[:] = ["trainhouse", *request["arguments"]]
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where all of the tests run in the background of a shell
    sys.modules["__main__"].__package__ = None  # else help and errors call the command by it


if __name__ == "__main__":
    import gc

    # What most commands use when they do something, beside what makes their list.
    import confluent_kafka.admin  # noqa: F401
    import httpx  # noqa: F401

    import trainhouse.client
    import trainhouse.client.kafka.backend
    import trainhouse.deploy.local.stack
    import trainhouse.events.bus.admin  # noqa: F401
    from trainhouse.cli.main import build, main

    build()
    # Looks for cycles, the last one at a command's end included, would copy each page of what was imported.
    gc.collect()
    gc.freeze()
    _serve(sys.argv[1])
    main()
