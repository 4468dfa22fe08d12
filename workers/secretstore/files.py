"""Files that their owner alone reads, and names of files for names of projects."""

import os
import secrets
from pathlib import Path
from urllib.parse import quote, unquote


def write_private(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Replaces a file in one step; mode 0600."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def private_folder(folder: Path) -> Path:
    """The folder, made 0700 with those on the way where it is not there."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def folder_name(project: str) -> str:
    """A project's name as one part of a path."""
    return quote(project, safe="").replace(".", "%2E")


def project_of(folder: str) -> str:
    """The project of a folder."""
    return unquote(folder)
