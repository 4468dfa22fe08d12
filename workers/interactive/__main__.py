"""`python -m trainhouse.workers.interactive`, in the rank of an interactive job."""

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path

from trainhouse.events.model.interactive_end import END_FILE
from trainhouse.workers.interactive.notebook_server import NoJupyterError
from trainhouse.workers.interactive.session_host import SessionHost, serve
from trainhouse.workers.launcher import RankPaths, ports

WAIT_S = 0.5


def main() -> int:
    """Serves the session that the job's spec describes. Blocks until its end."""
    folder, attempt = os.environ.get(ports.RANK_DIR), os.environ.get(ports.ATTEMPT_DIR)
    spec = json.loads((Path(attempt) / "spec.json").read_bytes()) if attempt else {}
    wanted = spec.get("interactive")
    if folder is None or wanted is None:
        print("this program runs in interactive jobs: start one by `trainhouse shell` or `trainhouse notebook`", file=sys.stderr)
        return 2
    os.environ["PATH"] = path_with_python(os.environ.get("PATH", os.defpath), sys.executable)
    if os.environ.get("RANK", "0") != "0":
        return wait_for(Path(attempt or "") / "rank-0")
    try:
        number = os.environ.get(ports.ATTEMPT, "0")
        host = SessionHost(Path(folder), wanted["kind"], float(wanted["idle_limit_s"]), int(number) if number.isdecimal() else 0)
        asyncio.run(serve(host))
    except NoJupyterError as error:
        print(error, file=sys.stderr)
        return 1
    except asyncio.CancelledError:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    return 0


def path_with_python(path: str, interpreter: str) -> str:
    """PATH on which `python` is the job's own, as in other jobs' commands. Pure."""
    return os.pathsep.join([os.path.dirname(interpreter), *(one for one in path.split(os.pathsep) if one)])


def wait_for(folder: Path) -> int:
    """Holds this rank's device for rank 0, which uses it, until the session ends. Blocks."""
    while not (RankPaths(folder).own / END_FILE).exists():
        time.sleep(WAIT_S)
    return 0


if __name__ == "__main__":
    sys.exit(main())
