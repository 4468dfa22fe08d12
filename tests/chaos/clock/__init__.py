"""Clock jumps of one process: its wall clock (Python's `time.time`, `time.time_ns`) is off by what a small file says.

Holds: nothing of the process is changed but these two functions, before anything else of it runs; the steady clock stays; so do the
machine's own clock and those of other processes. Not reached: the clock of a library in C (librdkafka's stamp on a record), of the
broker and of the object store; ranks, which start from an environment without it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

HOOK = Path(__file__).with_name("hook.py")
NAME = "TRAINHOUSE_CHAOS_CLOCK"


@dataclass(frozen=True)
class Clocks:
    """The clocks of the processes that were started with `environment`; `folder` holds one small file for each name."""

    folder: Path

    def environment(self, name: str = "") -> dict[str, str]:
        """What a process (or the supervisor of several) must be started with; without a name it is that of `trainhouse run NAME`."""
        hooks = self.folder / "hooks"
        hooks.mkdir(parents=True, exist_ok=True)
        (hooks / "sitecustomize.py").write_text(HOOK.read_text())
        return {"PYTHONPATH": str(hooks)} | ({NAME: name} if name else {})

    def shift(self, name: str, by_s: float) -> None:
        """From now on the wall clock of `name` is off by so many seconds; 0 sets it right."""
        file = self.folder / "hooks" / f"{name}.offset"
        with open(file, "r+b" if file.exists() else "wb") as offset:
            offset.write(struct.pack("<q", round(by_s * 1e9)))
