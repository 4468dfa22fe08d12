"""Results of saves and restores.

Holds: frozen values, alike on every rank.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint that exists. `bytes_new` were sent, the rest of `bytes_total` was there already."""

    commit: int
    step: int
    bytes_new: int
    bytes_total: int
    stage_s: float
    upload_s: float
    uri: str


@dataclass(frozen=True)
class DamagedCheckpoint:
    """A checkpoint that was passed over, and why."""

    commit: int
    uri: str
    reason: str

    def __str__(self) -> str:
        return f"{self.uri}: {self.reason}"


@dataclass(frozen=True)
class RestoreReport:
    """Starting point of training. `restored` is the commit, None for a fresh start; `job_id` is the one whose checkpoint it is.

    `peer_bytes`: by node, what this rank read from its memory; `peer_failures`: why not more.
    """

    restored: int | None
    step: int
    job_id: str
    uri: str = ""
    damaged: tuple[DamagedCheckpoint, ...] = ()
    restore_s: float = 0.0
    world_size: int = 0
    bytes_total: int = 0
    peer_bytes: Mapping[str, int] = field(default_factory=dict)
    peer_failures: tuple[str, ...] = ()
