"""Readers of commands whose pool moves, on a real broker: all that the partition before said comes before anything of the new one."""

import time
import uuid
from collections.abc import Iterator

import pytest

from trainhouse.events import Event, NodeDesiredState, Order, PoolCreated, envelope_of
from trainhouse.events.bus.admin import create_topics
from trainhouse.events.bus.kafka import EventProducer
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import ALLOCATIONS, POOLS
from trainhouse.workers.agent.components import Inbox
from trainhouse.workers.agent.core import Command
from trainhouse.workers.agent.follower import Follower, FollowerMessage, Located, Moved
from trainhouse.workers.fleet.broker_io import Commands

pytestmark = pytest.mark.stack
OLD, NEW, MANY = 1, 2, 700


class Scheduler:
    """Says what schedulers of a pool of its own say; each answer to a registration has the next number as its incarnation."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.pool = f"pool-{uuid.uuid4().hex[:8]}"
        self._producer = EventProducer(settings)
        self._said = 0

    def located(self, partition: int) -> None:
        self._say(POOLS, PoolCreated.model_validate({"pool": self.pool, "partition": partition}), 0)

    def commands(self, partition: int, count: int) -> None:
        for _ in range(count):
            fields = {"node_id": "n", "boot_id": "b", "incarnation": str(self._said), "pool": self.pool}
            self._say(ALLOCATIONS, NodeDesiredState.model_validate(fields), partition, flush=False)
        self._producer.flush()

    def _say(self, topic: str, event: Event, partition: int, flush: bool = True) -> None:
        self._said += 1
        envelope = envelope_of(event, id=f"{self.pool}-{self._said}", source="test", now_ms=1, order=Order(partition, self._said, 0))
        self._producer.send(topic, envelope, key=self.pool, partition=partition)
        if flush:
            self._producer.flush()


@pytest.fixture
def settings(kafka: str) -> KafkaSettings:
    made = KafkaSettings(bootstrap=kafka)
    create_topics(made)
    return made


def of(pool: str, heard: FollowerMessage) -> Iterator[str]:
    """What was heard of a pool, in short: a partition that it is on, or the number of a command."""
    match heard:
        case Located(partition=partition):
            yield f"located {partition}"
        case Moved(partition=partition):
            yield f"moved {partition}"
        case Command(event=NodeDesiredState() as event) if event.pool == pool:
            yield event.incarnation


def test_an_agents_reader_begins_at_the_newest_partition_and_takes_all_of_it_before_it_goes_on(settings: KafkaSettings) -> None:
    scheduler, inbox = Scheduler(settings), Inbox()
    scheduler.located(0)
    scheduler.located(OLD)
    follower = Follower(settings, "n", scheduler.pool, inbox.put)
    follower.start()
    found: list[str] = []

    def until(last: str) -> None:
        while last not in found:
            found.extend(of(scheduler.pool, inbox.get(timeout=60)))  # type: ignore[arg-type]

    try:
        until(f"located {OLD}")
        assert found == [f"located {OLD}"]
        scheduler.commands(OLD, MANY)
        scheduler.located(NEW)
        until(f"moved {NEW}")
        scheduler.commands(NEW, 3)
        scheduler.located(OLD)
        until(f"moved {OLD}")
        scheduler.commands(OLD, 1)
        first, second = 2, 2 + MANY + 1
        until(str(second + 3 + 1))
        expected = [str(n) for n in range(first, first + MANY)]
        expected += [f"moved {NEW}", *(str(n) for n in range(second, second + 3)), f"moved {OLD}", str(second + 4)]
        assert found[1:] == expected
    finally:
        follower.close()


def test_a_fleets_reader_does_so_too(settings: KafkaSettings) -> None:
    scheduler = Scheduler(settings)
    scheduler.located(0)
    scheduler.located(OLD)
    commands = Commands(settings, scheduler.pool)
    assert commands.partition == OLD
    scheduler.commands(OLD, MANY)
    scheduler.located(NEW)
    found: list[str] = []
    deadline_s = time.monotonic() + 60
    try:
        said = False
        while len(found) < MANY + 3 and time.monotonic() < deadline_s:
            for event, _ in commands.take(0.2):
                if isinstance(event, PoolCreated):
                    found.append(f"moved {event.partition}")
                elif isinstance(event, NodeDesiredState) and event.pool == scheduler.pool:
                    found.append(event.incarnation)
            if not said and f"moved {NEW}" in found:
                said = True
                scheduler.commands(NEW, 2)
        second = 2 + MANY + 1
        assert found == [*(str(n) for n in range(2, 2 + MANY)), f"moved {NEW}", str(second), str(second + 1)]
        assert commands.partition == NEW
    finally:
        commands.close()
