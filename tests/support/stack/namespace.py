"""A network namespace with one wire to this machine's own, for nodes whose network can be taken away for real.

Holds: while the wire is down, packets between the two are lost, whoever sends them; within the namespace everything goes on.
Needs the rights to make one (root, as a rule): `allowed` says whether this process has them.
"""

from __future__ import annotations

import secrets
import subprocess
from types import TracebackType
from typing import Self


class Namespace:
    """Make it, use `command` as a prefix of what is to run inside, and close it. `address` is this machine as seen from inside."""

    def __init__(self) -> None:
        tag = secrets.token_hex(3)
        self.name, self._wire, inside = f"th-{tag}", f"th{tag}o", f"th{tag}i"
        net = f"10.231.{secrets.randbelow(256)}"
        self.address = f"{net}.1"
        ip("netns", "add", self.name)
        try:
            ip("link", "add", self._wire, "type", "veth", "peer", "name", inside, "netns", self.name)
            ip("addr", "add", f"{self.address}/24", "dev", self._wire)
            ip("link", "set", self._wire, "up")
            ip("-n", self.name, "addr", "add", f"{net}.2/24", "dev", inside)
            ip("-n", self.name, "link", "set", inside, "up")
            ip("-n", self.name, "link", "set", "lo", "up")
        except BaseException:
            self.close()
            raise

    @property
    def command(self) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self.name)

    def cut(self) -> None:
        """From now on every packet is lost."""
        ip("link", "set", self._wire, "down")

    def heal(self) -> None:
        """Packets arrive again."""
        ip("link", "set", self._wire, "up")

    def close(self) -> None:
        """Ends it; the wire goes with it."""
        subprocess.run(["ip", "link", "del", self._wire], capture_output=True, check=False)
        ip("netns", "del", self.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def allowed() -> bool:
    """Whether namespaces can be made here: tries it."""
    try:
        Namespace().close()
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def ip(*arguments: str) -> None:
    """One command of iproute2. Raises CalledProcessError, or FileNotFoundError where there is none."""
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=30)
