"""`python tether.py SIGNAL COMMAND…`: become COMMAND, which the kernel signals when the parent dies, `kill -9` included.

Always: the same process (exec), so that the supervisor's pid is the command's.  Never: an import beyond the standard
library; it runs in a few milliseconds, before every part.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask for the parent-death signal, then exec."""
    tie(sys.argv[1])
    os.execvp(sys.argv[2], sys.argv[2:])


def tie(signal_name: str) -> None:
    """Asks the kernel to send this process that signal when its parent dies, where the kernel knows how (Linux)."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, int(signal.Signals[signal_name]), 0, 0, 0)


if __name__ == "__main__":
    main()
