"""A project's status topic that is deleted while a publisher writes to it, on real Kafka: others' statuses go on within seconds."""

from __future__ import annotations

import asyncio
import time

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from trainhouse.events.bus.kafka import TO_END, consumer, read_to_end
from trainhouse.events.runtime.clock import SystemClock
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.project_topics import status_topic
from trainhouse.scheduler.core.errors import LogUnavailableError
from trainhouse.scheduler.core.protocol.publication import Outgoing
from trainhouse.scheduler.stream.journal.project_statuses import ProjectStatuses
from trainhouse.scheduler.stream.kafka.log import KafkaLog
from trainhouse.scheduler.stream.kafka.publisher import SEND_TIMEOUT_MS

GONE, STAYS, MARKS = status_topic("gone"), status_topic("stays"), "removed-status-marks"


def out(*topics: str) -> list[Outgoing]:
    return [Outgoing(topic, b"k", b"v", (), 0) for topic in topics]


def test_a_status_topic_that_is_deleted_holds_up_others_for_a_moment_only(kafka: str) -> None:
    settings = KafkaSettings(bootstrap=kafka)
    admin = AdminClient(settings.client_config())
    for made in admin.create_topics([NewTopic(name, 1, 1) for name in (GONE, STAYS, MARKS)]).values():
        made.result(30)

    async def tale() -> None:
        log = KafkaLog(settings)
        statuses = ProjectStatuses(log, SystemClock())
        publisher = await log.open_publisher("removed-status", MARKS)
        async with asyncio.timeout(60):
            while await log.existing({GONE, STAYS}) != {GONE, STAYS}:
                # A broker lists a new topic a moment after its making was answered.
                await asyncio.sleep(0.05)
        batch = out(STAYS, GONE)
        assert await statuses.keep(batch) == batch
        await statuses.sent(batch, publisher.send(batch, mark=1))
        admin.delete_topics([GONE])[GONE].result(30)
        began_s = time.monotonic()
        with pytest.raises(LogUnavailableError):
            # The topic was there when it was last asked for.
            await statuses.sent(batch, publisher.send(batch, mark=2))
        await publisher.close()
        again = await log.open_publisher("removed-status", MARKS)
        statuses.forget()
        assert await again.mark() == 1, "nothing of the batch that was given up is out"
        kept = await statuses.keep(batch)
        assert kept == out(STAYS)
        await statuses.sent(kept, again.send(kept, mark=2))
        took_s = time.monotonic() - began_s
        await again.close()
        await log.close()
        print(f"held up for {took_s:.1f} s")
        assert took_s < SEND_TIMEOUT_MS / 1000, f"{took_s:.1f} s"

    asyncio.run(tale())
    reader = consumer(settings, **TO_END)
    assert len(list(read_to_end(reader, STAYS, [0]))) == 2, "once for each mark"
    reader.close()
