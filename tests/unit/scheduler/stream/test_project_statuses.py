"""A project's status topic that is removed: statuses of all others go on, whatever the brokers make a client wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from tests.support.fakes.journal_fakes import FakeLog, FakePublisher, run_virtually
from tests.support.publishing_story import PublishingStory
from trainhouse.events.wire.project_topics import STATUS_PREFIX, status_topic
from trainhouse.events.wire.topics import STATUS
from trainhouse.scheduler.core.errors import LogUnavailableError
from trainhouse.scheduler.core.protocol.publication import Outgoing
from trainhouse.scheduler.stream.journal.project_statuses import AGAIN_S
from trainhouse.scheduler.stream.journal.publishing import RETRY_S

OWN, OTHER = status_topic("vision"), status_topic("speech")
STALL_S = 10.0
SOON_S = AGAIN_S + RETRY_S + 0.5


class Waiting(FakePublisher):
    """A publisher that asks again and again for a topic that is gone, as Kafka's clients do."""

    async def send(self, batch: Sequence[Outgoing], mark: int = 0) -> None:
        if any(out.topic.startswith(STATUS_PREFIX) and out.topic not in self.log.broker.made for out in batch):
            await asyncio.sleep(STALL_S)
            raise LogUnavailableError("no such topic")
        await super().send(batch, mark)


@dataclass
class WaitingLog(FakeLog):
    """A log with such publishers."""

    async def open_publisher(self, transactional_id: str | None, marks: str = "") -> FakePublisher:
        made = await super().open_publisher(transactional_id, marks)
        return Waiting(made.log, made.transactional_id, made.epoch)


class Story(PublishingStory):
    """One publisher of statuses, of which the owner goes on to own the partition."""

    def __init__(self) -> None:
        super().__init__(WaitingLog)
        self.broker.made |= {OWN, OTHER}

    async def own(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            self.follower.own_seq += 1
            self.follower.wake()


def told(tale: Callable[[Story], Awaitable[None]]) -> None:
    async def run() -> None:
        story = Story()
        tasks = [asyncio.create_task(work) for work in (story.publishing.run(), story.own())]
        await asyncio.sleep(0.1)
        story.record(STATUS, OWN)
        await asyncio.sleep(AGAIN_S / 2)
        assert story.out(OWN) == [1]
        await tale(story)
        for task in tasks:
            task.cancel()

    run_virtually(run())


def test_a_topic_that_was_removed_just_now_holds_up_nobody_for_long() -> None:
    async def tale(story: Story) -> None:
        story.broker.made.discard(OWN)
        story.record(STATUS, OWN)
        story.record(STATUS, OTHER)
        await asyncio.sleep(SOON_S)
        assert story.out(STATUS) == [1, 2, 3] and story.out(OTHER) == [3] and story.out(OWN) == [1]
        for _ in range(5):
            story.record(STATUS, OWN, OTHER)
            await asyncio.sleep(0.2)
        assert len(story.out(STATUS)) == 8, "nor again"

    told(tale)


def test_a_topic_that_was_removed_a_while_ago_holds_up_nobody_at_all() -> None:
    async def tale(story: Story) -> None:
        story.broker.made.discard(OWN)
        await asyncio.sleep(AGAIN_S)
        story.record(STATUS, OWN)
        story.record(STATUS, OTHER)
        await asyncio.sleep(0.2)
        assert story.out(STATUS) == [1, 2, 3] and story.out(OTHER) == [3]
        story.broker.made.add(OWN)
        await asyncio.sleep(AGAIN_S)
        story.record(STATUS, OWN)
        await asyncio.sleep(0.2)
        assert story.out(OWN) == [1, 4], "and it is there again when it is"

    told(tale)


def test_brokers_that_are_only_slow_are_waited_for() -> None:
    async def tale(story: Story) -> None:
        async def slow(step: str) -> None:
            await asyncio.sleep(4 * AGAIN_S if step == "publish" else 0)

        story.publishing._log.hook = slow  # type: ignore[attr-defined]
        story.record(STATUS, OWN)
        await asyncio.sleep(5 * AGAIN_S)
        assert story.out(OWN) == [1, 2] and len(story.broker.epochs) == 1 and max(story.broker.epochs.values()) == 1

    told(tale)
