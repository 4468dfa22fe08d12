"""Unpacks an archive of code in a process of its own.

Holds: the agent reads nothing of an archive but its bytes. What that process takes is bounded in it (`unpack_child`), its time here.
"""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from trainhouse.workers.agent.errors import NotLaunchableError

CHILD = Path(__file__).with_name("unpack_child.py")
LIMIT_S = 600.0
MAX_ANSWER_BYTES = 16 * 1024
# Of the machine, not of the archive: another node may do better.
_MACHINE = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ENOMEM}


def unpack(archive: Path, folder: Path, name: str, limit_s: float = LIMIT_S) -> None:
    """Fills the empty `folder` with what the archive holds; `name` is for messages. Blocks. Raises NotLaunchableError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with archive.open("rb") as content:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(CHILD), str(descriptor)],
                stdin=content,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={"LANG": "C.UTF-8"},
                cwd="/",
                pass_fds=(descriptor,),
                start_new_session=True,
            )
    finally:
        os.close(descriptor)
    with process:
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            raise _refused(name, f"it takes longer than {limit_s:g} s") from None
        assert process.stdout is not None
        raw = os.read(process.stdout.fileno(), MAX_ANSWER_BYTES)
    if code != 0:
        raise _failed(name, code, raw)


def _failed(name: str, code: int, raw: bytes) -> NotLaunchableError:
    try:
        result = json.loads(raw)
        why, number = str(result["error"]), result.get("errno")
    except (ValueError, KeyError, TypeError):
        ended = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        why, number = f"the process that unpacks it ended with {ended}", None
    return _refused(name, why, retryable=number in _MACHINE)


def _refused(name: str, why: str, retryable: bool = False) -> NotLaunchableError:
    return NotLaunchableError(f"the code at {name} cannot be unpacked: {why}; pack it with `trainhouse submit`", retryable=retryable)
