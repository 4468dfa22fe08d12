"""Telemetry of a rank as events: pure, with ids that a second reading gives again.

Holds: an event read twice from the same bytes has the same id. Values come from programs of users, so they are checked, never trusted:
of datasets, a shipped report names the version of the job's spec or none.
"""

from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from trainhouse.events import (
    AttemptNumber,
    BadShardFound,
    CheckpointCompleted,
    CheckpointFailed,
    CheckpointPruned,
    CheckpointRestored,
    CheckpointSkipped,
    CheckpointStarted,
    Epoch,
    Event,
    GangAllocated,
    JobId,
    LogLines,
    LossDiverged,
    NodeId,
    ProgressReported,
    SessionOpened,
    StepMetrics,
    TooManyBadSamples,
)
from trainhouse.events.model.artifact import ArtifactRecorded
from trainhouse.events.model.bounds import read_clamped
from trainhouse.events.model.data_read import DataRead
from trainhouse.events.model.media import MediaRecorded
from trainhouse.events.model.tracking import EnvironmentCaptured, TraceRecorded
from trainhouse.events.wire.topics import CHECKPOINTS, CONTROL, ENVIRONMENTS
from trainhouse.workers.agent.core.loglines import LogCut
from trainhouse.workers.agent.core.spool import MetricsBatch, SpoolEvent

# What a rank may tell, by topic.
RANK_EVENTS: dict[str, tuple[type[Event], ...]] = {
    CHECKPOINTS: (CheckpointStarted, CheckpointCompleted, CheckpointFailed, CheckpointSkipped, CheckpointRestored, CheckpointPruned),
    CONTROL: (LossDiverged, BadShardFound, TooManyBadSamples),
    ENVIRONMENTS: (EnvironmentCaptured, TraceRecorded, MediaRecorded, ArtifactRecorded, DataRead),
}
_BY_NAME = {model.__name__: (topic, model) for topic, models in RANK_EVENTS.items() for model in models}
MAX_EVENT_ID_CHARS = 512


@dataclass(frozen=True, slots=True)
class RankIdentity:
    """Identity of the files' rank. `dataset`: version that the job's spec names; empty: none."""

    job_id: JobId
    attempt: AttemptNumber
    epoch: Epoch
    node_id: NodeId
    pool: str
    rank: int
    dataset: str = ""

    @classmethod
    def of(cls, allocation: GangAllocated, node_id: str, rank: int) -> "RankIdentity":
        data, ids = allocation.spec.data, (allocation.job_id, allocation.attempt, allocation.epoch)
        return cls(*ids, NodeId(node_id), str(allocation.pool), rank, "" if data is None else data.dataset or "")

    def event_id(self, stream: str, start: int) -> str:
        """Names a record by where it begins: the same bytes, the same id."""
        return f"{self.job_id}:{int(self.epoch)}:{self.rank}:{stream}:{start}"

    def _ids(self) -> dict[str, Any]:
        return {"job_id": self.job_id, "attempt": self.attempt, "epoch": self.epoch}

    def _place(self) -> dict[str, Any]:
        return {"node_id": self.node_id, "pool": self.pool}

    def metrics(self, batch: MetricsBatch) -> StepMetrics:
        """Unvalidated on purpose: `cut_spool` has checked every value, and there are 100,000 a second."""
        return StepMetrics.model_construct(
            **self._ids(),
            rank=self.rank,
            node_id=self.node_id,
            start=batch.start,
            end=batch.end,
            steps=tuple(batch.steps),
            times_ms=tuple(batch.times_ms),
            offsets=tuple(batch.offsets),
            metrics={name: tuple(column) for name, column in batch.metrics.items()},
        )

    def log_lines(self, cut: LogCut, stream: str, now_ms: int) -> LogLines:
        return LogLines.model_construct(
            **self._ids(),
            rank=self.rank,
            node_id=self.node_id,
            start=cut.start,
            end=cut.end,
            stream=stream,
            lines=tuple(cut.lines),
            offsets=tuple(cut.offsets),
            read_at_ms=now_ms,
        )

    def session_opened(self, at_ms: int) -> SessionOpened:
        return SessionOpened.model_validate(self._ids() | self._place() | {"rank": self.rank, "at_ms": at_ms})

    def progress(self, fields: dict[str, Any]) -> ProgressReported | None:
        """None when the fields are no progress."""
        known = {k: v for k, v in fields.items() if k in ProgressReported.model_fields}
        try:
            return read_clamped(ProgressReported, known | self._ids() | self._place() | {"rank": self.rank})
        except ValidationError:
            return None

    def _committed_by(self, fields: dict[str, Any]) -> dict[str, Any]:
        """An older attempt's commit, told again by the one that restores it, keeps the numbers of the attempt that made it."""
        attempt, epoch = fields.get("attempt"), fields.get("epoch")
        older = isinstance(attempt, int) and isinstance(epoch, int) and 0 <= epoch < self.epoch
        return {"attempt": attempt, "epoch": epoch} if older else {}

    def record_of(self, found: SpoolEvent, now_ms: int) -> tuple[str, Event, str] | None:
        """Topic, event and id of what a rank tells; None when it is nothing that a rank may tell."""
        topic, model = _BY_NAME.get(found.name, ("", None))
        if model is None:
            return None
        origin = self._ids() | self._place() | (self._committed_by(found.fields) if topic == CHECKPOINTS else {})
        fields = {"at_ms": now_ms, "rank": self.rank} | found.fields | origin
        try:
            event = read_clamped(model, {k: v for k, v in fields.items() if k in model.model_fields})
        except ValidationError:
            return None
        return topic, event, self._own_id(found)

    def of_spec(self, event: DataRead) -> tuple[DataRead, int]:
        """The report without versions that the spec does not name and without their shards; and how many of both these were."""
        others = {number for number, part in enumerate(event.parts) if part.version not in ("", self.dataset)}
        if not others:
            return event, 0
        parts = tuple(p.model_copy(update={"version": "", "split": ""}) if n in others else p for n, p in enumerate(event.parts))
        if event.stretch is None:
            return event.model_copy(update={"parts": parts}), len(others)
        shards = tuple(shard for shard in event.stretch.shards if shard.part not in others)
        left_out = len(others) + len(event.stretch.shards) - len(shards)
        return event.model_copy(update={"parts": parts, "stretch": event.stretch.model_copy(update={"shards": shards})}), left_out

    def _own_id(self, found: SpoolEvent) -> str:
        own = found.event_id
        usable = isinstance(own, str) and own.isprintable() and own.isascii() and 0 < len(own) <= MAX_EVENT_ID_CHARS
        return str(own) if usable else self.event_id("spool", found.offset)
