"""Per-rank state (random generators, loader) at the last two step boundaries, in files that outlive the process.

Holds: a state is whole or not there (a checksum says so); writing one is a copy into the page cache, so it survives SIGKILL of the rank,
not the loss of the machine. The other ranks of the gang need it when this one is gone (`workers/own_states.py`).
Never: read across jobs: it is pickled, by and for the ranks of one attempt.
"""

import os
import pickle  # nosec B403  # see the module's text
from pathlib import Path
from typing import Any

from trainhouse.workers.own_states import MAX_BYTES, NAMES, Left, sealed


class OwnStateNotSavedError(Exception):
    """It would cost training more than it may, or cannot be written; the text says which."""


class OwnStates:
    """The two files of one rank. Make it in the rank itself."""

    def __init__(self, folder: Path) -> None:
        self._fds = [os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600) for name in NAMES]

    def keep(self, step: int, state: dict[str, Any]) -> None:
        """Replaces the older of the two. Raises OwnStateNotSavedError."""
        try:
            content = pickle.dumps(state, protocol=pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # a loader's own parts raise whatever they like
            raise OwnStateNotSavedError(f"a rank's own state cannot be pickled: {error}") from error
        if len(content) > MAX_BYTES:
            raise OwnStateNotSavedError(f"a rank's own state has {len(content)} bytes, more than {MAX_BYTES}")
        try:
            os.pwrite(self._fds[step % 2], sealed(step, content), 0)  # what is written in part is not whole
        except OSError as error:
            raise OwnStateNotSavedError(f"a rank's own state cannot be written: {error.strerror}") from error

    def close(self) -> None:
        """Lets go of the files; they stay."""
        for fd in self._fds:
            os.close(fd)
        self._fds = []


def own_of(left: Left, step: int) -> dict[str, Any] | None:
    """Returns the state that a rank kept when `step` steps were finished; None if it is not there whole."""
    content = left.at(step)
    if content is None:
        return None
    state: dict[str, Any] = pickle.loads(content)  # nosec B301  # written by a rank of the same job, read in a rank of it
    return state
