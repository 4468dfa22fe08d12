"""Reads every project's topic for intake: those that there are, and each new one within seconds of its making.

Holds: all members of intake's group share the partitions; an offset is committed only after what came of its record is with the brokers, so
a record that was read twice is the directory's repeat. A project that sends much delays other projects at most, never the public topic.
Never: ends because the brokers are away; goes on after a record could not be passed on (the process crashes and reads it again).
"""

from typing import Any, Final

from aiokafka import TopicPartition

from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.project_topics import JOBS_PATTERN
from trainhouse.scheduler.stream.interfaces import Entry
from trainhouse.scheduler.stream.kafka.group_member import WAIT_MS, GroupReading, read_as_member
from trainhouse.scheduler.stream.screening.screening_agent import ScreeningAgent

GROUP: Final = "trainhouse-intake-projects"
NEW_TOPICS_MS: Final = 3_000


class ProjectIntake:
    """One member of the group."""

    def __init__(self, kafka: KafkaSettings, screening: ScreeningAgent, batch_count: int, session_s: float) -> None:
        self._kafka = kafka
        self._screening = screening
        self._batch_count = batch_count
        more = {"metadata_max_age_ms": NEW_TOPICS_MS}
        self._reading = GroupReading(GROUP, "projects' topics", {"pattern": JOBS_PATTERN}, session_s, more)

    async def run(self) -> None:
        """Reads until cancelled."""
        await read_as_member(self._kafka, self._reading, self._take)

    async def _take(self, consumer: Any) -> None:
        found = await consumer.getmany(timeout_ms=WAIT_MS, max_records=self._batch_count)
        for tp, records in found.items():
            entries = list(map(Entry.of, records))
            await self._screening.take_from(tp.topic, entries)
            await consumer.commit({TopicPartition(tp.topic, tp.partition): entries[-1].offset + 1})
