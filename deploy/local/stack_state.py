"""The embedded stack on a data folder as it is now: its parts, warnings, endpoints.

Holds: nothing is started or changed.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainhouse import landlock
from trainhouse.deploy.local import client_config
from trainhouse.deploy.local.credentials import rotation_note
from trainhouse.deploy.local.errors import NotRunningError
from trainhouse.deploy.local.layout import StackFolder, StackPorts
from trainhouse.deploy.local.supervision import failed_passes as passes
from trainhouse.deploy.local.supervision import stack_parts, supervisor_client, supervisor_config
from trainhouse.deploy.local.supervision.halted_partitions import halted
from trainhouse.workers.agent.node.isolation_file import last_warning

MIN_FREE_BYTES = 2 * 1024**3


@dataclass(frozen=True)
class PartRow:
    """One part, for `ps`."""

    name: str
    pid: int
    state: str
    restarts: int
    addresses: list[str]
    log: str


def ps(root: Path, names: Sequence[str] = stack_parts.NAMES) -> list[PartRow]:
    """These parts as they are now, by default those that run all the time; NotRunningError if nothing runs."""
    folder = StackFolder(root.absolute())
    choices = folder.read_choices() if folder.root.exists() else None
    if choices is None:
        raise NotRunningError(f"no stack was ever started on {folder.root}: `trainhouse up --data-dir {folder.root}` starts one")
    listed = stack_parts.all_parts(folder, StackPorts(choices.ports), client_config.keys_of(folder))
    addresses = {part.name: [address for address in (part.address, part.metrics) if address] for part in listed}
    return [
        PartRow(
            each.name, each.pid, each.state, each.restarts, addresses.get(each.name, []), str(supervisor_config.log_file(folder, each.name))
        )
        for each in sorted(
            (each for each in supervisor_client.states(folder) if each.name in names),
            key=lambda each: names.index(each.name),
        )
    ]


def warnings(root: Path, min_free_bytes: int = MIN_FREE_BYTES) -> list[str]:
    """Warnings for the operator, beside `ps`."""
    found = []
    free = shutil.disk_usage(root).free
    if free < min_free_bytes:
        found.append(
            f"{free / 1024**2:.0f} MiB are free on the disk of {root}: Kafka and the store stop taking data when it is full; "
            "make room, then parts that ended start again by themselves"
        )
    version = landlock.abi()
    if version < landlock.PORTS_SINCE_ABI:
        lacks = "Landlock" if version == 0 else "ports in its Landlock"
        found.append(
            f"this kernel has no {lacks}: the process of guests' SQL is not kept from them; use Linux 6.7 or newer with Landlock on"
        )
    if left := rotation_note.pending(StackFolder(root.absolute())):
        found.append(f"a rotation of {', '.join(left)} was cut short: `trainhouse credentials rotate` does it anew")
    return found


def halted_partitions(root: Path) -> list[str]:
    """Partitions of the journals that stand still. Blocks for a few seconds where scheduler or intake do not answer."""
    folder = StackFolder(root.absolute())
    choices = folder.read_choices()
    if choices is None:
        return []
    return halted(stack_parts.all_parts(folder, StackPorts(choices.ports), client_config.keys_of(folder)))


def failed_passes(root: Path) -> list[str]:
    """Warnings of parts that run once a day, and failed when they did last; NotRunningError if nothing runs."""
    folder = StackFolder(root.absolute())
    logs = {name: str(supervisor_config.log_file(folder, name)) for name in stack_parts.PASSES}
    return passes.failed_passes(supervisor_client.states(folder), logs)


def isolation_warnings(root: Path) -> list[str]:
    """Warning if the stack's own agent does not isolate jobs whole, as it logged at its start."""
    warning = last_warning(StackFolder(root.absolute()).part(stack_parts.AGENT))
    return [warning] if warning else []


def env(root: Path, part: str | None = None) -> str:
    """The endpoints as shell exports, for a person or a part; NotRunningError if no stack was ever started on this folder."""
    folder = StackFolder(root.absolute())
    if not folder.client_config.exists():
        raise NotRunningError(f"no stack was ever started on {folder.root}: `trainhouse up --data-dir {folder.root}` starts one")
    return client_config.as_shell(client_config.exports(folder, part))
