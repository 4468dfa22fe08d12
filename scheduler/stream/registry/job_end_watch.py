"""Sender of the registrations that jobs' specs ask for: reads the statuses of all jobs, and asks the registry once a job has succeeded.

Holds: members of a group share the partitions of the status topic; an offset is committed once the registry has answered all that came
before it for good, by what this process folds of its journal: what it says to ask again is sent again, under the same id, and a status that
was read twice, by whichever process, counts once. The content of the version is in the store before the request is sent. No more is sent
than the registry has room for. While store, brokers or registry are away, statuses wait, MOST_WAITING at most; no other is read then. What
fails for one job keeps up no other.
Never: decides whether a version is registered; delays what the process does otherwise.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from aiokafka import TopicPartition

from trainhouse.events import InvalidEvent, JobStatus, decode
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.topics import MODEL_REQUESTS, STATUS
from trainhouse.scheduler.core.registry.job_registrations import (
    RegisteredCheckpoint,
    asks_for_version,
    checkpoint_of,
    digest_of,
    is_answered,
    is_held,
    registration,
)
from trainhouse.scheduler.core.registry.registry_state import RegistryState
from trainhouse.scheduler.core.registry.room import JobsRoom
from trainhouse.scheduler.stream.interfaces import Clock, Entry, Log
from trainhouse.scheduler.stream.kafka.group_member import WAIT_MS, GroupReading, read_as_member
from trainhouse.scheduler.stream.model_interfaces import ContentRefusedError, ModelStore
from trainhouse.scheduler.stream.registry.job_facts import read_spec

GROUP: Final = "trainhouse-intake-models"
MOST_WAITING: Final = 1_000
MOST_RECORDS: Final = 500
FETCH_WAIT_MS: Final = 5_000
ROUND_S: Final = 10.0
"""For how long requests are sent before statuses are read again: a member that does not read for minutes is put out of the group."""
COMMIT_S: Final = 5.0
"""Statuses come each second, and reading some of them again costs little."""
RETRY_S: Final = 1.0
LONGEST_RETRY_S: Final = 60.0
_WORDS: Final = (b'"registers"', b"SUCCEEDED")
"""Both stand in each status that asks for a version: of all others nothing is decoded."""
log_ = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Waiting:
    """A status whose request was not answered. `digest`: the registry's of it; `due_s`: when it is tried again; `is_out`: it was sent;
    `checkpoint`: what becomes a version, once the job's spec was read."""

    status: JobStatus
    digest: bytes
    checkpoint: RegisteredCheckpoint | None = None
    is_out: bool = False
    due_s: float = 0.0
    delay_s: float = RETRY_S


@dataclass(slots=True)
class JobRegistrations:
    """Requests of jobs that succeeded, from their statuses. `state`: the registry's, as this process has folded it; None until it has.
    `positions` are what a reader may commit."""

    log: Log
    clock: Clock
    store: ModelStore
    state: Callable[[], RegistryState | None]
    _waiting: dict[tuple[int, int], _Waiting] = field(default_factory=dict)
    _next: dict[int, int] = field(default_factory=dict)

    @property
    def is_full(self) -> bool:
        """Whether nothing more is to be taken until some of what waits is answered."""
        return len(self._waiting) >= MOST_WAITING

    def take(self, entries: list[Entry]) -> None:
        """Takes statuses in the order of their partition."""
        for entry in entries:
            self._next[entry.partition] = entry.offset + 1
            status = _status(entry)
            if status is not None and asks_for_version(status):
                self._waiting[entry.partition, entry.offset] = _Waiting(status, digest_of(status))

    def keep(self, partitions: set[int]) -> None:
        """Forgets what is of other partitions: whoever has them now reads it again."""
        self._waiting = {place: each for place, each in self._waiting.items() if place[0] in partitions}
        self._next = {partition: offset for partition, offset in self._next.items() if partition in partitions}

    def positions(self) -> dict[int, int]:
        """By partition: the offset before which nothing waits."""
        first: dict[int, int] = {}
        for partition, offset in self._waiting:
            first[partition] = min(offset, first.get(partition, offset))
        return {partition: first.get(partition, offset) for partition, offset in self._next.items()}

    async def send_due(self) -> bool:
        """Forgets what was answered, and tries each request that is due and has room, once, for ROUND_S at most; returns whether any was
        answered."""
        state = self.state()
        if state is None:
            return False
        answered = [p for p, each in self._waiting.items() if is_answered(state, each.status, each.digest, each.is_out)]
        for place in answered:
            del self._waiting[place]
        began_s, room = self.clock.steady_s(), self._room(state)
        due = [each for each in self._waiting.values() if each.due_s <= began_s]
        for each in sorted(due, key=lambda each: each.is_out):  # what was not sent yet comes first
            if self.clock.steady_s() - began_s > ROUND_S:
                break
            if is_held(state, each.digest) or not room.has(each.status.project, each.status.registers or ""):
                continue
            try:
                await self._send(each)
            except Exception as error:  # of the store or the brokers: whatever it is, no other job waits for it
                about = f"job {each.status.job_id}, a version of model {each.status.project}/{each.status.registers}"
                log_.warning("registration failed, trying again", about=about, error=f"{type(error).__name__}: {error}")
            else:
                each.is_out = True
                room.take(each.status.project)
            each.due_s, each.delay_s = self.clock.steady_s() + each.delay_s, min(2 * each.delay_s, LONGEST_RETRY_S)
        return bool(answered)

    def _room(self, state: RegistryState) -> JobsRoom:
        """The room that what was sent and is not in the state yet leaves."""
        now_s, room = self.clock.steady_s(), JobsRoom(state)
        for each in self._waiting.values():
            if each.is_out and each.due_s > now_s and not is_held(state, each.digest):
                room.take(each.status.project)
        return room

    async def _send(self, waiting: _Waiting) -> None:
        status, content = waiting.status, None
        if waiting.checkpoint is None and status.last_checkpoint is not None:
            waiting.checkpoint = checkpoint_of(status, await read_spec(self.log, str(status.job_id), status.spec_sha256))
        if waiting.checkpoint is not None:
            try:  # each time: it has to be in the store when the request is read
                content = await asyncio.to_thread(self.store.prepare, waiting.checkpoint)
            except ContentRefusedError as refused:  # the registry finds the same, and says so in the model's history
                log_.warning("a job's checkpoint cannot be a version", job_id=str(status.job_id), reason=str(refused))
        request = registration(status, waiting.checkpoint, content)
        await self.log.send(MODEL_REQUESTS, request.event.subject().encode(), encode(request))


class JobEndWatch:
    """One member of the group of readers."""

    def __init__(self, kafka: KafkaSettings, registrations: JobRegistrations, session_s: float) -> None:
        self._kafka = kafka
        self._registrations = registrations
        self._reading = GroupReading(GROUP, "statuses", {"topics": [STATUS]}, session_s, {"fetch_max_wait_ms": FETCH_WAIT_MS})
        self._committed: dict[int, int] = {}
        self._commit_due_s = 0.0

    async def run(self) -> None:
        """Reads until cancelled."""
        await read_as_member(self._kafka, self._reading, self._round, self._begin)

    def _begin(self) -> None:
        self._committed.clear()
        self._registrations.keep(set())

    async def _round(self, consumer: Any) -> None:
        """Reads a batch, sends what is due, and commits what is done."""
        assigned = consumer.assignment()
        if self._registrations.is_full:
            consumer.pause(*assigned)
        elif consumer.paused():
            consumer.resume(*consumer.paused())
        found = await consumer.getmany(timeout_ms=WAIT_MS, max_records=MOST_RECORDS)
        self._registrations.keep({each.partition for each in consumer.assignment()})
        for records in found.values():
            self._registrations.take(list(map(Entry.of, records)))
        now_s = self._registrations.clock.steady_s()
        if await self._registrations.send_due() or now_s >= self._commit_due_s:
            self._commit_due_s = now_s + COMMIT_S
            await self._commit(consumer)

    async def _commit(self, consumer: Any) -> None:
        assigned = {each.partition for each in consumer.assignment()}
        done = self._registrations.positions()
        news = {partition: at for partition, at in done.items() if partition in assigned and self._committed.get(partition) != at}
        if news:
            await consumer.commit({TopicPartition(STATUS, partition): at for partition, at in news.items()})
            self._committed |= news


def _status(entry: Entry) -> JobStatus | None:
    """A status that may ask for a version."""
    if entry.value is None or not all(word in entry.value for word in _WORDS):
        return None
    try:
        event = decode(entry.value, entry.headers).event
    except InvalidEvent:
        return None
    return event if isinstance(event, JobStatus) else None
