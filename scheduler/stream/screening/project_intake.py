"""Reads every project's topic for intake: those that there are, and each new one within seconds of its making.

Holds: all members of intake's group share the partitions; an offset is committed only after what came of its record is with the brokers, so
a record that was read twice is the directory's repeat. A project that sends much delays other projects at most, never the public topic.
Never: ends because the brokers are away; goes on after a record could not be passed on (the process crashes and reads it again).
"""

import asyncio
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.project_topics import JOBS_PATTERN
from trainhouse.scheduler.stream.cancellation import still_wanted
from trainhouse.scheduler.stream.interfaces import Entry
from trainhouse.scheduler.stream.kafka.auth import aiokafka_config
from trainhouse.scheduler.stream.screening.screening_agent import ScreeningAgent

GROUP = "trainhouse-intake-projects"
NEW_TOPICS_MS = 3_000
WAIT_MS = 1_000
RETRY_S = 1.0
MAX_FETCH_BYTES = 1024 * 1024
log_ = structlog.get_logger(__name__)


class ProjectIntake:
    """One member of the group."""

    def __init__(self, kafka: KafkaSettings, screening: ScreeningAgent, batch_count: int, session_s: float) -> None:
        self._kafka = kafka
        self._screening = screening
        self._batch_count = batch_count
        self._session_ms = round(session_s * 1000)

    async def run(self) -> None:
        """Reads until cancelled."""
        while True:
            still_wanted()
            try:
                await self._session()
            except KafkaError as error:
                log_.warning("reading projects' topics failed; beginning again", error=repr(error))
            await asyncio.sleep(RETRY_S)

    async def _session(self) -> None:
        consumer = self._consumer()
        consumer.subscribe(pattern=JOBS_PATTERN)
        try:
            await consumer.start()
            while True:
                still_wanted()
                await self._take(consumer)
        finally:
            await consumer.stop()

    async def _take(self, consumer: Any) -> None:
        found = await consumer.getmany(timeout_ms=WAIT_MS, max_records=self._batch_count)
        for tp, records in found.items():
            entries = [Entry(r.partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in records]
            await self._screening.take_from(tp.topic, entries)
            await consumer.commit({TopicPartition(tp.topic, tp.partition): entries[-1].offset + 1})

    def _consumer(self) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            **aiokafka_config(self._kafka),
            group_id=GROUP,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            metadata_max_age_ms=NEW_TOPICS_MS,
            session_timeout_ms=self._session_ms,
            heartbeat_interval_ms=self._session_ms // 3,
            max_partition_fetch_bytes=MAX_FETCH_BYTES,
        )
