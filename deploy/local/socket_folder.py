"""Folder of a stack's sockets: short and private, since a socket's path has at most 107 bytes.

Always: one folder for one data folder and user, readable by that user alone.  Never: data that must last.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from os import environ, getuid
from pathlib import Path

from trainhouse.deploy.local.errors import FolderUnusableError


def runtime_dir(folder: Path) -> Path:
    """The socket folder that belongs to `folder`; made if not there; FolderUnusableError if somebody else owns it."""
    path = _path(folder)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_uid != getuid():
        raise FolderUnusableError(f"{path} belongs to another user: remove it, or set XDG_RUNTIME_DIR to a folder of yours")
    return path


def remove_runtime_dir(folder: Path) -> None:
    """Remove the socket folder of what has stopped; nothing if there is none."""
    shutil.rmtree(_path(folder), ignore_errors=True)


def _path(folder: Path) -> Path:
    key = hashlib.sha256(str(folder.absolute()).encode()).hexdigest()[:12]
    root = Path(environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    return root / f"trainhouse-{getuid()}-{key}"
