"""The way in of a service: submissions go to Kafka, statuses come from there, everything else is a question to the tables.

Holds: everything goes by Kafka, SQL and the object store, as any other program could do it. What Kafka answers because the tables are away
is told as a warning of Python's logging, which goes to standard error unless a program says otherwise.
Never: keeps state about jobs of its own.
"""

import getpass
import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainhouse.client.backend_protocol import Happening, Position, Retuned, Row, Sql, Submitted
from trainhouse.client.code_archive import PackedCode
from trainhouse.client.errors import InvalidSpecError, JobEndedError, NotReachableError, QueryError, UnknownJobError
from trainhouse.client.filters import JobFilter
from trainhouse.client.kafka.freshness import reached
from trainhouse.client.kafka.pool_requests import Fleet
from trainhouse.client.kafka.status_feed import FirstStatuses, StatusFeed, concerns, earliest, unreachable
from trainhouse.client.log_lines import LogReader
from trainhouse.client.metrics_table import table_of
from trainhouse.client.rows import (
    ARTIFACTS_QUERY,
    CURVE_QUERY,
    EXISTS_QUERY,
    NODES_QUERY,
    POOLS_QUERY,
    TAGS_QUERY,
    alerts_query,
    checkpoints_query,
    events_query,
    job_query,
    jobs_query,
    last_metrics_query,
    metrics_query,
    row_of,
    status_of_row,
)
from trainhouse.events import (
    AskedVia,
    CancelJob,
    ChangeJob,
    CodeArchive,
    Event,
    JobId,
    JobSpec,
    JobState,
    JobStatus,
    JobSubmitted,
    Limits,
    RequestedBy,
    ReviewAction,
    ReviewJob,
    envelope_of,
)
from trainhouse.events.bus.kafka import ONE_SHOT, EventProducer
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.model.explanation import JobExplained
from trainhouse.events.model.job_ids import RANDOM_BITS, job_id_of
from trainhouse.events.model.tracking import TagsChanged
from trainhouse.events.runtime.clock import wall_ms
from trainhouse.events.security.sensitive import refusal
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import JOBS, LOGS, POINT_TOPICS, STATUS, TRACKING

if TYPE_CHECKING:
    import pyarrow

    from trainhouse.client.models.model_requests import ModelRequests
    from trainhouse.scheduler.core.state.records import Job as ScheduledJob
    from trainhouse.scheduler.core.state.state import ScheduleState

log = logging.getLogger(__name__)
SOURCE = "trainhouse/client"
POLL_S = 0.5
STATUS_LAG_S = 5.0
POSITION_S = 5.0
"""Seconds for which one look at the ends of the status topic serves submissions: a follower reads from there."""
PutCode = Callable[[PackedCode], CodeArchive]


@dataclass
class ByKafka:
    """One user's access by the brokers. `put` stores code, `tags` reads what keeps checkpoints.

    Made of nothing but addresses; connects when first used.
    """

    kafka: KafkaSettings
    sql: Sql
    put: PutCode
    tags: Callable[[str], list[Row]] = lambda _job_id: []
    clock_ms: Callable[[], int] = wall_ms
    _producer: EventProducer | None = field(default=None, repr=False)
    _looked: tuple[float, Position] | None = field(default=None, repr=False)

    @property
    def place(self) -> str:
        """For people."""
        return f"Kafka at {self.kafka.bootstrap}"

    def put_code(self, code: PackedCode) -> CodeArchive:
        """Stores an archive under its hash, unless it is there. Blocks on the object store."""
        return self.put(code)

    @property
    def user(self) -> str:
        """The login name."""
        return getpass.getuser()

    def submit(self, spec: JobSpec, job_id: JobId | None, event_id: str | None) -> Submitted:
        """Sends one submission and waits for Kafka's ack."""
        chosen = job_id or job_id_of(spec.name, self.clock_ms(), secrets.randbits(RANDOM_BITS))
        position = self._recent_position()
        sent = self.send(JobSubmitted(job_id=chosen, spec=spec), event_id)
        # The status of an older submission of the same id may lie before the position: read it all then.
        return Submitted(chosen, sent, None if job_id else position, spec.sha256())

    def _recent_position(self) -> Position:
        """Ends of the status topic as they are or were a moment ago: one look serves many submissions in a row. Blocks on the brokers."""
        looked_s, position = self._looked or (0.0, None)
        if position is None or time.monotonic() > looked_s + POSITION_S:
            with StatusFeed(self.kafka) as feed:
                looked_s, position = time.monotonic(), feed.position()
            self._looked = looked_s, position
        return position

    def rerun(self, job_id: str) -> Submitted:
        """The topic of submissions has the whole spec."""
        spec = self.spec(job_id)
        if spec is None:
            raise UnknownJobError(job_id)
        again = spec.model_copy(update={"labels": {**spec.labels, "rerun-of": job_id}, "user": self.user})
        if refused := refusal(again):
            raise InvalidSpecError(refused)
        return self.submit(again, None, None)

    def cancel(self, job_id: JobId, reason: str) -> str:
        """Blocks until Kafka acks."""
        return self.send(CancelJob(job_id=job_id, reason=reason, user=getpass.getuser()))

    def change(self, job_id: JobId, priority: int | None, limits: Mapping[str, Any], timeout_s: float) -> Retuned | None:
        """Blocks until the job's scheduler answers."""
        state = self.status(job_id).state
        if state.final:
            raise JobEndedError(job_id, state)
        whole = self._limits(job_id, limits) if limits else None
        retuned = self.fleet().change(ChangeJob(job_id=job_id, priority=priority, limits=whole), timeout_s)
        if retuned is None:
            self._check_not_ended(job_id, priority)
            return None
        return Retuned(retuned.priority, retuned.limits)

    def review(self, job_id: JobId, action: ReviewAction, reason: str, max_bad: float | None, timeout_s: float) -> None:
        """Blocks until the job's scheduler answers."""
        asked = ReviewJob(job_id=job_id, action=action, reason=reason, user=getpass.getuser(), max_bad=max_bad)
        self.fleet().review(asked, timeout_s)

    def fleet(self) -> Fleet:
        """Requests about pools, policies and nodes, and their outcome."""
        return Fleet(self.kafka, self.send)

    def models(self) -> "ModelRequests":
        """Requests to the registry of models, and what it decided."""
        from trainhouse.client.models.model_requests import ModelRequests

        return ModelRequests(self.kafka, self.send)

    def status(self, job_id: str) -> JobStatus:
        """From the status topic; of a job that finished so long ago that the topic gave it up, from the tables."""
        row = self._row(job_id)
        place = _place(row)
        found = (self._newest(place).get(job_id) if place else None) or _ended(row) or self._newest().get(job_id)
        if found is not None:
            return found
        if row is None:
            raise UnknownJobError(job_id)
        return status_of_row(row)

    def statuses(self) -> dict[str, JobStatus]:
        """Reads the status topic to its end."""
        return self._newest()

    def watch(self, job: Submitted, timeout_s: float | None) -> Iterator[JobStatus | None]:
        """From the status topic; a job that was followed before is read from where the tables saw its newest status.

        One that is finished is in the tables, and perhaps no longer in the topic.
        """
        row = None if job.position else self._row(job.job_id)
        ended = _ended(row)
        if ended is not None and concerns(job.job_id, ended, job.job_id, job.event_id or None, job.spec_sha256):
            yield ended
            return
        position = job.position or (None if job.event_id else _place(row))
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with StatusFeed(self.kafka) as feed:
            feed.start(position)
            while deadline is None or time.monotonic() < deadline:
                for status in [s for key, s in feed.poll(POLL_S) if concerns(key, s, job.job_id, job.event_id or None, job.spec_sha256)]:
                    yield status
                    if status.state.final:
                        return
                yield None

    def first_statuses(self, jobs: Sequence[Submitted], timeout_s: float) -> dict[str, JobStatus | None]:
        """From the status topic, read once for all that were just submitted, then for each one that needs its whole history."""
        deadline = time.monotonic() + timeout_s
        together = FirstStatuses([job for job in jobs if job.position is not None])
        if together.found:
            with StatusFeed(self.kafka) as feed:
                feed.start(earliest([job.position for job in jobs if job.position is not None]))
                while not together.is_complete() and time.monotonic() < deadline:
                    for key, status in feed.poll(POLL_S):
                        together.take(key, status)
        found = dict(together.found)
        for job in jobs:
            left_s = deadline - time.monotonic()
            if job.position is None and left_s > 0:
                found[str(job.job_id)] = next((s for s in self.watch(job, left_s) if s is not None), None)
        return found

    def watch_all(self) -> Iterator[JobStatus | None]:
        """From the status topic."""
        with StatusFeed(self.kafka) as feed:
            feed.start(feed.position())
            while True:
                yield from (status for _, status in feed.poll(POLL_S))
                yield None

    def jobs(self, keep: JobFilter, limit: int) -> list[Row]:
        """From the tables or, where those are away, from the status topic."""
        try:
            return self.sql.table(jobs_query(keep, limit)).dicts()
        except NotReachableError as error:
            if keep.tags:
                raise NotReachableError(f"{error}; jobs are filtered by tags in the tables alone") from error
            log.warning("%s; reading the status topic instead", error)
            rows = sorted((row_of(s) for s in self.statuses().values()), key=lambda r: -(r["submitted_at_ms"] or r["updated_at_ms"]))
            return [r for r in rows if keep.keeps(r)][:limit]

    def spec(self, job_id: str) -> JobSpec | None:
        """From the topic of submissions."""
        from trainhouse.client.kafka.job_events import spec_of_job

        return spec_of_job(self.kafka, job_id)

    def events(self, job_id: str, kind: str | None, since_ms: int | None, until_ms: int | None) -> list[Happening]:
        """From the tables; from Kafka itself where those are away, or know nothing of the job yet."""
        from trainhouse.client.kafka.job_events import happenings

        try:
            found = [Happening(**row) for row in self.sql.table(events_query(job_id, kind, since_ms, until_ms)).dicts()]
        except NotReachableError as error:
            log.warning("%s; reading Kafka instead", error)
            found = []
        return found or happenings(self.kafka, job_id, kind, since_ms, until_ms)

    def lines(self, job_id: str, rank: int | None, stream: str | None, attempt: int | None, tail: int | None) -> LogReader:
        """From the tables."""
        reader = LogReader(self.sql, job_id, rank, stream, attempt, lambda wait_s: reached(self.kafka, self.sql, LOGS, wait_s=wait_s))
        if tail is not None:
            reader.skip_to_last(tail)
        return reader

    def checkpoints(self, job_id: str) -> list[Row]:
        """From the tables."""
        return self.sql.table(checkpoints_query(job_id)).dicts()

    def checkpoint_tags(self, job_id: str) -> list[Row]:
        """From the object store."""
        return self.tags(job_id)

    def artifacts(self, job_id: str) -> list[Row]:
        """From the tables."""
        return self.sql.table(ARTIFACTS_QUERY, {"job_id": job_id}).dicts()

    def metrics(self, job_id: str, names: Sequence[str]) -> "pyarrow.Table":
        """From the tables, when they have what the brokers have now."""
        reached(self.kafka, self.sql, *POINT_TOPICS)
        return table_of([self.sql.raw(metrics_query(job_id, names), "ArrowStream")])

    def last_metrics(self, job_id: str, names: Sequence[str]) -> list[Row]:
        """From the tables."""
        return self.sql.table(last_metrics_query(job_id, names)).dicts()

    def curve(self, job_id: str, metric: str, points: int) -> list[Row]:
        """From the tables."""
        return self.sql.table(CURVE_QUERY, {"job_id": job_id, "metric": metric, "points": points}).dicts()

    def why(self, job_id: str, at_ms: int | None) -> JobExplained | None:
        """Worked out from the scheduler's journal."""
        from trainhouse.client.kafka.explaining import explained

        found = explained(self.kafka, job_id, self.clock_ms() if at_ms is None else at_ms)
        if found is None:
            self.status(job_id)  # raises UnknownJobError
            return None
        return found.answer

    def nodes(self) -> list[Row]:
        """From the tables."""
        return self.sql.table(NODES_QUERY).dicts()

    def pools(self) -> list[Row]:
        """From the tables."""
        return self.sql.table(POOLS_QUERY).dicts()

    def pools_in_full(self, pool: str | None) -> list[Row]:
        """As their schedulers have them, from the journal."""
        from trainhouse.client.kafka.pool_state import overview

        known = self.fleet().pools()
        return overview(self.kafka, {name: p for name, p in known.items() if pool in (None, name)})

    def alerts(self) -> list[Row]:
        """From the tables."""
        return self.sql.table(alerts_query()).dicts()

    def alert_causes(self) -> list[Row]:
        """From the projections."""
        from trainhouse.projections.alerts.causes import open_causes

        return open_causes(self.alerts(), lambda query: self.sql.table(query).dicts())

    def change_tags(self, job_id: JobId, tags: Mapping[str, str], remove: Sequence[str]) -> None:
        """Blocks until Kafka acks. The tables know tracked runs too, which have no status."""
        if not self._row_of_any(job_id):
            self.status(job_id)
        self.send(TagsChanged(job_id=job_id, tags=dict(tags), deleted=tuple(remove), at_ms=self.clock_ms()), topic=TRACKING)

    def job_tags(self, job_id: str) -> dict[str, str]:
        """From the tables."""
        found = {row["key"]: row["value"] for row in self.sql.table(TAGS_QUERY, {"job_id": job_id}).dicts()}
        if not found and not self._row_of_any(job_id):
            self.status(job_id)
        return found

    def _row_of_any(self, job_id: str) -> bool:
        """Returns whether the tables have a job or a tracked run of this id; False where they are away."""
        try:
            return bool(self.sql.table(EXISTS_QUERY, {"job_id": job_id}).rows)
        except (NotReachableError, QueryError):
            return False

    def send(self, event: Event, event_id: str | None = None, topic: str = JOBS) -> str:
        """Puts an event on a topic, the public one by default. Blocks until Kafka acks; gives the event's id. Raises NotReachableError."""
        chosen = event_id or secrets.token_hex(16)
        event = _named(event)
        try:
            if self._producer is None:
                self._producer = EventProducer(self.kafka, **ONE_SHOT, log_level=0)
            self._producer.send(topic, envelope_of(event, id=chosen, source=SOURCE, now_ms=self.clock_ms()))
            self._producer.flush()
        except BusUnavailableError as error:
            raise NotReachableError(unreachable(self.kafka.bootstrap, error)) from error
        return chosen

    def _check_not_ended(self, job_id: JobId, priority: int | None) -> None:
        """Raises JobEndedError where a change to this priority, or of limits alone, had no effect because the job has ended."""
        if priority is None:
            self._scheduled(job_id)
            return
        # Its last status may come a moment after the answer: until then it shows the priority of before.
        deadline = time.monotonic() + STATUS_LAG_S
        while time.monotonic() < deadline:
            status = self.status(job_id)
            if status.state.final:
                raise JobEndedError(job_id, status.state)
            if status.priority == priority:
                return
            time.sleep(POLL_S)

    def _limits(self, job_id: JobId, named: Mapping[str, Any]) -> Limits:
        """A job's limits as its scheduler has them, with the named ones changed. Raises UnknownJobError, JobEndedError."""
        return Limits.model_validate(self._scheduled(job_id).limits.model_dump() | dict(named))

    def _scheduled(self, job_id: JobId) -> "ScheduledJob":
        """The job as its scheduler has it; one whose pool is being moved as the next scheduler has it.

        Raises UnknownJobError; JobEndedError where no scheduler has it any more; ChangeRefusedError where its pool is on its way for long.
        """
        from trainhouse.client.kafka.present import schedule_at
        from trainhouse.client.kafka.scheduled_job import JobReads, scheduled_job

        def folded(partition: int | None) -> "list[ScheduleState]":
            at = schedule_at(self.kafka, partitions=None if partition is None else [partition])
            return [f.state for f in at.partitions.values()]

        partition = self.fleet().pools().get(str(self.status(job_id).pool))
        return scheduled_job(job_id, partition, JobReads(folded, lambda: self.status(job_id).state))

    def _newest(self, since: Position | None = None) -> dict[str, JobStatus]:
        """The newest status of every job that has one since then, by job id."""
        newest: dict[str, JobStatus] = {}
        keys: dict[str, str] = {}
        with StatusFeed(self.kafka) as feed:
            feed.start(since)
            for key, status in feed.until_end():
                name = str(status.job_id or key)
                # A rejected resubmission never hides the status of the job itself.
                if key == name or name not in newest or newest[name].state is JobState.REJECTED:
                    newest[name], keys[name] = status, key
            return {name: status for name, status in newest.items() if keys[name] not in feed.gone}

    def _row(self, job_id: str) -> Row | None:
        """Returns the job's row in the tables; None where they are away or have none."""
        try:
            rows = self.sql.table(job_query(job_id)).dicts()
        except (NotReachableError, QueryError):
            return None
        return rows[0] if rows else None


def _place(row: Row | None) -> Position | None:
    """Position of the job's newest status in the projections, from which to read the topic on."""
    if row is None or row["source_topic"] != STATUS:
        return None
    return Position({int(row["source_partition"]): int(row["source_offset"])})


def _ended(row: Row | None) -> JobStatus | None:
    """The last status of a job, if the tables have it: nothing comes after it. A refused submission's is none: it may be sent again."""
    return status_of_row(row) if row is not None and row["status_seq"] >= 0 and JobState(row["state"]).final else None


def _named(event: Event) -> Event:
    """The event with who asks, where its kind says so."""
    if "requested_by" not in type(event).model_fields or getattr(event, "requested_by", None) is not None:
        return event
    return event.model_copy(update={"requested_by": RequestedBy(name=getpass.getuser(), via=AskedVia.OPERATOR)})
