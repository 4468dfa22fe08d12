"""Reports of agents to the scheduler about attempts.

Holds: each report names job, attempt, epoch and node, so that a stale one is recognised and ignored.
"""

from pydantic import Field

from trainhouse.events.model.absence import is_absent, is_no
from trainhouse.events.model.base import Event
from trainhouse.events.model.bounds import Count, Int32, Metric, ReportedS, ShortText, SmallCount, TimestampMs
from trainhouse.events.model.ids import AttemptNumber, Epoch, JobId, NodeId, PoolName
from trainhouse.events.model.node import RankLife
from trainhouse.events.model.skipped_data import MOST_SKIPPED_LOADERS, SkippedData


class AttemptReport(Event):
    """Common fields of attempt reports."""

    job_id: JobId
    attempt: AttemptNumber
    epoch: Epoch
    node_id: NodeId
    pool: PoolName


class AttemptStarted(AttemptReport, type="trainhouse.attempt.started.v1"):
    """All ranks of the attempt on this node have a process. `warm`: forked from a warm process."""

    started_at_ms: TimestampMs = Field(description="time at which the last rank had a process, in milliseconds since 1970")
    warm: bool = Field(description="whether ranks were forked from a process that had imported torch")


class SessionOpened(AttemptReport, type="trainhouse.attempt.session-opened.v1"):
    """Rank 0 has opened a session, which will report the attempt's progress; it makes no steps yet."""

    rank: SmallCount
    at_ms: TimestampMs


class LaunchFailed(AttemptReport, type="trainhouse.attempt.launch-failed.v1"):
    """The node could not start its ranks. `retryable` is False when another node would fail too (no such script …)."""

    reason: str = Field(max_length=4096)
    retryable: bool = Field(description="whether another node might succeed")


class RankExited(AttemptReport, type="trainhouse.rank.exited.v1"):
    """A rank's process is gone: `exit_code`, or the `signal` that ended it; both None when it could not be learnt."""

    rank: SmallCount
    exit_code: Int32 | None = Field(description="exit code of the process; none where a signal ended it, or it could not be learnt")
    signal: Int32 | None = Field(None, description="number of the signal that ended it")
    reason: str = Field("", max_length=8192, description="for a person; ends with the last lines of its standard error")
    exited_at_ms: TimestampMs = Field(description="time of the end, in milliseconds since 1970")
    by_agent: bool = Field(False, exclude_if=is_no, description="the SIGKILL that ended it was its node's agent's own")

    @property
    def clean(self) -> bool:
        return self.exit_code == 0


class AttemptStopped(AttemptReport, type="trainhouse.attempt.stopped.v1"):
    """Nothing of the attempt is left on this node: its devices there are free."""

    boot_id: ShortText
    stopped_at_ms: TimestampMs = Field(description="time at which nothing was left, in milliseconds since 1970")


class ProgressReported(RankLife, AttemptReport, type="trainhouse.attempt.progress.v1"):
    """Progress of training: at most one a second an attempt. `step` counts finished optimizer steps of the whole job.

    An attempt's first one and its last are on control, those between them on the topic of progress.
    """

    rank: SmallCount
    step: Count
    total_steps: Count | None = Field(None, description="steps that the session aims at")
    loss: Metric | None = None
    learning_rate: Metric | None = None
    steps_per_s: Metric | None = None
    samples_per_s: Metric | None = None
    data_wait_s: ReportedS = Field(0.0, description="seconds that the attempt has waited for data so far")
    save_stall_s: ReportedS = Field(0.0, description="seconds that saves have held training up so far")
    saving: bool = Field(False, description="whether a save is under way")
    at_ms: TimestampMs
    saved_alone: bool | None = Field(None, description="whether each rank holds the whole state, so that survivors can save it")
    last: bool = Field(False, exclude_if=is_no, description="no other one of this rank follows")


class LossDiverged(AttemptReport, type="trainhouse.attempt.loss-diverged.v1"):
    """The session stopped training: the loss is not a number, or exploded. `good_commit` is the newest checkpoint before that, if any."""

    rank: SmallCount
    step: Count
    loss: str = Field(max_length=64, description="as text, since JSON has no NaN")
    usual_loss: Metric | None = Field(None, description="usual size of the loss before")
    good_commit: Count | None = Field(None, description="number of the newest checkpoint from before the divergence")
    data: tuple[SkippedData, ...] = Field(
        (),
        max_length=MOST_SKIPPED_LOADERS,
        exclude_if=is_absent,
        description="data of the steps that did it, where the spec asks to leave them out; none: the loaders cannot",
    )
    at_ms: TimestampMs
