"""The port: what any way into a Trainhouse can do for one user. Two ways implement it: by Kafka, and by the gateway.

Holds: both give the same types and the same errors for the same question; every method blocks unless it says otherwise.
Never: names a library of either way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow

    from trainhouse.client.code_archive import PackedCode
    from trainhouse.client.filters import JobFilter
    from trainhouse.client.sql import Table
    from trainhouse.events import CodeArchive, JobId, JobSpec, JobStatus, Limits, ReviewAction
    from trainhouse.events.model.explanation import JobExplained

Row = dict[str, Any]
BATCH_LINES = 5000


@dataclass(frozen=True)
class Position:
    """Ends of the status topic's partitions at one moment: what comes later is news."""

    ends: dict[int, int]


@dataclass(frozen=True)
class Submitted:
    """One submission that Kafka holds: follow it with `watch` or `wait`."""

    job_id: JobId
    event_id: str
    position: Position | None
    spec_sha256: str | None = None


@dataclass(frozen=True)
class Happening:
    """One event of a job's story. `json` is the event itself; `source_*` where it lies on Kafka."""

    at_ms: int
    type: str
    summary: str
    event_id: str = ""
    node_id: str = ""
    epoch: int | None = None
    json: str = ""
    source_topic: str = ""
    source_partition: int = 0
    source_offset: int = 0


@dataclass(frozen=True)
class Line:
    """One line of a rank's output. `offset` is where it begins in its file."""

    time: str
    epoch: int
    attempt: int
    rank: int
    stream: str
    offset: int
    text: str


@dataclass(frozen=True)
class Retuned:
    """Changeable terms of a job, as they are after a change."""

    priority: int
    limits: Limits


class Sql(Protocol):
    """Questions in ClickHouse's SQL, read-only. Errors: QueryError, NotReachableError."""

    def table(self, query: str, values: Mapping[str, str | int] | None = None) -> Table:
        """The whole answer of one query; `values` are bound to its `{name:Type}`."""
        ...

    def raw(self, query: str, format: str = "TabSeparated", values: Mapping[str, str | int] | None = None) -> bytes:
        """The answer's bytes in a ClickHouse format, unless the query names one itself."""
        ...


CATCH_UP_S = 10.0


class LineReader(Protocol):
    """Log lines of a job, read on from where it stopped."""

    def more(self) -> Iterator[Line]:
        """Yields what is new, a batch at most; nothing means: all that there is was read."""
        ...

    def catch_up(self, wait_s: float = CATCH_UP_S) -> None:
        """Makes the next `more` have all that the brokers hold by now: of an ended job, its last lines. Blocks for `wait_s` at most."""
        ...


def batches(reader: LineReader) -> Iterator[list[Line]]:
    """Yields what is new, batch after batch, until there is nothing more. Blocks."""
    while batch := list(reader.more()):
        yield batch


class WayIn(Protocol):
    """One user's access. Raises NotReachableError where servers are away, UnknownJobError for a job that nobody has seen."""

    @property
    def place(self) -> str:
        """Endpoint of this backend, for messages: `Kafka at 127.0.0.1:9092`. Does not block."""
        ...

    @property
    def sql(self) -> Sql:
        """Questions in SQL. Does not block."""
        ...

    @property
    def user(self) -> str:
        """Submitting user where a spec does not name one. Does not block."""
        ...

    def submit(self, spec: JobSpec, job_id: JobId | None, event_id: str | None) -> Submitted:
        """Hands one submission over until it is durable. Without a `job_id` the job gets a fresh one."""
        ...

    def rerun(self, job_id: str) -> Submitted:
        """Submits a job's spec again, under a fresh id. Raises UnknownJobError, InvalidSpecError."""
        ...

    def cancel(self, job_id: JobId, reason: str) -> str:
        """Asks that a job end; gives the request's event id. It may not have been seen yet."""
        ...

    def change(self, job_id: JobId, priority: int | None, limits: Mapping[str, Any], timeout_s: float) -> Retuned | None:
        """Changes what is named, and waits until it counts; None: all was so. Raises ChangeRefusedError, NoReplyError."""
        ...

    def review(self, job_id: JobId, action: ReviewAction, reason: str, max_bad: float | None, timeout_s: float) -> None:
        """Sends a job to review, or ends its review, and waits until that counts. Raises ChangeRefusedError, NoReplyError."""
        ...

    def change_tags(self, job_id: JobId, tags: Mapping[str, str], remove: Sequence[str]) -> None:
        """Sets and removes tags of a job, and returns when that is durable. Raises UnknownJobError."""
        ...

    def job_tags(self, job_id: str) -> dict[str, str]:
        """Tags of a job by their keys, in their order. Raises UnknownJobError, NotReachableError."""
        ...

    def put_code(self, code: PackedCode) -> CodeArchive:
        """Stores an archive unless it is there."""
        ...

    def status(self, job_id: str) -> JobStatus:
        """The newest status of a job."""
        ...

    def statuses(self) -> dict[str, JobStatus]:
        """The newest status of every job, by job id."""
        ...

    def watch(self, job: Submitted, timeout_s: float | None) -> Iterator[JobStatus | None]:
        """Each new status until a final one, and None about twice a second between. Ends early after `timeout_s`."""
        ...

    def first_statuses(self, jobs: Sequence[Submitted], timeout_s: float) -> dict[str, JobStatus | None]:
        """The first status of each submission by job id. None: there was none in time; left out: time was up before it was asked for."""
        ...

    def watch_all(self) -> Iterator[JobStatus | None]:
        """New statuses of all jobs from now on, without end, and None about twice a second between."""
        ...

    def jobs(self, keep: JobFilter, limit: int) -> list[Row]:
        """Rows of jobs, newest first."""
        ...

    def spec(self, job_id: str) -> JobSpec | None:
        """Returns the submitted spec of a job; None where none was submitted. The gateway omits values of `env`."""
        ...

    def events(self, job_id: str, kind: str | None, since_ms: int | None, until_ms: int | None) -> list[Happening]:
        """A job's story, oldest first. `kind`: only types that contain it."""
        ...

    def lines(self, job_id: str, rank: int | None, stream: str | None, attempt: int | None, tail: int | None) -> LineReader:
        """A reader of log lines; with `tail`, only the last ones of each rank and stream that are there now."""
        ...

    def checkpoints(self, job_id: str) -> list[Row]:
        """Checkpoints of a job, oldest first."""
        ...

    def checkpoint_tags(self, job_id: str) -> list[Row]:
        """Commit and name of each tag of a job's checkpoints, and of each `used-by:JOB`; commit None where it cannot be read."""
        ...

    def artifacts(self, job_id: str) -> list[Row]:
        """Versions of artifacts that a job stored or used: action, name, sha256, kind, project, size_bytes, files, at_ms."""
        ...

    def metrics(self, job_id: str, names: Sequence[str]) -> pyarrow.Table:
        """Every point of these metrics (none named: of all), as `metrics_table` says; in order of metric, rank and step."""
        ...

    def last_metrics(self, job_id: str, names: Sequence[str]) -> list[Row]:
        """The newest value of each of these metrics (none named: of all): metric, step, value."""
        ...

    def curve(self, job_id: str, metric: str, points: int) -> list[Row]:
        """A metric of rank 0 in at most so many buckets of steps: step, least, greatest, mean."""
        ...

    def why(self, job_id: str, at_ms: int | None) -> JobExplained | None:
        """Returns the reason that a job waits, or waited at `at_ms`; None if it does not wait."""
        ...

    def nodes(self) -> list[Row]:
        """Machines as they are now."""
        ...

    def pools(self) -> list[Row]:
        """Pools as they are now."""
        ...

    def pools_in_full(self, pool: str | None) -> list[Row]:
        """Pools (or one of them) with their nodes, devices, jobs and, where it is told, teams."""
        ...

    def alerts(self) -> list[Row]:
        """Alerts that are open, the gravest first."""

    def alert_causes(self) -> list[Row]:
        """Open alerts by cause, the gravest first: `cause`, `title`, `severity`, `since_ms`, `rules`, and `alerts` as rows."""
        ...
