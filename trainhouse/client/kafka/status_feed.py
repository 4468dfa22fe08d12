"""The public status topic, followed: the whole current status of every job, in order.

Holds: reads committed records only; a status is never yielded twice or after a newer one of its job.
Never: commits offsets, or joins a consumer group.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import InitVar, dataclass, field
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from trainhouse.client.backend_protocol import Position, Submitted
from trainhouse.client.errors import NotReachableError
from trainhouse.events import InvalidEvent, JobState, JobStatus, decode
from trainhouse.events.bus.kafka import TO_END, at_least_s, consumer, headers_of, next_records, watermarks
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import STATUS

METADATA_TIMEOUT_S = 10.0
POLL_S = 0.2
STALL_S = 30.0
# Errors come back as exceptions; librdkafka need not print them as well.
SILENT: dict[str, Any] = {"log_level": 0}
# For what is read to its end. It asks the brokers 50 times a second as long as it has partitions: not for a reader that waits.
QUIET: dict[str, Any] = {**SILENT, **TO_END}


class StatusFeed:
    """One reader of the status topic. Use as a context manager; not for two threads at once. `gone`: keys that ended with a tombstone.

    `to_end`: it is read by `until_end`, and not followed.
    """

    def __init__(self, settings: KafkaSettings, to_end: bool = False) -> None:
        self._settings = settings
        self._reader = consumer(settings, **(QUIET if to_end else SILENT))
        self.gone: set[str] = set()
        self._seen: dict[str, int] = {}
        self._at_end: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._reader.close()

    def position(self) -> Position:
        """End offsets of the topic. Blocks on the brokers; raises NotReachableError."""
        try:
            metadata = self._reader.list_topics(STATUS, timeout=at_least_s(self._reader, METADATA_TIMEOUT_S)).topics[STATUS]
            if metadata.error is not None:
                raise NotReachableError(f"{self._settings.bootstrap} has no topic {STATUS}: {metadata.error.str()}; start the stack once")
            ends = {}
            for number in metadata.partitions:
                _, ends[number] = watermarks(self._reader, STATUS, number, METADATA_TIMEOUT_S)
        except (KafkaException, BusUnavailableError) as error:
            raise NotReachableError(unreachable(self._settings.bootstrap, error)) from error
        return Position(ends)

    def start(self, since: Position | None = None) -> Position:
        """Reads the partitions of `since` from there, or all from their beginnings. Gives their ends as of now."""
        now = self.position()
        begin = dict.fromkeys(now.ends, 0) if since is None else since.ends
        self._reader.assign([TopicPartition(STATUS, n, offset) for n, offset in begin.items()])
        self._at_end = set()
        return Position({n: now.ends[n] for n in begin if n in now.ends})

    def until_end(self) -> Iterator[tuple[str, JobStatus]]:
        """Yields what there is now: (key, status). Blocks on the brokers. For a reader that was made `to_end`."""
        assigned = {tp.partition for tp in self._reader.assignment()}
        received_s, stall_s = time.monotonic(), at_least_s(self._reader, STALL_S)
        while not assigned <= self._at_end:
            for found in self.poll(POLL_S):
                received_s = time.monotonic()
                yield found
            if time.monotonic() > received_s + stall_s:
                raise NotReachableError(
                    f"{self._settings.bootstrap}: {STATUS} could not be read to its end, nothing came for {stall_s:.0f} s"
                )

    def poll(self, timeout_s: float) -> Iterator[tuple[str, JobStatus]]:
        """Yields what is there, waiting up to `timeout_s` for the first."""
        for message in next_records(self._reader, 500, timeout_s):
            error = message.error()
            # The brokers tell the end: its offset is of no use, the marker of a transaction is never delivered.
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                self._at_end.add(message.partition() or 0)
            if error is not None:
                continue
            key = (message.key() or b"").decode("utf-8", "replace")
            if message.value() is None:
                self.gone.add(key)
                self._seen.pop(key, None)
                continue
            self.gone.discard(key)
            try:
                event = decode(message.value(), headers_of(message)).event
            except InvalidEvent:
                continue  # a newer writer's: this reader has nothing to say about it
            if isinstance(event, JobStatus) and event.status_seq > self._seen.get(key, -1):
                self._seen[key] = event.status_seq
                yield key, event


def concerns(key: str, status: JobStatus, job_id: str, event_id: str | None, spec_sha256: str | None = None) -> bool:
    """Returns whether a status tells how a submission goes: the job's own, or the rejection of this very event.

    With `spec_sha256` the job's own counts only if it has that spec: another job of this id is not what was submitted.
    """
    if event_id is not None and key == event_id:
        return True
    if spec_sha256 is not None and status.spec_sha256 not in ("", spec_sha256):
        return False
    return key == job_id and (status.state is not JobState.REJECTED or event_id is None or status.submission_id in (None, event_id))


@dataclass
class FirstStatuses:
    """The first status of each of many submissions, out of one feed. `found`: by job id; None as long as there is none."""

    jobs: InitVar[Sequence[Submitted]]
    found: dict[str, JobStatus | None] = field(init=False)

    def __post_init__(self, jobs: Sequence[Submitted]) -> None:
        self.found = {str(job.job_id): None for job in jobs}
        self._by_key = {str(job.job_id): job for job in jobs} | {job.event_id: job for job in jobs if job.event_id}

    def take(self, key: str, status: JobStatus) -> None:
        """Takes what the feed gave. Later statuses of a job change nothing."""
        job = self._by_key.get(key)
        if job is None or self.found[job.job_id] is not None:
            return
        if concerns(key, status, job.job_id, job.event_id or None, job.spec_sha256):
            self.found[job.job_id] = status

    def is_complete(self) -> bool:
        """Returns whether each has one."""
        return None not in self.found.values()


def earliest(positions: Sequence[Position]) -> Position:
    """A position that is before all of them. Pure."""
    ends: dict[int, int] = {}
    for position in positions:
        for partition, offset in position.ends.items():
            ends[partition] = min(offset, ends.get(partition, offset))
    return Position(ends)


def unreachable(bootstrap: str, error: BaseException) -> str:
    """One sentence for brokers that do not answer."""
    cause = error.args[0].str() if isinstance(error, KafkaException) else str(error)
    return f"Kafka at {bootstrap} does not answer ({cause}); is the stack up? `trainhouse up --detach` starts one, `trainhouse ps` shows it"
