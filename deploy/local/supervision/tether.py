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
    """Ask for the parent-death signal where the kernel knows it (Linux), then exec."""
    number = signal.Signals[sys.argv[1]]
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
