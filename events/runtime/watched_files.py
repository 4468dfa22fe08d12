"""Files that a running process reads again when they were changed: lists of keys, so that a rotation needs no restart.

Holds: what was read after a change is never older than that change; where a file cannot be read any more, what was known goes on, and it
is tried again whenever it is asked for: what was in the way (too many open files) may pass without another change.
Never: waits, or reads a file that was read since its change.
"""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

import structlog

T = TypeVar("T")
Marks = tuple[tuple[int, int, int] | None, ...]
log_ = structlog.get_logger(__name__)


class Followed(Generic[T]):
    """Value that is read from files and reloaded when they change. Thread-safe."""

    def __init__(self, paths: Sequence[Path], read: Callable[[], T]) -> None:
        """Reads the files. Raises the errors of `read`."""
        self._paths = tuple(paths)
        self._read = read
        self._lock = threading.Lock()
        # Before they are read: what is changed meanwhile is read once more.
        self._marks = self._marked()
        self._failed: Marks | None = None
        self._found = read()

    def now(self) -> T:
        """Returns the current value; the previous one if the files cannot be read."""
        if self._marked() != self._marks:
            with self._lock:
                self._again()
        return self._found

    def _again(self) -> None:
        marks = self._marked()
        if marks == self._marks:
            return  # another thread was quicker
        try:
            self._found = self._read()
        except Exception as error:
            if marks != self._failed:
                names = ", ".join(map(str, self._paths))
                log_.error("a file was changed and cannot be used; what it said before goes on, mend it", files=names, error=str(error))
            self._failed = marks
            return
        self._marks, self._failed = marks, None

    def _marked(self) -> Marks:
        return tuple(_mark(path) for path in self._paths)


def _mark(path: Path) -> tuple[int, int, int] | None:
    """Fingerprint of a file that changes when it is written anew; None if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
