"""Run as `sitecustomize` at the start of a Python process: makes its wall clock movable from outside. See the package beside it.

Holds: what the process starts does not inherit it, except from the stack's supervisor.
"""

import mmap
import os
import struct
import sys
import time
from pathlib import Path

EIGHT = struct.Struct("<q")


def name() -> str:
    """Whose clock this is; empty: nobody's, leave it alone."""
    arguments = sys.orig_argv
    if "trainhouse.cli.main" in arguments and "run" not in arguments:
        return ""
    return os.environ.pop("TRAINHOUSE_CHAOS_CLOCK", "") or (arguments[-1] if "trainhouse.cli.main" in arguments else "")


def install(file: Path) -> None:
    """Replaces the two functions; the offset is read at each call."""
    if not file.exists() or file.stat().st_size < EIGHT.size:
        file.write_bytes(EIGHT.pack(0))
    with file.open("rb") as opened:
        offset_ns = mmap.mmap(opened.fileno(), EIGHT.size, prot=mmap.PROT_READ)
    real_ns = time.time_ns
    read = EIGHT.unpack_from
    time.time_ns = lambda: real_ns() + read(offset_ns)[0]
    time.time = lambda: time.time_ns() / 1e9


if "trainhouse.deploy.local.supervision.supervisor" not in sys.orig_argv:
    here = os.path.dirname(os.path.abspath(__file__))
    kept = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder and folder != here]
    os.environ.pop("PYTHONPATH", None)
    if kept:
        os.environ["PYTHONPATH"] = os.pathsep.join(kept)
    if whose := name():
        install(Path(here) / f"{whose}.offset")
