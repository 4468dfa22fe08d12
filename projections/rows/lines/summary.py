"""An event in one line for a person.

Holds: never raises for a valid event; an event without a line of its own is told by its name and its short fields.
"""

from functools import singledispatch

from trainhouse.events.model.attempt import AttemptStarted, AttemptStopped, LaunchFailed, RankExited, SessionOpened
from trainhouse.events.model.base import Event
from trainhouse.events.model.checkpoint import (
    CheckpointCompleted,
    CheckpointDeleted,
    CheckpointFailed,
    CheckpointPruned,
    CheckpointRestored,
    CheckpointSkipped,
    CheckpointStarted,
)
from trainhouse.events.model.gang import CheckpointRequested, GangAllocated, GangReleased
from trainhouse.events.model.job import CancelJob, ChangeJob, JobAdmitted, JobRejected, JobReviewed, JobSubmitted, ReviewAction, ReviewJob
from trainhouse.events.model.node import NodeLost, NodeRegistered, NodeSuspected
from trainhouse.events.wire.rank_end import last_line, note_of
from trainhouse.projections.rows.lines.tracking_lines import TRACKED, tracking_line
from trainhouse.projections.rows.lines.verdict_lines import VERDICTS, verdict_line

MAX_CHARS = 400


def summarize(event: Event) -> str:
    """One line of at most MAX_CHARS characters."""
    line = " ".join(_line(event).split())
    return line if len(line) <= MAX_CHARS else line[: MAX_CHARS - 1] + "…"


@singledispatch
def _line(event: Event) -> str:
    short = [f"{k}={v}" for k, v in event.model_dump().items() if isinstance(v, str | int | float) and k != "job_id"]
    return f"{type(event).__name__} {', '.join(short[:6])}".strip()


@_line.register
def _(event: JobSubmitted) -> str:
    spec = event.spec
    return (
        f"submitted by {spec.user} for {spec.project}: {spec.name}, {spec.gang.ranks} ranks in pool {spec.pool}, priority {spec.priority}"
    )


@_line.register
def _(event: JobAdmitted) -> str:
    return f"admitted to pool {event.spec.pool}"


@_line.register
def _(event: JobRejected) -> str:
    return f"rejected: {event.reason}"


@_line.register
def _(event: CancelJob) -> str:
    return f"cancellation asked by {event.user}: {event.reason}"


@_line.register
def _(event: ChangeJob) -> str:
    asked = [] if event.priority is None else [f"priority {event.priority}"]
    return f"change asked: {', '.join(asked + (['limits'] if event.limits else [])) or 'nothing'}"


_REVIEW_ASKED = {
    ReviewAction.SEND: "review",
    ReviewAction.GO_ON: "end of the review, to go on,",
    ReviewAction.CANCEL: "cancellation in review",
}
_REVIEWED = {
    ReviewAction.SEND: "sent to review",
    ReviewAction.GO_ON: "goes on after its review",
    ReviewAction.CANCEL: "cancelled in review",
}


@_line.register
def _(event: ReviewJob) -> str:
    return f"{_REVIEW_ASKED[event.action]} asked by {event.user}{f': {event.reason}' if event.reason else ''}"


@_line.register
def _(event: JobReviewed) -> str:
    return f"{_REVIEWED[event.action]}, by {event.user}{f': {event.reason}' if event.reason else ''}"


@_line.register
def _(event: GangAllocated) -> str:
    nodes = ", ".join(f"{p.node_id} ({len(p.devices)})" for p in event.placements)
    return f"attempt {event.attempt} (epoch {event.epoch}): {event.world_size} ranks on {nodes}"


@_line.register
def _(event: GangReleased) -> str:
    return f"attempt {event.attempt} released: {event.reason}"


@_line.register
def _(event: CheckpointRequested) -> str:
    return f"checkpoint requested{' before a stop' if event.then_stop else ''}: {event.reason}"


@_line.register
def _(event: AttemptStarted) -> str:
    return f"attempt {event.attempt} started on {event.node_id} ({'warm' if event.warm else 'cold'})"


@_line.register
def _(event: SessionOpened) -> str:
    return f"attempt {event.attempt}: rank {event.rank} opened a session"


@_line.register
def _(event: LaunchFailed) -> str:
    return f"attempt {event.attempt} could not start on {event.node_id}: {event.reason}"


@_line.register
def _(event: RankExited) -> str:
    how = f"signal {event.signal}" if event.signal is not None else f"exit code {event.exit_code}"
    detail = "" if event.clean else note_of(event.reason) or last_line(event.reason)
    tail = f": {detail}" if detail else ""
    return f"rank {event.rank} of attempt {event.attempt} ended on {event.node_id} with {how}{tail}"


@_line.register
def _(event: AttemptStopped) -> str:
    return f"attempt {event.attempt} is gone from {event.node_id}"


@_line.register
def _(event: CheckpointStarted) -> str:
    return f"checkpoint at step {event.step} began"


@_line.register
def _(event: CheckpointCompleted) -> str:
    return f"checkpoint {event.commit} at step {event.step}: {event.bytes_total} bytes, {event.bytes_new} new"


@_line.register
def _(event: CheckpointFailed) -> str:
    return f"checkpoint at step {event.step} failed: {event.reason}"


@_line.register
def _(event: CheckpointSkipped) -> str:
    return f"warning: {event.reason}"


@_line.register
def _(event: CheckpointRestored) -> str:
    passed = f"; passed over: {'; '.join(event.damaged)}" if event.damaged else ""
    return f"attempt {event.attempt} resumed from checkpoint {event.commit}, step {event.step}{passed}"


@_line.register
def _(event: CheckpointPruned) -> str:
    return f"checkpoints {', '.join(map(str, event.commits))} removed by retention"


@_line.register
def _(event: CheckpointDeleted) -> str:
    return f"checkpoint {event.commit} of step {event.step} deleted by {event.user}"


@_line.register
def _(event: NodeRegistered) -> str:
    return f"node {event.node_id} registered in pool {event.pool} with {len(event.devices)} devices"


@_line.register
def _(event: NodeSuspected) -> str:
    return f"node {event.node_id} silent for {event.silent_s:.1f} s"


@_line.register
def _(event: NodeLost) -> str:
    return f"node {event.node_id} lost after {event.silent_s:.1f} s: {event.evidence}"


for _verdict in VERDICTS:
    _line.register(_verdict, verdict_line)
for _tracked in TRACKED:
    _line.register(_tracked, tracking_line)
