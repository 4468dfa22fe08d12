"""The generated passwords of a stack: `credentials.toml` in its data folder, one table for each server.

Holds: every password is random, made once, kept until it is rotated, and readable by the owner of the folder alone.
Never: a password in an argument of a process, a log line, or a message.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainhouse.deploy.local.layout import StackFolder, read_toml, write_toml

PASSWORD_BYTES = 30
NAME = "credentials.toml"
# The table of when each was made; no server has this name.
MADE = "made"


@dataclass(frozen=True)
class Known:
    """One password without it. `made_at` None: by an `up` that did not note it."""

    server: str
    name: str
    made_at: datetime | None


def credentials_file(folder: StackFolder) -> Path:
    """Path of the file of passwords."""
    return folder.root / NAME


def password(folder: StackFolder, server: str, name: str) -> str:
    """The password of the account `name` on `server` ("kafka", "sql"); made on first use.

    Call it while the folder's lock is held, as `up` does: two callers at once could make two passwords.
    """
    content = _read(folder)
    found = content.get(server, {}).get(name)
    return str(found) if found is not None else _set(folder, content, server, name)


def renew(folder: StackFolder, server: str, name: str) -> str:
    """A new password in the place of the one before."""
    return _set(folder, _read(folder), server, name)


def forget(folder: StackFolder, server: str, name: str) -> None:
    """Takes a password out; nothing if there is none."""
    content = _read(folder)
    for table in (content, content.get(MADE, {})):
        table.get(server, {}).pop(name, None)
    write_toml(credentials_file(folder), content)


def known(folder: StackFolder) -> list[Known]:
    """Lists the recorded accounts with their times of creation, without passwords."""
    content = _read(folder)
    made = content.pop(MADE, {})
    return [Known(server, name, made.get(server, {}).get(name)) for server, accounts in content.items() for name in accounts]


def keep(folder: StackFolder, server: str, name: str, value: str) -> None:
    """Keeps a secret that was made elsewhere."""
    _set(folder, _read(folder), server, name, value)


def note(folder: StackFolder, server: str, name: str) -> None:
    """Notes that a secret which is kept elsewhere was made now."""
    content = _read(folder)
    _note(content, server, name)
    write_toml(credentials_file(folder), content)


def noted(folder: StackFolder, server: str, name: str) -> datetime | None:
    """Time at which a secret was created, if it was recorded."""
    found = _read(folder).get(MADE, {}).get(server, {}).get(name)
    return found if isinstance(found, datetime) else None


def read(folder: StackFolder, server: str, name: str) -> str | None:
    """Returns the stored secret of that name, or None."""
    found = _read(folder).get(server, {}).get(name)
    return None if found is None else str(found)


def _set(folder: StackFolder, content: dict[str, Any], server: str, name: str, value: str | None = None) -> str:
    made = value or secrets.token_urlsafe(PASSWORD_BYTES)
    content.setdefault(server, {})[name] = made
    _note(content, server, name)
    write_toml(credentials_file(folder), content)
    return made


def _note(content: dict[str, Any], server: str, name: str) -> None:
    content.setdefault(MADE, {}).setdefault(server, {})[name] = datetime.now(UTC).replace(microsecond=0)


def _read(folder: StackFolder) -> dict[str, Any]:
    return read_toml(credentials_file(folder)) if credentials_file(folder).exists() else {}
