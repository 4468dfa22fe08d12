"""Reads what concerns this node from Kafka, in a thread of its own: the pool's partition, commands, verdicts, operations.

Holds: it reads from the end as of its start; what came before is in the answer to the registration that follows. Committed records only.
Never: decides anything, or ends because the brokers are away.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import structlog
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from trainhouse.events import (
    CheckpointRequested,
    DumpStacks,
    Event,
    ExecuteCommand,
    GangAllocated,
    GangReleased,
    InvalidEvent,
    NodeDesiredState,
    NodeKeyed,
    NodeLost,
    NodeOrders,
    NodeProbeAsked,
    PoolCreated,
    decode,
)
from trainhouse.events.errors import BusUnavailable
from trainhouse.events.kafka import consumer, headers_of, watermarks
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.signing import signature_of
from trainhouse.events.steady import wall_ms
from trainhouse.events.topics import ALLOCATIONS, NODE_KEYS, OPERATIONS, POOLS, VERDICTS
from trainhouse.workers.agent.accesses import NOBODY, Asker
from trainhouse.workers.agent.core import Command
from trainhouse.workers.agent.core.own_key import OwnKey
from trainhouse.workers.agent.permission import Permission

SAY_AGAIN_S = 10.0
METADATA_TIMEOUT_S = 5.0
BATCH = 200
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Located:
    """The pool's partition is known, and commands are being read from now on."""

    partition: int


@dataclass(frozen=True, slots=True)
class OperationAsked:
    """A person asks something of this node. `refusal`: why it may not, where it may not."""

    request: DumpStacks | ExecuteCommand
    refusal: str = ""
    asker: Asker = NOBODY


@dataclass(frozen=True, slots=True)
class Deaf:
    """The reader cannot go on: the agent must not go on without it."""

    reason: str


Heard = Located | Command | OperationAsked | Deaf
C = TypeVar("C", bound=Event)


def in_own_time(event: C, sent_ms: int | None, now_ms: int) -> C:
    """A request with its deadline by the agent's own clock: the scheduler's, by which it was `sent_ms`, may show another time."""
    if not isinstance(event, CheckpointRequested) or sent_ms is None:
        return event
    return event.model_copy(update={"deadline_ms": now_ms + event.deadline_ms - sent_ms})


class Follower:
    """One reader. `tell` is called from its thread."""

    def __init__(
        self,
        settings: KafkaSettings,
        node_id: str,
        pool: str,
        tell: Callable[[Heard], None],
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
        self._tell = tell
        self._stop = threading.Event()
        self._said_s = 0.0
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, timeout_s: float = 5.0) -> None:
        self._stop.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        reader = consumer(self._settings, log_level=2)
        try:
            partition = self._locate(reader)
            if partition is not None and self._assign(reader, partition):
                self._tell(Located(partition))
                self._follow(reader)
        except Exception as error:
            log.exception("the reader of commands failed")
            self._tell(Deaf(f"{type(error).__name__}: {error}"))
        finally:
            reader.close()

    def _locate(self, reader: Consumer) -> int | None:
        """Reads trainhouse.pools until the pool turns up. None when told to stop."""
        reader.assign([TopicPartition(POOLS, 0, 0)])
        while not self._stop.is_set():
            for message in reader.consume(BATCH, timeout=0.2):
                event = self._event(message)
                if isinstance(event, PoolCreated) and event.pool == self._pool:
                    return event.partition
            self._say(
                f"waiting for the pool {self._pool!r}: it is not on {POOLS} yet; create it, or set TRAINHOUSE_AGENT_POOL to one that exists"
            )
        return None

    def _assign(self, reader: Consumer, partition: int) -> bool:
        """From the ends as of now. Tries until the brokers answer; False when told to stop."""
        while not self._stop.is_set():
            try:
                at = [TopicPartition(ALLOCATIONS, partition)]
                for topic in (VERDICTS, OPERATIONS, NODE_KEYS):
                    # Brokers of before have no topic of keys, or do not let agents read it: then there is no partition of it.
                    metadata = reader.list_topics(topic, timeout=METADATA_TIMEOUT_S).topics[topic]
                    at += [TopicPartition(topic, number) for number in metadata.partitions]
                for tp in at:
                    tp.offset = watermarks(reader, tp.topic, tp.partition, METADATA_TIMEOUT_S)[1]
                reader.assign(at)
                return True
            except (KafkaException, BusUnavailable) as error:
                self._say(f"waiting for the brokers at {self._settings.bootstrap}: {error}")
                self._stop.wait(0.5)
        return False

    def _follow(self, reader: Consumer) -> None:
        while not self._stop.is_set():
            first = reader.poll(0.5)  # returns with the first record at once; `consume` would wait for a whole batch
            if first is not None:
                for message in (first, *reader.consume(BATCH, timeout=0.0)):
                    self._hear(message)

    def _hear(self, message: Message) -> None:
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
            self._tell(Command(in_own_time(event, envelope.time_ms, self._clock_ms()), envelope.order))
        elif (isinstance(event, NodeLost) and event.node_id == self._node_id) or (
            isinstance(event, NodeKeyed) and self._own_key.told(event)
        ):
            self._tell(Command(event))
        elif isinstance(event, DumpStacks | ExecuteCommand) and event.node_id == self._node_id:
            signature = signature_of(headers)
            judged = self._permission.judged(envelope, message.value() or b"", signature, time.time_ns() // 1_000_000)
            if refusal := judged.refusal:
                log.warning("an operation is refused", type=envelope.type, job_id=event.job_id, id=str(envelope.id), reason=refusal)
            self._tell(OperationAsked(event, refusal, Asker(judged.who, judged.why, event.host)))

    def _event(self, message: Message) -> object:
        error = message.error()
        if error is not None:
            self._say(f"waiting for the brokers at {self._settings.bootstrap}: {error.str()}")
            return None
        try:
            return decode(message.value(), headers_of(message)).event
        except InvalidEvent:
            return None

    def _say(self, text: str) -> None:
        """Not more often than every SAY_AGAIN_S."""
        if time.monotonic() - self._said_s >= SAY_AGAIN_S:
            self._said_s = time.monotonic()
            log.warning(text)
