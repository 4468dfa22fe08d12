"""What a rank wrote, as events: pure, with ids that a second reading gives again.

Holds: an event read twice from the same bytes has the same id. Values come from programs of users, so they are checked, never trusted.
"""

from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from trainhouse.events import (
    AttemptNumber,
    CheckpointCompleted,
    CheckpointFailed,
    CheckpointPruned,
    CheckpointRestored,
    CheckpointStarted,
    Epoch,
    Event,
    GangAllocated,
    JobId,
    LogLines,
    LossDiverged,
    NodeId,
    ProgressReported,
    StepMetrics,
)
from trainhouse.events.tracking import EnvironmentCaptured
from trainhouse.workers.agent.core.loglines import LogCut
from trainhouse.workers.agent.core.spool import MetricsBatch, SpoolEvent

CHECKPOINT_EVENTS: dict[str, type[Event]] = {
    c.__name__: c for c in (CheckpointStarted, CheckpointCompleted, CheckpointFailed, CheckpointRestored, CheckpointPruned)
}
REPORT_EVENTS: dict[str, type[Event]] = {c.__name__: c for c in (LossDiverged,)}
TRACKING_EVENTS: dict[str, type[Event]] = {c.__name__: c for c in (EnvironmentCaptured,)}
MAX_EVENT_ID_CHARS = 512


@dataclass(frozen=True, slots=True)
class RankIdentity:
    """Whose files they are."""

    job_id: JobId
    attempt: AttemptNumber
    epoch: Epoch
    node_id: NodeId
    pool: str
    rank: int

    @classmethod
    def of(cls, allocation: GangAllocated, node_id: str, rank: int) -> "RankIdentity":
        return cls(allocation.job_id, allocation.attempt, allocation.epoch, NodeId(node_id), str(allocation.pool), rank)

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

    def progress(self, fields: dict[str, Any]) -> ProgressReported | None:
        """None when the fields are no progress."""
        known = {k: v for k, v in fields.items() if k in ProgressReported.model_fields}
        try:
            return ProgressReported.model_validate(known | self._ids() | self._place() | {"rank": self.rank})
        except ValidationError:
            return None

    def _committed_by(self, fields: dict[str, Any]) -> dict[str, Any]:
        """An older attempt's commit, told again by the one that restores it, keeps the numbers of the attempt that made it."""
        attempt, epoch = fields.get("attempt"), fields.get("epoch")
        older = isinstance(attempt, int) and isinstance(epoch, int) and 0 <= epoch < self.epoch
        return {"attempt": attempt, "epoch": epoch} if older else {}

    def checkpoint(self, found: SpoolEvent, now_ms: int) -> tuple[Event, str] | None:
        """The event and its id; None when it is none of ours."""
        model = CHECKPOINT_EVENTS.get(found.name)
        if model is None:
            return None
        known = {k: v for k, v in found.fields.items() if k in model.model_fields}
        try:
            event = model.model_validate({"at_ms": now_ms} | known | self._ids() | self._committed_by(known))
        except ValidationError:
            return None
        return event, self._own_id(found)

    def report(self, found: SpoolEvent, now_ms: int) -> tuple[Event, str] | None:
        """What a rank reports to the scheduler, and its id; None when it is no such report."""
        model = REPORT_EVENTS.get(found.name)
        if model is None:
            return None
        known = {k: v for k, v in found.fields.items() if k in model.model_fields}
        try:
            event = model.model_validate({"at_ms": now_ms, "rank": self.rank} | known | self._ids() | self._place())
        except ValidationError:
            return None
        return event, self._own_id(found)

    def tracking(self, found: SpoolEvent, now_ms: int) -> tuple[Event, str] | None:
        """What a rank tells of itself, and its id; None when it is nothing of that."""
        model = TRACKING_EVENTS.get(found.name)
        if model is None:
            return None
        known = {k: v for k, v in found.fields.items() if k in model.model_fields}
        try:
            event = model.model_validate({"at_ms": now_ms} | known | self._ids() | {"node_id": self.node_id, "rank": self.rank})
        except ValidationError:
            return None
        return event, self._own_id(found)

    def _own_id(self, found: SpoolEvent) -> str:
        own = found.event_id
        usable = isinstance(own, str) and own.isprintable() and own.isascii() and 0 < len(own) <= MAX_EVENT_ID_CHARS
        return str(own) if usable else self.event_id("spool", found.offset)
