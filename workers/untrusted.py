"""Opens files that another's program may have put there.

Holds: what is opened is a plain file in the folder that was named: a link, a pipe or a device in its place is refused with an OSError,
at once.
"""

import errno
import os
import stat
from pathlib import Path


def open_plain(path: Path, flags: int = os.O_RDONLY) -> int:
    """The descriptor of a plain file, never that of what a link leads to. Does not wait for a pipe's other end. Raises OSError."""
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a plain file", str(path))
    return fd


def read_plain(path: Path, limit: int) -> bytes:
    """The first `limit` bytes of a plain file. Raises OSError."""
    with os.fdopen(open_plain(path), "rb") as file:
        return file.read(limit)
