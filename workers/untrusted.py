"""Opens files that another's program may have put there.

Holds: what is opened is a plain file: a pipe or a device in its place is refused with an OSError, at once. A link is refused too, except by
`read_bounded`, for folders in which links are usual.
"""

import errno
import os
import stat
from pathlib import Path

BOUND_BYTES = 65_536


def open_plain(path: Path, flags: int = os.O_RDONLY) -> int:
    """The descriptor of a plain file, never that of what a link leads to. Does not wait for a pipe's other end. Raises OSError."""
    return _opened(path, flags | os.O_NOFOLLOW)


def read_plain(path: Path, limit: int) -> bytes:
    """The first `limit` bytes of a plain file. Raises OSError."""
    with os.fdopen(open_plain(path), "rb") as file:
        return file.read(limit)


def read_bounded(path: Path, limit: int = BOUND_BYTES) -> bytes:
    """The first `limit` bytes of a plain file, or of the one that a link leads to. Raises OSError."""
    with os.fdopen(_opened(path, os.O_RDONLY), "rb") as file:
        return file.read(limit)


def text_or_empty(path: Path, limit: int = BOUND_BYTES) -> str:
    """The beginning of a file as text; empty if it cannot be read."""
    try:
        return read_bounded(path, limit).decode(errors="replace")
    except OSError:
        return ""


def _opened(path: Path, flags: int) -> int:
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a plain file", str(path))
    return fd
