"""Reads what concerns this node from Kafka, in a thread of its own: the pool's partition, commands, verdicts, operations.

Holds: it reads from the end as of its start; what came before is in the answer to the registration that follows. Committed records only.
The pool's newest partition counts. Where the pool moves, all commands of the partition before are taken before any of the new one.
Never: decides anything, or ends because the brokers are away.
"""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import structlog
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from trainhouse.events import (
    CheckpointRequested,
    Event,
    GangAllocated,
    GangReleased,
    InvalidEvent,
    NodeDesiredState,
    NodeKeyed,
    NodeLost,
    NodeOrders,
    NodeProbeAsked,
    OperationRequest,
    PoolCreated,
    decode,
)
from trainhouse.events.bus.kafka import TO_END, consumer, headers_of, next_records, read_to_end, watermarks
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.runtime.clock import wall_ms
from trainhouse.events.security.signing import signature_of
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import ALLOCATIONS, NODE_KEYS, OPERATIONS, POOLS, VERDICTS
from trainhouse.workers.agent.accesses import UNKNOWN, Asker
from trainhouse.workers.agent.core import Command
from trainhouse.workers.agent.core.own_key import OwnKey
from trainhouse.workers.agent.debug.permission import Permission

SAY_AGAIN_S = 10.0
METADATA_TIMEOUT_S = 5.0
BATCH = 200
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Located:
    """The pool's partition is known, and commands are being read from now on. `cluster`: the id of these brokers."""

    partition: int
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class Moved:
    """The pool is on another partition. All that its scheduler there said was taken, and the new one's commands are being read."""

    partition: int


@dataclass(frozen=True, slots=True)
class OperationAsked:
    """A person asks something of this node. `refusal`: why it may not, where it may not."""

    request: OperationRequest
    refusal: str = ""
    asker: Asker = UNKNOWN


@dataclass(frozen=True, slots=True)
class Deaf:
    """The reader cannot go on: the agent must not go on without it."""

    reason: str


FollowerMessage = Located | Moved | Command | OperationAsked | Deaf
C = TypeVar("C", bound=Event)


def in_own_time(event: C, sent_ms: int | None, now_ms: int) -> C:
    """A request with its deadline by the agent's own clock: the scheduler's, by which it was `sent_ms`, may show another time."""
    if not isinstance(event, CheckpointRequested) or sent_ms is None:
        return event
    return event.model_copy(update={"deadline_ms": now_ms + event.deadline_ms - sent_ms})


class Follower:
    """One reader. `emit` is called from its thread."""

    def __init__(
        self,
        settings: KafkaSettings,
        node_id: str,
        pool: str,
        emit: Callable[[FollowerMessage], None],
        permission: Permission | None = None,
        public_key: str = "",
        clock_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self._clock_ms = clock_ms
        self._own_key = OwnKey(node_id, pool, public_key)
        self._permission = permission or Permission({}, required=False)
        self._settings = settings
        self._node_id = node_id
        self._pool = pool
        self._emit = emit
        self._stop = threading.Event()
        self._logged_s = 0.0
        self._partition: int | None = None
        self._next: dict[tuple[str, int], int] = {}
        self._cluster = ""
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, timeout_s: float = 5.0) -> None:
        self._stop.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        reader = consumer(self._settings, log_level=2)
        try:
            self._partition = self._locate()
            if self._partition is not None and self._assign(reader, self._partition):
                self._emit(Located(self._partition, self._cluster))
                self._follow(reader)
        except Exception as error:
            log.exception("the reader of commands failed")
            self._emit(Deaf(f"{type(error).__name__}: {error}"))
        finally:
            reader.close()

    def _locate(self) -> int | None:
        """Reads trainhouse.pools to its end, until the pool turns up: the newest of its records counts. None when told to stop."""
        reader, found = consumer(self._settings, log_level=2, **TO_END), None
        try:
            while found is None and not self._stop.is_set():
                for message in self._to_end(reader, POOLS, 0):
                    at = self._pool_at(message)
                    found = at if at is not None else found
                if found is None:
                    self._say(
                        f"waiting for the pool {self._pool!r}: it is not on {POOLS} yet; create it, or set TRAINHOUSE_AGENT_POOL to one "
                        "that exists"
                    )
                    self._stop.wait(0.2)
        finally:
            reader.close()
        return found

    def _to_end(self, reader: Consumer, topic: str, partition: int) -> Iterator[Message]:
        """Reads a partition to its end as of now. Tries until the brokers answer, or it is stopped."""
        while not self._stop.is_set():
            reached: dict[int, int] = {}
            try:
                starts = {partition: self._next.get((topic, partition), 0)}
                for message in read_to_end(reader, topic, [partition], METADATA_TIMEOUT_S, starts, reached=reached):
                    yield message
                    self._next[topic, partition] = int(message.offset() or 0) + 1
                self._next[topic, partition] = max(reached.get(partition, 0), self._next.get((topic, partition), 0))
                return
            except BusUnavailableError as error:
                self._say(f"waiting for the brokers at {self._settings.bootstrap}: {error}")
                self._stop.wait(0.5)

    def _assign(self, reader: Consumer, partition: int) -> bool:
        """From the ends as of now, and of pools from where it was read to. Tries until the brokers answer; False when told to stop."""
        while not self._stop.is_set():
            try:
                ends = {}
                for topic in (VERDICTS, OPERATIONS, NODE_KEYS):
                    # Brokers of before have no topic of keys, or do not let agents read it: then there is no partition of it.
                    metadata = reader.list_topics(topic, timeout=METADATA_TIMEOUT_S)
                    self._cluster = metadata.cluster_id or ""
                    for number in metadata.topics[topic].partitions:
                        ends[topic, number] = self._end(reader, topic, number)
                ends[ALLOCATIONS, partition] = self._end(reader, ALLOCATIONS, partition)
                self._next |= ends
                self._read_on(reader)
                return True
            except (KafkaException, BusUnavailableError) as error:
                self._say(f"waiting for the brokers at {self._settings.bootstrap}: {error}")
                self._stop.wait(0.5)
        return False

    def _end(self, reader: Consumer, topic: str, partition: int) -> int:
        return watermarks(reader, topic, partition, METADATA_TIMEOUT_S)[1]

    def _read_on(self, reader: Consumer) -> None:
        reader.assign([TopicPartition(topic, number, offset) for (topic, number), offset in self._next.items()])

    def _follow(self, reader: Consumer) -> None:
        while not self._stop.is_set():
            moved = None
            for message in next_records(reader, BATCH, 0.5):
                self._on_message(message)
                if message.error() is None:
                    self._next[str(message.topic()), int(message.partition() or 0)] = int(message.offset() or 0) + 1
                    at = self._pool_at(message)
                    moved = at if at is not None else moved
            if moved is not None and moved != self._partition:
                self._move(reader, moved)

    def _move(self, reader: Consumer, partition: int) -> None:
        """Takes the rest of the commands of the partition before: all were there before the pool's record was. Then reads the new one."""
        assert self._partition is not None, "it was located"
        catching = consumer(self._settings, log_level=2, **TO_END)
        try:
            for message in self._to_end(catching, ALLOCATIONS, self._partition):
                self._on_message(message)
        finally:
            catching.close()
        del self._next[ALLOCATIONS, self._partition]
        while not self._stop.is_set():
            try:
                self._next[ALLOCATIONS, partition] = self._end(reader, ALLOCATIONS, partition)
                break
            except BusUnavailableError as error:
                self._say(f"waiting for the brokers at {self._settings.bootstrap}: {error}")
                self._stop.wait(0.5)
        else:
            return
        self._read_on(reader)
        self._partition = partition
        self._emit(Moved(partition))

    def _pool_at(self, message: Message) -> int | None:
        """The pool's partition, where a record tells it."""
        if message.topic() != POOLS:
            return None
        event = self._event(message)
        return event.partition if isinstance(event, PoolCreated) and event.pool == self._pool else None

    def _on_message(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if error.fatal():
                raise KafkaException(error)
            self._say(f"reading {message.topic() or 'commands'}: {error.str()}")
            return
        headers = headers_of(message)
        try:
            envelope = decode(message.value(), headers)
        except InvalidEvent as invalid:
            log.warning(
                "a record cannot be read; passing over it", topic=message.topic(), offset=message.offset(), reason=str(invalid)[:500]
            )
            return
        event = envelope.event
        if isinstance(event, GangAllocated | GangReleased | CheckpointRequested | NodeDesiredState | NodeOrders | NodeProbeAsked):
            self._emit(Command(in_own_time(event, envelope.time_ms, self._clock_ms()), envelope.order))
        elif (isinstance(event, NodeLost) and event.node_id == self._node_id) or (
            isinstance(event, NodeKeyed) and self._own_key.on_node_keyed(event)
        ):
            self._emit(Command(event))
        elif isinstance(event, OperationRequest) and event.node_id == self._node_id:
            signature = signature_of(headers)
            judged = self._permission.judged(envelope, message.value() or b"", signature, time.time_ns() // 1_000_000)
            if refusal := judged.refusal:
                log.warning("an operation is refused", type=envelope.type, job_id=event.job_id, id=str(envelope.id), reason=refusal)
            self._emit(OperationAsked(event, refusal, Asker(judged.requester, judged.why, event.host)))

    def _event(self, message: Message) -> object:
        try:
            return decode(message.value(), headers_of(message)).event
        except InvalidEvent:
            return None

    def _say(self, text: str) -> None:
        """Not more often than every SAY_AGAIN_S."""
        if time.monotonic() - self._logged_s >= SAY_AGAIN_S:
            self._logged_s = time.monotonic()
            log.warning(text)
