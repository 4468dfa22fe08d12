"""Secrets by name: one file each in a folder that only their owner reads.

Holds: values leave this module for a rank's environment only.  Never: puts a value into a message, an event or a log.
"""

import stat
from collections.abc import Iterable
from pathlib import Path

from trainhouse.workers.agent.errors import NotLaunchable

MAX_SECRET_BYTES = 64 * 1024


def read_secrets(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Values by name. Raises NotLaunchable that names what is missing or readable by others."""
    return {name: _read(folder / name, name) for name in names}


def _read(path: Path, name: str) -> str:
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode) or mode & 0o077:
            raise NotLaunchable(
                f"the secret {name} may be read by others on this node: `chmod 600` its file, or set it again", retryable=False
            )
        raw = path.read_bytes()
    except FileNotFoundError:
        raise NotLaunchable(
            f"the secret {name} is not set: `trainhouse secrets set {name}` reads it from standard input", retryable=False
        ) from None
    except PermissionError:
        raise NotLaunchable(f"the secret {name} cannot be read by the agent: it must belong to the agent's user", retryable=False) from None
    if len(raw) > MAX_SECRET_BYTES or b"\0" in raw:
        raise NotLaunchable(f"the secret {name} is no text of at most {MAX_SECRET_BYTES} bytes: set it again", retryable=False)
    return raw.decode("utf-8", "surrogateescape")
