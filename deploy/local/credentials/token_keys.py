"""The key of the gateway's tokens, and those of before, which it takes too until they are retired.

Holds: every gateway of this folder reads both files again when they were changed, so nothing is started again and no stream ends. The key
of before is on the list before the new one is in its place, so there is no moment in which a token that was given out does not count.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from trainhouse.deploy.local.layout import StackFolder
from trainhouse.private_files import write_once, write_private

KEY_BYTES = 32


def token_key(folder: StackFolder) -> Path:
    """The file with the key that signs tokens; made where there is none, for its owner alone."""
    path = folder.part("gateway") / "key"
    if not path.exists():
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_once(path, _new())
    return path


def accepted_keys(folder: StackFolder) -> Path:
    """The file with keys that are taken beside that one, one a line."""
    return folder.part("gateway") / "accepted-keys"


def of_before(folder: StackFolder) -> list[str]:
    """The keys that are taken beside the newest."""
    path, newest = accepted_keys(folder), token_key(folder).read_text().strip()
    return [line for line in (path.read_text().split() if path.exists() else []) if line != newest]


def renew(folder: StackFolder) -> None:
    """A new key; that of now is taken on."""
    taken = [*of_before(folder), token_key(folder).read_text().strip()]
    _write_accepted(folder, taken)
    write_private(token_key(folder), _new())


def retire(folder: StackFolder) -> None:
    """Ends what those of before signed."""
    _write_accepted(folder, [])


def _write_accepted(folder: StackFolder, keys: list[str]) -> None:
    write_private(accepted_keys(folder), "".join(f"{key}\n" for key in keys).encode())


def _new() -> bytes:
    return secrets.token_hex(KEY_BYTES).encode()
