"""List of a stack's passwords and keys, with their files and ages: `trainhouse credentials list`.

Never: a password or a private key.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from trainhouse.deploy.local import client_config
from trainhouse.deploy.local.change_folder import started
from trainhouse.deploy.local.credentials import key_rotation, passwords, rotation_note, signing_keys, token_keys
from trainhouse.deploy.local.credentials.rotation_plan import GATEWAY, SIGNING, STORE
from trainhouse.deploy.local.layout import StackFolder

PASSWORD, KEY = "password", "key"  # nosec B105  # a kind, no password
UNTIL_RETIRED = "until `trainhouse credentials retire`"
CUT_SHORT = "a rotation was cut short: rotate again"
NODES_OWN = "not rotated: a node has the key that it registered with until `trainhouse node forget-key`"
# Keys of others than the stack's servers: who renews them.
ELSEWHERE = {"secrets.key": ("secrets", "sealing key", "`trainhouse secrets rotate-key` renews it")}


@dataclass(frozen=True)
class Credential:
    """One password or key, without it. `file`: where it is kept, in the stack's folder."""

    server: str
    name: str
    made_at: datetime | None
    note: str = ""
    kind: str = PASSWORD
    file: str = passwords.NAME

    @property
    def age_s(self) -> float | None:
        """Seconds since it was made, where that is known."""
        return None if self.made_at is None else max(0.0, (datetime.now(UTC) - self.made_at).total_seconds())


def listing(root: Path) -> list[Credential]:
    """Every credential of a stack."""
    folder = started(root)
    return [*_passwords(folder), *_store(folder), *_gateway(folder), *_signing(folder), *_others(folder)]


def _passwords(folder: StackFolder) -> list[Credential]:
    half = rotation_note.pending(folder)
    return [
        Credential(each.server, each.name, each.made_at, CUT_SHORT if each.name == client_config.OLD_BROKER or each.server in half else "")
        for each in passwords.known(folder)
        if each.server != STORE
    ]


def _store(folder: StackFolder) -> list[Credential]:
    newest = passwords.noted(folder, STORE, client_config.KEY)
    notes = {client_config.NEXT_KEY: CUT_SHORT}
    kept = [each for each in passwords.known(folder) if each.server == STORE]
    return [
        Credential(STORE, client_config.KEY, newest, kind=KEY, file=folder.client_config.name),
        *(Credential(STORE, each.name, each.made_at, notes.get(each.name, UNTIL_RETIRED), KEY) for each in kept),
    ]


def _gateway(folder: StackFolder) -> list[Credential]:
    found = [_in_file(folder, GATEWAY, "signing key", token_keys.token_key(folder))]
    listed = token_keys.accepted_keys(folder)
    of_before = [_of_before(folder, GATEWAY, "signing key of before", listed)] * len(token_keys.of_before(folder))
    return found + of_before


def _signing(folder: StackFolder) -> list[Credential]:
    lists = {"platform": signing_keys.platform_keys(folder), "operations": signing_keys.operations_keys(folder)}
    found = []
    for path in sorted(folder.part("keys").glob("*.key")):
        found.append(_in_file(folder, SIGNING, path.stem, path, NODES_OWN if path == signing_keys.fleet_key(folder) else ""))
        if path.stem in lists:
            listed = lists[path.stem]
            found += [_of_before(folder, SIGNING, f"{path.stem} of before", listed)] * key_rotation.of_before(listed)
    return found


def _others(folder: StackFolder) -> list[Credential]:
    node = folder.part("agent") / "node.key"
    found = [_in_file(folder, SIGNING, "node", node, NODES_OWN)] if node.exists() else []
    for name, (server, what, note) in ELSEWHERE.items():
        if (folder.root / name).exists():
            found.append(_in_file(folder, server, what, folder.root / name, note))
    return found


def _in_file(folder: StackFolder, server: str, name: str, path: Path, note: str = "") -> Credential:
    made_at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    return Credential(server, name, made_at, note, KEY, path.relative_to(folder.root).as_posix())


def _of_before(folder: StackFolder, server: str, name: str, path: Path) -> Credential:
    return Credential(server, name, None, UNTIL_RETIRED, KEY, path.relative_to(folder.root).as_posix())
