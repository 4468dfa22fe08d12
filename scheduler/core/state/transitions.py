"""The states of a job and the only ways between them: one table, printed in the documentation.

Holds: a state that the table does not lead to is never entered; final states lead nowhere.
"""

from typing import Final

from trainhouse.events import JobState
from trainhouse.events.model.phases import (
    Cancelled,
    Checkpointing,
    Failed,
    Initializing,
    Pending,
    Phase,
    Rejected,
    Running,
    Scheduled,
    Stopping,
    Succeeded,
    UnderReview,
)
from trainhouse.scheduler.core.errors import BrokenInvariant

_S = JobState
_RETRY = "the attempt failed or its node was lost; a retry, with attempt + 1"
_CANCEL = "cancelled"
_EXITED = "every rank exited with code 0, and the outputs of the spec are published"
_END = "a failure, and no retry is left; the limit of run time; or an output of the spec cannot be published"
_SEALS = "every rank exited with code 0, and its outputs are sealed before its gang is released"
_REVIEW = "a person sent it to review, too many of its samples are bad, or its input could not be handled; its gang is released"
_WAY = "its gang is released: for another job, a move, another size, or a node that is drained"

TRANSITIONS: Final[tuple[tuple[JobState, JobState, str], ...]] = (
    (_S.PENDING, _S.SCHEDULED, "the whole gang has its devices"),
    (_S.PENDING, _S.CANCELLED, _CANCEL),
    (_S.PENDING, _S.FAILED, "no time is left within the limit of run time"),
    (_S.PENDING, _S.REJECTED, "the pool, even idle, could never hold the gang"),
    (_S.PENDING, _S.NEEDS_REVIEW, "a person sent it to review, or its input could not be handled"),
    (_S.SCHEDULED, _S.INITIALIZING, "every rank has a process"),
    (_S.SCHEDULED, _S.RUNNING, "first progress"),
    (_S.SCHEDULED, _S.CHECKPOINTING, _SEALS),
    (_S.SCHEDULED, _S.PENDING, _RETRY),
    (_S.SCHEDULED, _S.PREEMPTED, _WAY),
    (_S.SCHEDULED, _S.NEEDS_REVIEW, _REVIEW),
    (_S.SCHEDULED, _S.SUCCEEDED, _EXITED),
    (_S.SCHEDULED, _S.FAILED, _END),
    (_S.SCHEDULED, _S.CANCELLED, _CANCEL),
    (_S.INITIALIZING, _S.RUNNING, "first progress; or none within 10 s of the last rank's start, 30 s where it has a session"),
    (_S.INITIALIZING, _S.CHECKPOINTING, _SEALS),
    (_S.INITIALIZING, _S.PENDING, _RETRY),
    (_S.INITIALIZING, _S.PREEMPTED, _WAY),
    (_S.INITIALIZING, _S.NEEDS_REVIEW, _REVIEW),
    (_S.INITIALIZING, _S.SUCCEEDED, _EXITED),
    (_S.INITIALIZING, _S.FAILED, _END),
    (_S.INITIALIZING, _S.CANCELLED, _CANCEL),
    (_S.RUNNING, _S.CHECKPOINTING, f"asked to save before its gang is released; or {_SEALS}"),
    (_S.RUNNING, _S.PENDING, _RETRY),
    (_S.RUNNING, _S.PREEMPTED, _WAY),
    (_S.RUNNING, _S.NEEDS_REVIEW, _REVIEW),
    (_S.RUNNING, _S.SUCCEEDED, _EXITED),
    (_S.RUNNING, _S.FAILED, _END),
    (_S.RUNNING, _S.CANCELLED, _CANCEL),
    (_S.CHECKPOINTING, _S.PREEMPTED, "saved, or out of time for it; the release was to make way"),
    (_S.CHECKPOINTING, _S.NEEDS_REVIEW, "saved, or out of time for it; the release was for a review"),
    (_S.CHECKPOINTING, _S.SUCCEEDED, _EXITED),
    (
        _S.CHECKPOINTING,
        _S.FAILED,
        "saved, or out of time for it; the release was for the limit of run time; or an output cannot be published",
    ),
    (_S.CHECKPOINTING, _S.CANCELLED, _CANCEL),
    (_S.PREEMPTED, _S.PENDING, "queued again, with attempt + 1"),
    (_S.PREEMPTED, _S.NEEDS_REVIEW, "sent to review while it made way"),
    (_S.PREEMPTED, _S.SUCCEEDED, _EXITED),
    (_S.PREEMPTED, _S.FAILED, _END),
    (_S.PREEMPTED, _S.CANCELLED, _CANCEL),
    (_S.NEEDS_REVIEW, _S.PENDING, "a person let it go on"),
    (_S.NEEDS_REVIEW, _S.CANCELLED, _CANCEL),
)

_ALLOWED: Final = frozenset((a, b) for a, b, _ in TRANSITIONS)

_STATE_OF: Final[dict[type, JobState]] = {
    Pending: _S.PENDING,
    Scheduled: _S.SCHEDULED,
    Initializing: _S.INITIALIZING,
    Running: _S.RUNNING,
    Checkpointing: _S.CHECKPOINTING,
    Succeeded: _S.SUCCEEDED,
    Failed: _S.FAILED,
    Cancelled: _S.CANCELLED,
    Rejected: _S.REJECTED,
    UnderReview: _S.NEEDS_REVIEW,
}


def state_of(phase: Phase) -> JobState:
    """The state that users see for a phase."""
    return phase.shown if isinstance(phase, Stopping) else _STATE_OF[type(phase)]


def check_move(job_id: str, old: Phase, new: Phase) -> None:
    """Raises BrokenInvariant when the table has no way from the old phase's state to the new one's."""
    before, after = state_of(old), state_of(new)
    if before != after and (before, after) not in _ALLOWED:
        raise BrokenInvariant(f"job {job_id}: no way leads from {before} to {after}; see the table of job states")


def render_markdown() -> str:
    """The table as Markdown, one row per way between two states."""
    rows = [f"| {a} | {b} | {why} |" for a, b, why in TRANSITIONS]
    return "\n".join(("| from | to | when |", "|---|---|---|", *rows)) + "\n"
