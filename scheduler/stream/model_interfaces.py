"""Port of the registry to the object store: facts of a version's content, contents of jobs' checkpoints, results of evaluations, and the
chains of stages.

Holds: all of them may be called again for the same thing; what is there already stays.
"""

from dataclasses import dataclass
from typing import Protocol

from trainhouse.events import ModelEvaluated, ModelRegistered, VersionFacts
from trainhouse.scheduler.core.registry.evaluation_jobs import EvaluatedJob
from trainhouse.scheduler.core.registry.job_registrations import RegisteredCheckpoint
from trainhouse.scheduler.core.registry.registry_state import StageChange


class ContentRefusedError(Exception):
    """Refusal of a content; the message says why, and what to do. After any other error the store is asked again."""


class ModelStore(Protocol):
    """The store, as the registry's process needs it. All methods block, and raise what the store raises."""

    def prepare(self, checkpoint: RegisteredCheckpoint) -> str:
        """Stores the content of a version that a checkpoint is; returns its hash. Raises ContentRefusedError."""

    def facts(self, registered: ModelRegistered) -> VersionFacts:
        """Facts of the content that a registration names, which is in the store afterwards. Raises ContentRefusedError."""

    def evaluated(self, job: EvaluatedJob) -> ModelEvaluated:
        """The result that a job left, which is kept from now on for as long as the version is. Raises ContentRefusedError."""

    def append(self, change: StageChange) -> None:
        """Appends a change to its model's chain, unless it is there."""


@dataclass(frozen=True, slots=True)
class KnownJob:
    """Facts of a job by the topics. `data`, `splits`: what its spec says that it trains on, as `VersionFacts` has them; `has_spec`: False
    where its spec is on no topic any more."""

    project: str
    user: str
    data: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()
    has_spec: bool = True
