"""The token of the user whose stack this is: a file that only this user reads.

Holds: a token that the key verifies is kept; the file is replaced in one step, mode 0600.
"""

import getpass
from pathlib import Path

from trainhouse.gateway.auth import tokens
from trainhouse.gateway.auth.roles import ALL_PROJECTS, Principal
from trainhouse.gateway.errors import InvalidTokenError
from trainhouse.private_files import write_private


def ensure(path: Path, key: bytes, now_s: int) -> tuple[Principal, bool]:
    """Returns the token in the file, and whether it was made now. Blocks on the disk."""
    try:
        return tokens.read(key, path.read_text().strip()), False
    except (OSError, InvalidTokenError):
        token = tokens.issue(key, getpass.getuser(), ["admin"], [ALL_PROJECTS], now_s=now_s)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(path, f"{token}\n".encode())
        return tokens.read(key, token), True
