"""State of each job that has not ended: the fold of its events. Pure.

Holds: an event that was taken before changes nothing; an event of an older attempt is no news; at most MAX_JOBS are kept, the oldest go
first.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from trainhouse.events import Envelope, JobAdmitted, JobSubmitted
from trainhouse.events.model.trace_state import JobTraced
from trainhouse.projections.exporter.spans import parent_of, trace_id_of

MAX_JOBS = 100_000
# A job that ended is kept for what still arrives of it.
LINGER_MS = 60_000


@dataclass(frozen=True)
class Seen:
    """One event, and when its record was written, in milliseconds since 1970.

    `signers`: the nodes whose key signed the record; None where that does not matter.
    """

    envelope: Envelope
    at_ms: int
    signers: frozenset[str] | None = None

    @property
    def time_ms(self) -> int:
        """Time of the event: by its writer, else by its record."""
        return self.envelope.time_ms if self.envelope.time_ms is not None else self.at_ms


def begun(seen: Seen) -> JobTraced | None:
    """Returns the state that a first event of a job gives; None for other events."""
    event = seen.envelope.event
    if not isinstance(event, JobSubmitted | JobAdmitted):
        return None
    submission = str(event.submission_id if isinstance(event, JobAdmitted) else seen.envelope.id)
    submitted_ms = event.submitted_at_ms if isinstance(event, JobAdmitted) else seen.time_ms
    parent = parent_of(seen.envelope.traceparent)
    return JobTraced(
        job_id=event.job_id,
        submission_id=submission,
        trace_id=parent.trace_id if parent else trace_id_of(submission),
        parent_id=parent.span_id if parent else "",
        sampled=parent.sampled if parent else True,
        name=event.spec.name,
        project=event.spec.project,
        user=event.spec.user,
        pool=str(event.spec.pool),
        submitted_ms=submitted_ms,
        waits_since_ms=submitted_ms,
        begun_ms=submitted_ms,
    )


class Kept:
    """All jobs that are followed, and which of them changed since they were last written down."""

    def __init__(self, jobs: Iterable[JobTraced] = ()) -> None:
        self.jobs: dict[str, JobTraced] = {str(job.job_id): job for job in jobs}
        self.changed: dict[str, JobTraced | None] = {}

    def put(self, job: JobTraced) -> None:
        """A job as it is now."""
        key = str(job.job_id)
        if self.jobs.get(key) == job:
            return
        self.jobs[key] = self.changed[key] = job
        while len(self.jobs) > MAX_JOBS:
            self.drop(next(iter(self.jobs)))

    def drop(self, job_id: str) -> None:
        """Forgets a job."""
        del self.jobs[job_id]
        self.changed[job_id] = None

    def forget_ended(self, now_ms: int) -> None:
        """Drops the jobs that ended a while ago."""
        for key in [k for k, j in self.jobs.items() if j.finished_ms is not None and now_ms - j.finished_ms > LINGER_MS]:
            self.drop(key)

    def take_changed(self) -> dict[str, JobTraced | None]:
        """Returns the changes to write: jobs as they are now, None for those that are forgotten."""
        changed, self.changed = self.changed, {}
        return changed
