"""Tries a confinement: reads an order from standard input, runs an interpreter in it, and ends with 0 if that worked."""

import json
import os
import subprocess
import sys
from pathlib import Path

from trainhouse.workers.confinement.plan import Confinement
from trainhouse.workers.confinement.sandbox import Sandbox

CODE = "import os, sys, json, trainhouse; open('probe', 'w').close(); os.listdir('/proc/self/fd')"


def main() -> None:
    """Entry point."""
    order = json.load(sys.stdin)
    folder, own = Path(order["folder"]), Path(order["own"])
    confinement = Confinement.from_json(order["confinement"])
    sandbox = Sandbox.open(folder, [own], confinement)
    sandbox.scope()
    try:
        if not _readable(order["interpreter"], own, sandbox):
            raise SystemExit("the interpreter cannot be run confined: are its files readable by another uid?")
    finally:
        sandbox.close()
        if sandbox.pid is not None:
            os.waitpid(sandbox.pid, 0)
        sandbox.groups.remove()


def _readable(interpreter: str, own: Path, sandbox: Sandbox) -> bool:
    done = subprocess.run(
        [interpreter, "-c", CODE],
        preexec_fn=lambda: sandbox.enter(str(own)),
        env={"PATH": os.defpath},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        print(done.stderr.decode(errors="replace")[-500:], file=sys.stderr)
    return done.returncode == 0


if __name__ == "__main__":
    main()
