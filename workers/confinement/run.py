"""Runs a command beside the ranks of a confined attempt: `python -I -m trainhouse.workers.confinement.run FOLDER`.

Standard input is `{"argv", "env", "cwd"}`; nothing of the command's environment counts for this process, which may be privileged.

Holds: the command is confined as the ranks are before anything of it runs. This process ends as the command did.
Never: leaves a core dump; its memory and the command's hold secrets.
"""

import json
import os
import signal
import sys
from pathlib import Path

from trainhouse.workers.confinement.sandbox import RECORD, Sandbox
from trainhouse.workers.confinement.system import without_core_dumps

CANNOT_RUN = 127


def main() -> None:
    """Entry point. Blocks until the command has ended."""
    without_core_dumps()
    record = json.loads((Path(sys.argv[1]) / RECORD).read_bytes())
    order = json.load(sys.stdin)
    sandbox = Sandbox.of_record(record)
    sandbox.join()
    pid = os.fork()
    if pid == 0:
        _become(sandbox, order["argv"], order["env"], order["cwd"])
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL) if os.WTERMSIG(status) != signal.SIGKILL else None
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status))


def _become(sandbox: Sandbox, argv: list[str], env: dict[str, str], cwd: str) -> None:
    try:
        sandbox.enter(cwd)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.closerange(3, 1 << 20)
        os.execve(argv[0], argv, env)
    except BaseException as error:
        os.write(2, f"{argv[0]}: {error}\n".encode())
    finally:
        os._exit(CANNOT_RUN)


if __name__ == "__main__":
    main()
