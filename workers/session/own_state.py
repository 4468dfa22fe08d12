"""What this rank has of its own (random generators, loader) at its last two step boundaries, in files that outlive the process.

Holds: a state is whole or not there (a checksum says so); writing one is a copy into the page cache, so it survives SIGKILL of the rank,
not the loss of the machine. The other ranks of the gang need it when this one is gone (`workers/own_states.py`).
Never: read across jobs: it is pickled, by and for the ranks of one attempt.
"""

import os
import pickle
from pathlib import Path
from typing import Any

from trainhouse.workers.own_states import MAX_BYTES, NAMES, Left, sealed


class OwnStateTooLarge(ValueError):
    """Not kept: it would cost training more than it may."""


class OwnStates:
    """The two files of one rank. Make it in the rank itself."""

    def __init__(self, folder: Path) -> None:
        self._fds = [os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600) for name in NAMES]

    def keep(self, step: int, state: dict[str, Any]) -> None:
        """Replaces the older of the two. Raises OwnStateTooLarge."""
        content = pickle.dumps(state, protocol=pickle.HIGHEST_PROTOCOL)
        if len(content) > MAX_BYTES:
            raise OwnStateTooLarge(f"a rank's own state has {len(content)} bytes, more than {MAX_BYTES}")
        os.pwrite(self._fds[step % 2], sealed(step, content), 0)

    def close(self) -> None:
        """Lets go of the files; they stay."""
        for fd in self._fds:
            os.close(fd)
        self._fds = []


def own_of(left: Left, step: int) -> dict[str, Any] | None:
    """What a rank kept when `step` steps were finished; None if it is not there whole."""
    content = left.at(step)
    if content is None:
        return None
    state: dict[str, Any] = pickle.loads(content)
    return state
