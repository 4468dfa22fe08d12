"""Small files that are whole or absent: how everything that the agent persists is written.

Holds: a reader sees the old content or the new one, also after a power cut where `durable` is asked for.
"""

import os
from pathlib import Path


def write_atomically(path: Path, content: bytes, *, durable: bool = True, mode: int = 0o644) -> None:
    """Replaces `path`. `durable`: on the disk when this returns (a few ms)."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        os.fchmod(fd, mode)  # whatever the agent's umask: ranks of another uid read some of these
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(scratch, path)
    if durable:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
