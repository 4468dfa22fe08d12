"""What happened to checkpoints.

Holds: a CheckpointCompleted follows the manifest it names, its event id is `{job}:commit:{n}`, and a repeat means the same commit.
"""

from pydantic import Field

from trainhouse.events.base import Event
from trainhouse.events.ids import AttemptNumber, Epoch, JobId


class CheckpointEvent(Event):
    """What every checkpoint event carries."""

    job_id: JobId
    attempt: AttemptNumber
    epoch: Epoch
    at_ms: int


class CheckpointStarted(CheckpointEvent, type="trainhouse.checkpoint.started.v1"):
    """The ranks began to save."""

    step: int = Field(ge=0)
    reason: str = ""


class CheckpointCompleted(CheckpointEvent, type="trainhouse.checkpoint.completed.v1"):
    """The manifest of commit `commit` exists. `bytes_new` were uploaded, the rest of `bytes_total` was there already."""

    commit: int = Field(ge=0)
    step: int = Field(ge=0)
    uri: str
    bytes_total: int = Field(ge=0)
    bytes_new: int = Field(ge=0)
    stage_s: float = 0.0
    upload_s: float = 0.0
    world_size: int = 1


class CheckpointFailed(CheckpointEvent, type="trainhouse.checkpoint.failed.v1"):
    """A save did not become a checkpoint; the older ones stand."""

    step: int = Field(ge=0)
    reason: str


class CheckpointSkipped(CheckpointEvent, type="trainhouse.checkpoint.skipped.v1"):
    """The spec asks for checkpoints and one was due, but the job's code tracks nothing to save. Emitted once per attempt."""

    step: int = Field(ge=0)
    reason: str


class CheckpointRestored(CheckpointEvent, type="trainhouse.checkpoint.restored.v1"):
    """An attempt began from this commit. `damaged` names newer ones that were passed over, with the reason."""

    commit: int = Field(ge=0)
    step: int = Field(ge=0)
    uri: str
    damaged: tuple[str, ...] = ()
    restore_s: float = 0.0


class CheckpointPruned(CheckpointEvent, type="trainhouse.checkpoint.pruned.v1"):
    """Retention removed these commits."""

    commits: tuple[int, ...]
    bytes_freed: int = Field(0, ge=0)
