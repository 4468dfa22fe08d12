"""The signing keys of a local stack: of intake, scheduler and detector, of the person who asks agents, and of emulated nodes.

Holds: each is made once, in a file for its owner alone; agents obey the person's key, and those that a person added to the list.
From the first `up` of a new folder on, nothing unsigned counts; in a folder from before there were keys, from the second: until
then unsigned records of before may wait on the control topic.
"""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Any

from trainhouse.deploy.local.layout import StackFolder
from trainhouse.private_files import write_private

ACCEPTED, REQUIRED = "accepted", "required"
PLATFORM_HEADING = "# What intake, the detector and schedulers may sign with, one public key a line"
HEADING = "# Whose requests for stacks and commands agents obey, one a line: operator NAME KEY, or gateway NAME KEY for its users"
GATEWAY_PREFIX = "gateway local "
_SETTINGS = {
    "scheduler": ("signing_key", "signatures", "platform_keys"),
    "agent": ("operations_keys", "require_signed"),
    "gateway": ("operations_key",),
    "operations": ("key",),
    "fleet": ("key",),
}
PERSONS = ("operations", "fleet")


def platform_key(folder: StackFolder) -> Path:
    """Path of the signing key of intake, scheduler and detector."""
    return _folder(folder) / "platform.key"


def platform_keys(folder: StackFolder) -> Path:
    """The public keys that the scheduler takes for intake's and the detector's."""
    return _folder(folder) / "platform.keys"


def operations_key(folder: StackFolder) -> Path:
    """Path of the operator's signing key, for requests for stacks and commands."""
    return _folder(folder) / "operations.key"


def gateway_key(folder: StackFolder) -> Path:
    """Path of the gateway's signing key, for its users' requests for profiles and tunnels."""
    return _folder(folder) / "gateway.key"


def operations_keys(folder: StackFolder) -> Path:
    """The public keys that agents obey."""
    return _folder(folder) / "operations.keys"


def fleet_key(folder: StackFolder) -> Path:
    """Path of the signing key of emulated nodes."""
    return _folder(folder) / "fleet.key"


def sections(folder: StackFolder, before: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Settings that name the keys, which are made where they are missing. `before`: what the settings' file holds already, if anything.

    Raises InvalidKeyError where a file holds something else.
    """
    from trainhouse.events.security.key_files import kept_key  # what lists keys needs no cryptography

    known = "signing_key" in before.get("scheduler", {})
    for path in (platform_key(folder), fleet_key(folder)):
        kept_key(path)
    _list_key(operations_keys(folder), HEADING, persons_prefix(), kept_key(operations_key(folder)).public_key)
    _list_key(operations_keys(folder), HEADING, GATEWAY_PREFIX, kept_key(gateway_key(folder)).public_key)
    _list_key(platform_keys(folder), PLATFORM_HEADING, "", kept_key(platform_key(folder)).public_key)
    signatures = REQUIRED if known or not before else ACCEPTED
    return {
        "scheduler": {
            "signing_key": str(platform_key(folder)),
            "platform_keys": str(platform_keys(folder)),
            "signatures": signatures,
        },
        "projector": {"signatures": signatures},
        "exporter": {"signatures": signatures},
        "gateway": {"operations_key": str(gateway_key(folder))},
        "operations": {"key": str(operations_key(folder))},
        "agent": {"operations_keys": str(operations_keys(folder)), "require_signed": True},
        "fleet": {"key": str(fleet_key(folder))},
    }


def of_part(content: dict[str, Any], part: str) -> dict[str, Any]:
    """A part's settings from the person's: without those of signatures that are for others."""
    others = _SETTINGS.keys() - {_section(part)}
    own = {section: {k: v for k, v in content.get(section, {}).items() if k not in _SETTINGS[section]} for section in others}
    return {**content, **own}


def exports(content: dict[str, Any], part: str | None) -> dict[str, str]:
    """The same settings as environment variables: of a part, or of the person."""
    sections = PERSONS if part is None else (_section(part),)
    values = {(s, k): content.get(s, {}).get(k) for s in sections for k in _SETTINGS.get(s, ())}
    return {f"TRAINHOUSE_{s}_{k}".upper(): str(value) for (s, k), value in values.items() if value is not None}


def _section(part: str) -> str:
    """Settings section of a part's signatures: intake and the detector share the scheduler's."""
    return "scheduler" if part in ("intake", "detector") else part


def persons_prefix() -> str:
    """Prefix of the operator's key in the list of accepted operations keys."""
    name = "".join(c if c.isalnum() else "-" for c in getpass.getuser()) or "owner"
    return f"operator {name} "


def _list_key(path: Path, heading: str, prefix: str, public_key: str) -> None:
    """Adds a key to a list."""
    lines = path.read_text() if path.exists() else heading
    if public_key not in lines:
        write_private(path, f"{lines.rstrip()}\n{prefix}{public_key}\n".encode())


def _folder(folder: StackFolder) -> Path:
    path = folder.part("keys")
    path.mkdir(mode=0o700, exist_ok=True)
    return path
