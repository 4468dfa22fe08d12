"""When effects go out: at once what is acted on, statuses alone a little later and together; and what aiokafka must have for it."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable

from aiokafka.consumer import consumer
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.producer import sender

from tests.journal_fakes import run_virtually
from tests.unit.publishing_story import PublishingStory
from trainhouse.events.topics import ALLOCATIONS, STATUS
from trainhouse.scheduler.stream import kafka_publisher
from trainhouse.scheduler.stream.patience import PATIENCE_S
from trainhouse.scheduler.stream.publishing import LINGER_RECORDS, LINGER_S

Came = dict[str, list[tuple[float, int]]]


def told(tale: Callable[[PublishingStory], Awaitable[None]]) -> None:
    async def run() -> None:
        story = PublishingStory()
        task = asyncio.create_task(story.publishing.run())
        await asyncio.sleep(0.1)
        await tale(story)
        task.cancel()

    run_virtually(run())


def test_what_is_acted_on_goes_out_at_once_and_takes_along_what_was_before_it() -> None:
    async def tale(story: PublishingStory) -> None:
        story.record(STATUS)
        await asyncio.sleep(LINGER_S / 4)
        assert story.out(STATUS) == []
        story.record(STATUS, ALLOCATIONS)
        await asyncio.sleep(LINGER_S / 4)
        assert story.out(STATUS) == [1, 2] and story.out(ALLOCATIONS) == [2] and story.publishing.done == 2

    told(tale)


def test_statuses_alone_go_out_together_a_little_later() -> None:
    async def tale(story: PublishingStory) -> None:
        for _ in range(3):
            story.record(STATUS)
            await asyncio.sleep(LINGER_S / 5)
        assert story.out(STATUS) == [] and story.publishing.done == 0
        await asyncio.sleep(LINGER_S)
        assert story.out(STATUS) == [1, 2, 3] and story.publishing.done == 3

    told(tale)


def test_many_statuses_do_not_wait() -> None:
    async def tale(story: PublishingStory) -> None:
        for _ in range(LINGER_RECORDS):
            story.record(STATUS)
        await asyncio.sleep(LINGER_S * 0.9)
        assert len(story.out(STATUS)) == LINGER_RECORDS

    told(tale)


def test_aiokafka_has_what_is_set_in_it() -> None:
    assert "prefetch_backoff" in inspect.signature(Fetcher.__init__).parameters
    assert consumer.Fetcher.keywords == {"prefetch_backoff": PATIENCE_S}
    assert "BACKOFF_OVERRIDE" in inspect.getsource(sender.AddPartitionsToTxnHandler)
    assert sender.BACKOFF_OVERRIDE == kafka_publisher.CONCURRENT_BACKOFF_S
