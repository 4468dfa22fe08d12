"""Jobs followed over the gateway's live streams.

Holds: a status is never yielded twice or after a newer one of its job; a submission that was refused is told to its sender alone.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from trainhouse.client.backend_protocol import Submitted
from trainhouse.client.errors import NotReachableError, UnknownJobError
from trainhouse.client.gateway.exchange import Flow, NotFoundError
from trainhouse.client.gateway.reads import job_path, status_of
from trainhouse.client.gateway.reads import status as status_flow
from trainhouse.client.gateway.streaming import Stream, document
from trainhouse.client.gateway.writes import terms
from trainhouse.events import JobState, JobStatus

FLEET = "/v1/stream"
ASK_EVERY_S = 5.0


@dataclass
class Watch:
    """Follows jobs. `run` runs a flow; `seen` is the newest `status_seq` of each job."""

    url: str
    token: str
    run: Callable[[Flow[Any]], Any]
    seen: dict[str, int] = field(default_factory=dict)

    def one(self, job: Submitted, after: str | None, timeout_s: float | None) -> Iterator[JobStatus | None]:
        """Each new status until a final one, and None about twice a second between. Raises UnknownJobError, NotReachableError."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        params = {"include": "status"} | ({"after": after} if after else {})
        try:
            with Stream(self.url, self.token, job_path(job.job_id, "stream"), params) as stream:
                asked_s = time.monotonic()
                for event in stream.events():
                    status = self._new(status_of(document(event))) if event is not None and event.kind == "status" else None
                    if event is None and time.monotonic() >= asked_s + ASK_EVERY_S:
                        # A status that was told just before this stream began may be missing in it.
                        status, asked_s = self._asked(job.job_id), time.monotonic()
                    if status is not None:
                        status = self.run(answering_status(status, job, after))
                    yield status
                    if (status is not None and status.state.final) or (deadline is not None and time.monotonic() >= deadline):
                        return
        except NotFoundError as error:
            raise UnknownJobError(job.job_id) from error

    def all(self) -> Iterator[JobStatus | None]:
        """New statuses of every job that the caller may see, without end, and None about twice a second between."""
        with Stream(self.url, self.token, FLEET, {}, give_up_s=0.0) as stream:
            for event in stream.events():
                yield self._new(status_of(document(event))) if event is not None and event.kind == "status" else None

    def _asked(self, job_id: str) -> JobStatus | None:
        """The status now, if it is news; None where the gateway is away: the stream tells of that, when it lasts."""
        try:
            return self._new(self.run(status_flow(job_id)))
        except (NotReachableError, UnknownJobError):
            return None

    def _new(self, status: JobStatus) -> JobStatus | None:
        key = str(status.job_id)
        if status.status_seq <= self.seen.get(key, -1):
            return None
        self.seen[key] = status.status_seq
        return status


def answering_status(status: JobStatus, job: Submitted, after: str | None) -> Flow[JobStatus | None]:
    """Returns the status that answers a submission: the job's own; or, of another spec, its rejection; None: not yet known."""
    if job.spec_sha256 is None or status.spec_sha256 in ("", job.spec_sha256):
        return status
    refused = (yield from terms(job.job_id, job.event_id, after)).refused
    if refused is None:
        return None
    fields = {"job_id": None, "submission_id": job.event_id, "status_seq": 0, "state": JobState.REJECTED, "reason": refused}
    return JobStatus.model_validate(fields)
