"""A new folder that appears under its name only when it is complete.

Holds: what is written lies beside it under another name, in a folder that one process at a time has. What a killed process left there is
removed by the next one, or kept for it to go on from.
Never: replaces a folder that has something in it.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainhouse.checkpointing.errors import ExportError


def free_place(out: Path) -> Path:
    """Returns the place of a finished folder, links followed. Raises ExportError, OSError."""
    try:
        place = out.resolve()
    except RuntimeError as error:
        raise ExportError(f"{out} is a link to itself; name another folder") from error
    if not place.exists():
        return place
    if place.is_mount():
        raise ExportError(f"{place} is a mount point, which a finished folder cannot replace; name a folder in it")
    if place.samefile("."):
        raise ExportError(f"{place} is the current folder, which a finished one would replace; name a folder in it")
    if not place.is_dir() or any(place.iterdir()):
        raise ExportError(f"{place} exists and is not an empty folder; name another one, or remove it")
    return place


def partial_of(out: Path) -> Path:
    """The folder beside `out` in which it is made."""
    return out.parent / f".{out.name}.partial"


@contextmanager
def partial_folder(out: Path, keeps: bool = False) -> Iterator[Path]:
    """A folder beside `out`, of this process alone, which is gone afterwards unless it was renamed. Empty; with `keeps` it has what was
    left in it, and stays where an error ends it."""
    folder = partial_of(out)
    if folder.is_symlink():
        raise ExportError(f"{folder} is a link, where an export into {out} would keep its files; remove it")
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ExportError(f"another export into {out} is under way (it holds {folder}); wait for it, or name another folder") from None
        if not keeps:
            _empty(lock)
        try:
            yield folder
        except BaseException:
            if not keeps:
                shutil.rmtree(folder, ignore_errors=True)
            raise
    finally:
        os.close(lock)


def _empty(folder: int) -> None:
    with os.scandir(folder) as entries:
        for left in entries:
            if left.is_dir(follow_symlinks=False):
                shutil.rmtree(left.name, dir_fd=folder)
            else:
                os.unlink(left.name, dir_fd=folder)


@contextmanager
def disk_errors(out: Path) -> Iterator[None]:
    """Makes sentences of what a disk refuses."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise ExportError(f"no space for the export at {out} ({os.strerror(error.errno)}); free some, or name another place") from error
        raise ExportError(f"export into {out}: {error.strerror or error} ({error.filename or 'no file'})") from error


def sync_folder(folder: Path) -> None:
    """Flushes the entries of a folder to disk."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
