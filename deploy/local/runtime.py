"""Where the sockets of a stack live: a short private folder, since a socket's path has at most 107 bytes.

Always: one folder for one data folder and user, readable by that user alone.  Never: data that must last.
"""

from __future__ import annotations

import hashlib
import tempfile
from os import environ, getuid
from pathlib import Path

from trainhouse.deploy.local.errors import FolderUnusable


def runtime_dir(folder: Path) -> Path:
    """The socket folder that belongs to `folder`; made if not there; FolderUnusable if somebody else owns it."""
    key = hashlib.sha256(str(folder.absolute()).encode()).hexdigest()[:12]
    root = Path(environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    path = root / f"trainhouse-{getuid()}-{key}"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_uid != getuid():
        raise FolderUnusable(f"{path} belongs to another user: remove it, or set XDG_RUNTIME_DIR to a folder of yours")
    return path
