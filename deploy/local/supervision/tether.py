"""`python tether.py SIGNAL[@PARENT] COMMAND…`: become COMMAND, which the kernel signals when the parent dies, `kill -9` included.

Always: the same process (exec), so that the supervisor's pid is the command's. A parent that died before the kernel was asked is
noticed by its pid, where that is given: on a busy machine seconds may pass between the fork and the request.  Never: an import beyond
the standard library; it runs in a few milliseconds, before every part.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask for the parent-death signal, then exec."""
    signal_name, _, parent = sys.argv[1].partition("@")
    tie(signal_name, int(parent) if parent else None)
    os.execvp(sys.argv[2], sys.argv[2:])


def with_parent(argv: list[str], pid: int) -> list[str]:
    """The command line with the pid of the parent that the command belongs to; as it is where it is not tied. Pure."""
    if __file__ not in argv:
        return argv
    at = argv.index(__file__) + 1
    return [*argv[:at], f"{argv[at]}@{pid}", *argv[at + 1 :]]


def tie(signal_name: str, parent: int | None = None) -> None:
    """Asks the kernel to send this process that signal when its parent dies, where the kernel knows how (Linux). Ends this process where
    its parent, whose pid was `parent`, has died already."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, int(signal.Signals[signal_name]), 0, 0, 0)
        if parent is not None and os.getppid() != parent:
            os._exit(128 + int(signal.Signals[signal_name]))


if __name__ == "__main__":
    main()
