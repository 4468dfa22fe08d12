"""The generated passwords of a stack: `credentials.toml` in its data folder, one table for each server.

Holds: every password is random, made once, and readable by the owner of the folder alone.
Never: a password in an argument of a process, a log line, or a message.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from trainhouse.deploy.local.layout import StackFolder, read_toml, write_toml

PASSWORD_BYTES = 30


def credentials_file(folder: StackFolder) -> Path:
    """Where the passwords are."""
    return folder.root / "credentials.toml"


def password(folder: StackFolder, server: str, name: str) -> str:
    """The password of the account `name` on `server` ("kafka", "sql"); made on first use.

    Call it while the folder's lock is held, as `up` does: two callers at once could make two passwords.
    """
    content: dict[str, Any] = read_toml(credentials_file(folder)) if credentials_file(folder).exists() else {}
    accounts: dict[str, str] = content.setdefault(server, {})
    if name not in accounts:
        accounts[name] = secrets.token_urlsafe(PASSWORD_BYTES)
        write_toml(credentials_file(folder), content)
    return accounts[name]
