"""The data folder of a stack: where everything lies, on which ports, with how many slots.

Always: `stack.toml` holds what `up` chose, so that the next `up` goes on with it; `trainhouse.toml` holds what clients
need and is readable by its owner alone.  Never: a port outside the one table below.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import tomli_w

from trainhouse.deploy.local.errors import FolderUnusableError
from trainhouse.deploy.local.free_ports import LOOPBACK, free_ports
from trainhouse.deploy.local.servers.seaweedfs import StorePorts
from trainhouse.deploy.local.socket_folder import runtime_dir
from trainhouse.private_files import write_once, write_private

BASE_PORT = 19_090
# Offsets from the base: all ports of a stack, in one place.
KAFKA, KAFKA_CONTROLLER, STORE, CLICKHOUSE, GATEWAY, METRICS = 0, 1, 2, 10, 11, 12
# Who serves its figures, in the order of their ports from METRICS on.
METERED = ("intake", "scheduler", "detector", "projector", "alerts", "agent", "tuner")
COUNT = METRICS + len(METERED)


@dataclass(frozen=True)
class StackPorts:
    """Every port of a stack, by offset."""

    numbers: tuple[int, ...]

    @classmethod
    def from_base(cls, base: int) -> Self:
        """Consecutive ports."""
        return cls(tuple(range(base, base + COUNT)))

    @classmethod
    def free(cls) -> Self:
        """Ports that are free now."""
        return cls(tuple(free_ports(COUNT)))

    @property
    def kafka(self) -> int:
        return self.numbers[KAFKA]

    @property
    def kafka_controller(self) -> int:
        return self.numbers[KAFKA_CONTROLLER]

    @property
    def store(self) -> StorePorts:
        return StorePorts(*self.numbers[STORE:CLICKHOUSE])

    @property
    def clickhouse(self) -> int:
        return self.numbers[CLICKHOUSE]

    @property
    def gateway(self) -> int:
        """0 in a folder that an older `up` made."""
        return self.numbers[GATEWAY] if len(self.numbers) > GATEWAY else 0

    def metrics(self, name: str) -> int:
        """Port of a part's metrics; 0 if it serves none."""
        at = METRICS + METERED.index(name) if name in METERED else COUNT
        return self.numbers[at] if at < len(self.numbers) else 0

    def complete(self) -> Self:
        """With free ports for what a folder that an older `up` made has none."""
        missing = COUNT - len(self.numbers)
        return self if missing <= 0 else type(self)((*self.numbers, *free_ports(missing, self.numbers)))


@dataclass(frozen=True)
class Choices:
    """Options of `up`, kept for the next `up`."""

    ports: tuple[int, ...]
    slots: int
    # Whether the gateway serves https.
    tls: bool = False


@dataclass(frozen=True)
class StackFolder:
    """Paths inside one data folder."""

    root: Path

    @property
    def client_config(self) -> Path:
        return self.root / "trainhouse.toml"

    @property
    def choices_file(self) -> Path:
        return self.root / "stack.toml"

    @property
    def supervisor_config(self) -> Path:
        return self.root / "supervisor.conf"

    @property
    def logs(self) -> Path:
        return self.root / "log"

    @property
    def lock_file(self) -> Path:
        return self.root / "stack.lock"

    @property
    def socket(self) -> Path:
        return runtime_dir(self.root) / "supervisor.sock"

    def part(self, name: str) -> Path:
        """The folder of one part's data."""
        return self.root / name

    def make(self) -> None:
        """Make the folder; FolderUnusableError when it can't be made or written. Its files are for their owner alone, and where it lies
        in a checkout, git leaves them out: they hold keys and passwords."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            self.root.chmod(0o700)
            self.logs.mkdir(exist_ok=True)
            self.lock_file.touch(mode=0o600)
            write_once(self.root / ".gitignore", b"*\n")
        except OSError as error:
            raise FolderUnusableError(
                f"the data folder {self.root} cannot be used: {error.strerror}; name another by `--data-dir DIR` or TRAINHOUSE_DATA_DIR"
            ) from error
        if not os.access(self.root, os.W_OK | os.X_OK):
            raise FolderUnusableError(f"the data folder {self.root} is not writable: `chmod u+wx` it, or name another by --data-dir")

    def read_choices(self) -> Choices | None:
        """Options of the last `up`; None on a fresh folder."""
        if not self.choices_file.exists():
            return None
        found = read_toml(self.choices_file)
        return Choices(ports=tuple(found["ports"]), slots=found["slots"], tls=found.get("tls", False))

    def write_choices(self, choices: Choices) -> None:
        write_toml(self.choices_file, asdict(choices))


def endpoint(port: int, scheme: str = "") -> str:
    """An address on loopback."""
    return f"{scheme}://{LOOPBACK}:{port}" if scheme else f"{LOOPBACK}:{port}"


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file; FolderUnusableError names the file when it is not one."""
    try:
        return tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise FolderUnusableError(f"{path} is no TOML any more: {error}; mend it, or remove it and run `trainhouse up`") from error


def write_toml(path: Path, content: Mapping[str, Any]) -> None:
    """Write for the owner alone, whole or not at all."""
    write_private(path, tomli_w.dumps(content).encode())
