"""Readiness checks of a stack's parts: each asks a question that only a working part can answer.

Always: a check never raises for a part that is away, and blocks for two seconds at most.  Never: "its process exists".
"""

from __future__ import annotations

import http.client
import ssl
import time
import urllib.request
from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import Consumer, ConsumerGroupState, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from trainhouse.events import EventError, NodeDesiredState, PoolCreated, decode
from trainhouse.events.bus.kafka import TO_END, consumer, next_records, partitions_of, read_to_end, watermarks
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import ALLOCATIONS, POOLS

TIMEOUT_S = 2.0
LEADERS_TIMEOUT_S = 60.0
# Of a request that is not waited for so long. librdkafka may abort the process when one of these times out (confluentinc/librdkafka#4605).
DESCRIBE_TIMEOUT_S = 60.0
POLL_S = 0.1
# A part that is away is an answer here, not news: librdkafka need not print it.
QUIET: dict[str, Any] = {"log_level": 0}

Check = Callable[[], bool]
T = TypeVar("T")


def clickhouse(url: str) -> Check:
    """ClickHouse's HTTP interface is there and its tables are ready; that needs no password."""
    return lambda: (_body(f"{url}/ping") or b"").strip() == b"Ok."


def answers(url: str, trusting: ssl.SSLContext | None = None) -> Check:
    """An HTTP server says 200 there."""
    return lambda: _body(url, trusting) is not None


def _body(url: str, trusting: ssl.SSLContext | None = None) -> bytes | None:
    """Body of a 200 response; None for any other status or a failed connection."""
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S, context=trusting) as reply:  # nosec B310  # an address of this stack
            return bytes(reply.read()) if reply.status == 200 else None
    except (OSError, http.client.HTTPException):
        return None


def group(settings: KafkaSettings, name: str) -> Check:
    """From now on, a new member joined the consumer group, and it is stable: a stream processor has its partitions.

    A member of before may be listed for its whole session after its process was killed: it proves nothing.
    """
    admin = AdminClient(settings.client_config(**QUIET))
    before = _members(admin, name)[1]

    def check() -> bool:
        stable, members = _members(admin, name)
        return stable and bool(members - before)

    return check


def _members(admin: AdminClient, name: str) -> tuple[bool, set[str]]:
    """Whether a group is stable, and the ids of its members; none while the broker is away."""
    try:
        found = admin.describe_consumer_groups([name], request_timeout=DESCRIBE_TIMEOUT_S)[name].result(TIMEOUT_S)
    except (KafkaException, TimeoutError):
        return False, set()
    return found.state == ConsumerGroupState.STABLE, {member.member_id for member in found.members}


def both(first: Check, second: Check) -> Check:
    """Both hold."""
    return lambda: first() and second()


def pools(settings: KafkaSettings) -> set[str]:
    """The pools that the control plane knows; raises BusUnavailableError."""
    reader = consumer(settings, **QUIET, **TO_END)
    try:
        return {str(event.pool) for message in read_to_end(reader, POOLS, [0]) if isinstance(event := _event(message.value()), PoolCreated)}
    finally:
        reader.close()


def node_answered(settings: KafkaSettings) -> Check:
    """From now on, a node's registration was answered with its desired state: agent, scheduler and their topics work."""
    reader = consumer(settings, **QUIET)
    ends = patiently(lambda: _ends(reader, ALLOCATIONS))
    reader.assign(ends)

    def check() -> bool:
        try:
            messages = next_records(reader, 1000, 0.1)
        except KafkaException:
            return False
        return any(isinstance(_event(message.value()), NodeDesiredState) for message in messages if not message.error())

    return check


def pool_known(settings: KafkaSettings, pool: str) -> Check:
    """Intake has passed the pool on."""

    def check() -> bool:
        try:
            return pool in pools(settings)
        except (BusUnavailableError, KafkaException):
            return False

    return check


def patiently(call: Callable[[], T]) -> T:
    """The call's result; again while the brokers refuse, bounded: a broker that just started leads its partitions a moment
    after it says so."""
    deadline = time.monotonic() + LEADERS_TIMEOUT_S
    while True:
        try:
            return call()
        except (BusUnavailableError, KafkaException):
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)


def _ends(reader: Consumer, topic: str) -> list[TopicPartition]:
    numbers = partitions_of(reader, topic, TIMEOUT_S)
    return [TopicPartition(topic, number, watermarks(reader, topic, number, TIMEOUT_S)[1]) for number in numbers]


def _event(value: bytes | None) -> object:
    try:
        return decode(value or b"").event
    except EventError:
        return None
