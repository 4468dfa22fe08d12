"""Files for their owner alone (mode 0600), written whole or not at all: keys, passwords, tokens, and settings that hold them; and the
folders around them.

Holds: there is no moment in which others may read the file, or in which half of it is there, also when two processes write it at once.
What is `durable` is on the disk, by its name, when the function returns. Nothing is ever written through a link.
Never: imports anything of ours, so that everything of ours may import it.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_private(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Replaces the file. The folder must be there."""
    with _draft(path, content, durable) as draft:
        draft.replace(path)


def write_once(path: Path, content: bytes) -> bool:
    """Writes the file where there is none, durably; whether it did. Of several writers at once one does, and its content stays."""
    with _draft(path, content, durable=True) as draft:
        try:
            os.link(draft, path)
        except FileExistsError:
            return False
    return True


def move_private(draft: Path, path: Path) -> None:
    """Gives a whole file the name of another in its folder, durably; it is gone by its own name at the same instant."""
    draft.replace(path)
    _sync_folder(path.parent)


def private_folder(folder: Path, mode: int = 0o700, *, mend: bool = False) -> Path:
    """The folder, made for its owner alone where it is not there.

    Raises PermissionError for one that is a link, another user's, replaceable by others through its parent, or open to more than `mode`;
    with `mend`, one of ours is given just that mode instead.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found, around = folder.lstat(), folder.parent.stat().st_mode
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(errno.EPERM, f"{folder} is a link or belongs to another user: remove it, or name another folder")
    if around & stat.S_IWOTH and not around & stat.S_ISVTX:
        raise PermissionError(errno.EPERM, f"others can replace {folder}: chmod o-w {folder.parent}, or name another folder")
    if mend:
        folder.chmod(mode)
    elif stat.S_IMODE(found.st_mode) & 0o077 & ~mode:
        raise PermissionError(errno.EPERM, f"others can reach {folder}: chmod {mode:o} it, or name another folder")
    return folder


@contextmanager
def _draft(path: Path, content: bytes, durable: bool) -> Iterator[Path]:
    """The content under a name of its own beside the file; gone at the end, in whatever way that comes."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        yield draft
    finally:
        draft.unlink(missing_ok=True)
    if durable:
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
