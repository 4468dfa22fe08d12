"""A temporary folder that lasts as long as its process, however that ends: what a killed one left is deleted by the next.

Holds: a folder that is in use is locked. Never: deletes one that is.
"""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

_LOCK: Final = "in-use"


class TemporaryFolder:
    """One folder of this kind; `close` deletes it."""

    def __init__(self, kind: str) -> None:
        _sweep(kind)
        made = Path(tempfile.mkdtemp(prefix=f"new-{kind}-"))
        self._lock = os.open(made / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        # Under its name only once it is locked.
        self.path = made.rename(made.with_name(made.name.removeprefix("new-")))

    def close(self) -> None:
        """Deletes it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _sweep(kind: str) -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{kind}-*"):
        try:
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue  # another user's, or none of ours
        try:
            if os.fstat(lock).st_uid == os.getuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(lock)
