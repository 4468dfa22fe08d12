"""Member of a consumer group that reads topics beside Faust's agents, and commits by itself.

Holds: it begins anew after an error of the brokers, from what is committed; a cancellation ends it, even where the client swallowed it.
Never: commits (what takes the records does); ends because the brokers are away.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError

from trainhouse.events.settings import KafkaSettings
from trainhouse.scheduler.stream.cancellation import still_wanted
from trainhouse.scheduler.stream.kafka.auth import aiokafka_config

WAIT_MS: Final = 1_000
RETRY_S: Final = 1.0
MAX_FETCH_BYTES: Final = 1024 * 1024
log_ = structlog.get_logger(__name__)


@dataclass(frozen=True)
class GroupReading:
    """Topics that a group reads. `what`: they, in logs. `subscription`: options of `subscribe`; `consumer`: more ones of the client."""

    group: str
    what: str
    subscription: Mapping[str, Any]
    session_s: float
    consumer: Mapping[str, Any] = field(default_factory=dict)

    def member(self, kafka: KafkaSettings) -> AIOKafkaConsumer:
        """A member that has not joined yet."""
        session_ms = round(self.session_s * 1000)
        return AIOKafkaConsumer(
            **aiokafka_config(kafka),
            group_id=self.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=session_ms // 3,
            max_partition_fetch_bytes=MAX_FETCH_BYTES,
            **self.consumer,
        )


async def read_as_member(
    kafka: KafkaSettings, reading: GroupReading, take: Callable[[Any], Awaitable[None]], begin: Callable[[], None] = lambda: None
) -> None:
    """Calls `take` with the member again and again, until cancelled. `begin`: is called before each member joins."""
    while True:
        still_wanted()
        try:
            await _session(reading.member(kafka), reading, take, begin)
        except KafkaError as error:
            log_.warning(f"reading {reading.what} failed; beginning again", error=repr(error))
        await asyncio.sleep(RETRY_S)


async def _session(
    member: AIOKafkaConsumer, reading: GroupReading, take: Callable[[Any], Awaitable[None]], begin: Callable[[], None]
) -> None:
    member.subscribe(**reading.subscription)
    begin()
    try:
        await member.start()
        while True:
            still_wanted()
            await take(member)
    finally:
        await member.stop()
