"""The last moment of a rank: torch's own threads let go of Python objects while there is still a Python.

A gloo worker tells that a collective is finished first, and drops its tensors after. The program may be over by then. Whoever asks for
the interpreter while it shuts down has its thread unwound, through C++ that allows none: std::terminate, SIGABRT, and a job that has
done everything would end as a failed one. `dist.destroy_process_group` does not prevent it: a DDP module keeps the group, and so its
workers, until the interpreter takes the module down. A warm rank is not taken down; a cold one without a session has nobody who waits, as
under any other launcher: an abort is told as it was, and the attempt counts as failed, for nobody can know that all was done.

Holds: looks only at what the kernel says of this process's threads. Bounded, and changes nothing: exit codes are the program's own.
Never: waits for a collective that is stuck; its worker sleeps, and sleeps on while the interpreter ends.
"""

import sys
import time
from pathlib import Path

GLOO_WORKERS = "pt_gloo_runloop"
TASKS = Path("/proc/self/task")
LOOK_S = 0.02
TIMEOUT_S = 10.0


def wait_until_let_go(name: str = GLOO_WORKERS, timeout_s: float = TIMEOUT_S) -> bool:
    """Block until no thread of this name has anything left to do; False when one still runs after `timeout_s`.

    A thread that is late is runnable, and one that waits for the interpreter looks for it once every switch interval. So a thread that
    slept through several of those, while this one left the interpreter to anybody, waits for new work.
    """
    ends_s = time.monotonic() + timeout_s
    earlier = None
    while True:
        now = _asleep(name)
        if now is not None and (not now or now == earlier):
            return True
        if time.monotonic() >= ends_s:
            return False
        earlier = now
        time.sleep(max(LOOK_S, 4 * sys.getswitchinterval()))


def _asleep(name: str) -> dict[str, str] | None:
    """Returns the number of times that each thread of this name was scheduled; None when one of them is not asleep."""
    found: dict[str, str] = {}
    for task in sorted(TASKS.iterdir()) if TASKS.is_dir() else ():
        try:
            fields = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines() if ":\t" in line)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended meanwhile
        if fields["Name"] != name:
            continue
        if not fields["State"].startswith("S"):
            return None
        found[task.name] = f"{fields['voluntary_ctxt_switches']} {fields['nonvoluntary_ctxt_switches']}"
    return found
