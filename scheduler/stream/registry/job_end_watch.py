"""Reader of the statuses of all jobs for what follows from their ends; sender of the registrations that jobs' specs ask for.

Holds: members of a group share the partitions of the status topic; an offset is committed once the registry has answered all that came
before it for good, by what this process folds of its journal: what it says to ask again is sent again, under the same id, and a status that
was read twice, by whichever process, counts once. The content of the version is in the store before the request is sent. No more is sent
than the registry has room for. While store, brokers or registry are away, statuses wait; no other is read then.
Never: decides whether a version is registered; delays what the process does otherwise.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import structlog
from aiokafka import TopicPartition

from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.topics import MODEL_REQUESTS, STATUS
from trainhouse.scheduler.core.registry.job_registrations import (
    asks_for_version,
    checkpoint_of,
    digest_of,
    is_answered,
    is_held,
    registration,
)
from trainhouse.scheduler.core.registry.registry_state import RegistryState
from trainhouse.scheduler.core.registry.room import JobsRoom
from trainhouse.scheduler.stream.interfaces import Clock, Entry
from trainhouse.scheduler.stream.kafka.group_member import WAIT_MS, GroupReading, read_as_member
from trainhouse.scheduler.stream.model_interfaces import ContentRefusedError
from trainhouse.scheduler.stream.registry.job_facts import read_spec
from trainhouse.scheduler.stream.registry.status_requests import Room, StatusRequests, Waiting, status_of

GROUP: Final = "trainhouse-intake-models"
MOST_RECORDS: Final = 500
FETCH_WAIT_MS: Final = 5_000
COMMIT_S: Final = 5.0
"""Statuses come each second, and reading some of them again costs little."""
_WORDS: Final = (b'"registers"', b"SUCCEEDED")
"""Both stand in each status that asks for a version: of all others nothing is decoded."""
log_ = structlog.get_logger(__name__)


class JobRegistrations(StatusRequests):
    """Requests of jobs that succeeded and whose specs name a model."""

    __slots__ = ()

    def wanted(self, entry: Entry) -> Waiting | None:
        status = status_of(entry, *_WORDS)
        if status is None or not asks_for_version(status):
            return None
        return Waiting(status, digest_of(status))

    def is_answered(self, state: RegistryState, each: Waiting) -> bool:
        return is_answered(state, each.status, each.digest, each.is_out)

    def room(self, state: RegistryState) -> Room:
        """The room that what was sent and is not in the state yet leaves."""
        now_s, room = self.clock.steady_s(), _RoomOfJobs(state)
        for each in self.waiting:
            if each.is_out and each.due_s > now_s and not is_held(state, each.digest):
                room.take(each)
        return room

    async def send(self, state: RegistryState, each: Waiting) -> None:
        status, content = each.status, None
        if each.checkpoint is None and status.last_checkpoint is not None:
            each.checkpoint = checkpoint_of(status, await read_spec(self.log, str(status.job_id), status.spec_sha256))
        if each.checkpoint is not None:
            try:  # each time: it has to be in the store when the request is read
                content = await asyncio.to_thread(self.store.prepare, each.checkpoint)
            except ContentRefusedError as refused:  # the registry finds the same, and says so in the model's history
                log_.warning("a job's checkpoint cannot be a version", job_id=str(status.job_id), reason=str(refused))
        request = registration(status, each.checkpoint, content)
        await self.log.send(MODEL_REQUESTS, request.event.subject().encode(), encode(request))


class _RoomOfJobs:
    def __init__(self, state: RegistryState) -> None:
        self._state, self._room = state, JobsRoom(state)

    def has(self, each: Waiting) -> bool:
        return not is_held(self._state, each.digest) and self._room.has(each.status.project, each.status.registers or "")

    def take(self, each: Waiting) -> None:
        self._room.take(each.status.project)


class JobEndWatch:
    """One member of the group of readers."""

    def __init__(self, kafka: KafkaSettings, clock: Clock, requests: Sequence[StatusRequests], session_s: float) -> None:
        self._kafka = kafka
        self._clock = clock
        self._requests = requests
        self._reading = GroupReading(GROUP, "statuses", {"topics": [STATUS]}, session_s, {"fetch_max_wait_ms": FETCH_WAIT_MS})
        self._committed: dict[int, int] = {}
        self._commit_due_s = 0.0

    async def run(self) -> None:
        """Reads until cancelled."""
        await read_as_member(self._kafka, self._reading, self._round, self._begin)

    def _begin(self) -> None:
        self._committed.clear()
        for each in self._requests:
            each.keep(set())

    async def _round(self, consumer: Any) -> None:
        """Reads a batch, sends what is due, and commits what is done."""
        assigned = consumer.assignment()
        if any(each.is_full for each in self._requests):
            consumer.pause(*assigned)
        elif consumer.paused():
            consumer.resume(*consumer.paused())
        found = await consumer.getmany(timeout_ms=WAIT_MS, max_records=MOST_RECORDS)
        partitions = {each.partition for each in consumer.assignment()}
        entries = [Entry.of(record) for records in found.values() for record in records]
        any_answered = False
        for requests in self._requests:
            requests.keep(partitions)
            requests.take(entries)
            any_answered = await requests.send_due() or any_answered
        now_s = self._clock.steady_s()
        if any_answered or now_s >= self._commit_due_s:
            self._commit_due_s = now_s + COMMIT_S
            await self._commit(consumer)

    async def _commit(self, consumer: Any) -> None:
        assigned = {each.partition for each in consumer.assignment()}
        done = done_by_all([each.positions() for each in self._requests])
        news = {partition: at for partition, at in done.items() if partition in assigned and self._committed.get(partition) != at}
        if news:
            await consumer.commit({TopicPartition(STATUS, partition): at for partition, at in news.items()})
            self._committed |= news


def done_by_all(positions: Sequence[Mapping[int, int]]) -> dict[int, int]:
    """By partition: the offset before which nothing waits, of all kinds of requests."""
    partitions = {partition for each in positions for partition in each}
    return {partition: min(each[partition] for each in positions if partition in each) for partition in partitions}
