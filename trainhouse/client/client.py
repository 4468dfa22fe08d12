"""The client that services and the command line use: submit, cancel, follow, ask.

Holds: everything goes by Kafka and SQL, as any other program could do it; a method that talks to a server says that it blocks.
Never: keeps state about jobs of its own.
"""

import getpass
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trainhouse.client.code import MAX_CODE_BYTES, PackedCode, pack
from trainhouse.client.errors import InvalidSpec, NotReachable, QueryFailed, UnknownJob
from trainhouse.client.feed import Position, StatusFeed, concerns, unreachable
from trainhouse.client.jobids import RANDOM_BITS, job_id_of
from trainhouse.client.pools import Fleet
from trainhouse.client.sql import SqlEndpoint, literal
from trainhouse.events import (
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
    envelope_of,
)
from trainhouse.events.errors import BusUnavailable
from trainhouse.events.explain import explain_validation
from trainhouse.events.kafka import EventProducer
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.topics import JOBS

SOURCE = "trainhouse/client"
PutCode = Callable[[PackedCode], CodeArchive]


@dataclass(frozen=True)
class Submitted:
    """One submission that Kafka holds: follow it with `watch` or `wait`."""

    job_id: JobId
    event_id: str
    position: Position | None
    spec_sha256: str | None = None


def now_ms() -> int:
    """The clock, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def spec_of(fields: dict[str, Any]) -> JobSpec:
    """A spec from plain data. Raises InvalidSpec with a sentence for each problem."""
    try:
        return JobSpec.model_validate(fields)
    except ValidationError as error:
        raise InvalidSpec(f"the spec is not valid: {explain_validation(error, JobSpec)}") from error


@dataclass
class TrainhouseClient:
    """One user's access to one Trainhouse: made of settings, so of nothing but addresses."""

    kafka: KafkaSettings
    sql: SqlEndpoint
    put_code: PutCode
    clock_ms: Callable[[], int] = now_ms
    _producer: EventProducer | None = field(default=None, repr=False)

    @classmethod
    def from_settings(cls) -> "TrainhouseClient":
        """Reads environment and settings file. Does not connect."""
        from trainhouse.client.wiring import client_of_settings

        return client_of_settings()

    def new_job_id(self, name: str) -> JobId:
        """A fresh id, readable and sortable."""
        return job_id_of(name, self.clock_ms(), secrets.randbits(RANDOM_BITS))

    def upload(self, folder: Path, limit_bytes: int = MAX_CODE_BYTES) -> CodeArchive:
        """Packs a folder and stores it unless the same content is there. Blocks on disk and the object store."""
        return self.put_code(pack(folder, limit_bytes))

    def submit(self, spec: JobSpec, *, job_id: str | None = None, event_id: str | None = None) -> Submitted:
        """Sends one submission and waits for Kafka's ack. A given `job_id` makes a repeat harmless: same id, same spec, same job."""
        chosen = JobId.parse(job_id) if job_id else self.new_job_id(spec.name)
        with StatusFeed(self.kafka) as feed:
            position = feed.position()
        sent = self._send(JobSubmitted(job_id=chosen, spec=spec), event_id)
        # The status of an older submission of the same id may lie before the position: read it all then.
        return Submitted(chosen, sent, None if job_id else position, spec.sha256())

    def cancel(self, job_id: str, reason: str = "cancelled by its user") -> str:
        """Asks that a job end. Blocks until Kafka acks; gives the request's event id."""
        return self._send(CancelJob(job_id=JobId.parse(job_id), reason=reason, user=getpass.getuser()))

    def change(self, job_id: str, *, priority: int | None = None, limits: Limits | None = None) -> str:
        """Asks to change priority or limits. Blocks until Kafka acks; gives the request's event id."""
        return self._send(ChangeJob(job_id=JobId.parse(job_id), priority=priority, limits=limits))

    def fleet(self) -> Fleet:
        """Requests about pools, policies and nodes, and their outcome."""
        return Fleet(self.kafka, self._send)

    def watch(self, job: Submitted | str, *, timeout_s: float | None = None) -> Iterator[JobStatus | None]:
        """Yields each new status until a final one, and None about twice a second between. Ends early after `timeout_s`."""
        asked = job if isinstance(job, Submitted) else Submitted(JobId.parse(job), "", self._place_of_status(job))
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with StatusFeed(self.kafka) as feed:
            feed.start(asked.position)
            while deadline is None or time.monotonic() < deadline:
                found = [s for key, s in feed.poll(0.5) if concerns(key, s, asked.job_id, asked.event_id or None, asked.spec_sha256)]
                for status in found:
                    yield status
                    if status.state.final:
                        return
                yield None

    def wait(self, job: Submitted | str, timeout_s: float | None = None) -> JobStatus:
        """Blocks until the job is final. Raises TimeoutError, naming the last state."""
        last: JobStatus | None = None
        for status in self.watch(job, timeout_s=timeout_s):
            last = status or last
        if last is None or not last.state.final:
            name = job.job_id if isinstance(job, Submitted) else job
            raise TimeoutError(f"job {name} is {last.state if last else 'without a status'} after {timeout_s:.0f} s")
        return last

    def status(self, job_id: str) -> JobStatus:
        """The current status, from the status topic. Blocks. Raises UnknownJob."""
        place = self._place_of_status(job_id)
        found = self.statuses(place).get(job_id) or (self.statuses().get(job_id) if place else None)
        if found is None:
            raise UnknownJob(job_id)
        return found

    def statuses(self, since: Position | None = None) -> dict[str, JobStatus]:
        """The newest status of every job that has one since then, by job id. Blocks: reads the topic to its end."""
        newest: dict[str, JobStatus] = {}
        with StatusFeed(self.kafka) as feed:
            for key, status in _read_all(feed, since):
                name = str(status.job_id or key)
                # A rejected resubmission never hides the status of the job itself.
                if key == name or name not in newest or newest[name].state is JobState.REJECTED:
                    newest[name] = status
        return newest

    def _place_of_status(self, job_id: str) -> Position | None:
        """Where the projections saw the job's newest status, so that the topic need not be read from its beginning."""
        try:
            rows = self.sql.table(f"SELECT source_partition, source_offset FROM jobs WHERE job_id = {literal(job_id)} LIMIT 1").rows
        except (NotReachable, QueryFailed):
            return None
        return Position({int(rows[0][0]): int(rows[0][1])}) if rows else None

    def _send(self, event: Event, event_id: str | None = None) -> str:
        chosen = event_id or secrets.token_hex(16)
        try:
            if self._producer is None:
                self._producer = EventProducer(self.kafka, log_level=0)
            self._producer.send(JOBS, envelope_of(event, id=chosen, source=SOURCE, now_ms=self.clock_ms()))
            self._producer.flush()
        except BusUnavailable as error:
            raise NotReachable(unreachable(self.kafka.bootstrap, error)) from error
        return chosen


def _read_all(feed: StatusFeed, since: Position | None) -> Iterator[tuple[str, JobStatus]]:
    feed.start(since)
    yield from feed.until_end()
