"""The note that a rotation is under way: written before its first step, taken away after its last one.

Holds: what finds it knows that a rotation was cut off, and of what: the next one, whatever it is asked for, goes on with that too; an `up`
that got all parts to answer has put it right, since each was started with what the files say.
"""

from __future__ import annotations

from collections.abc import Iterable

from trainhouse.deploy.local.credentials.rotation_plan import SERVERS
from trainhouse.deploy.local.layout import StackFolder, read_toml, write_toml

NAME = "rotation.toml"


def begin(folder: StackFolder, servers: Iterable[str]) -> tuple[str, ...]:
    """Notes a rotation of these servers; all that it is of, with what an earlier one left."""
    wanted = {*servers, *pending(folder)}
    found = tuple(server for server in SERVERS if server in wanted)
    write_toml(folder.root / NAME, {"servers": list(found)})
    return found


def pending(folder: StackFolder) -> tuple[str, ...]:
    """The servers of a rotation that was cut off; none where there is none."""
    path = folder.root / NAME
    servers = read_toml(path).get("servers", []) if path.exists() else []
    return tuple(server for server in SERVERS if server in servers)


def over(folder: StackFolder) -> None:
    """Everything goes by what the files say."""
    (folder.root / NAME).unlink(missing_ok=True)
