"""When effects go out: at once what is acted on, statuses alone a little later and together; and what aiokafka must have for it."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence

from aiokafka.consumer import consumer
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.producer import sender

from tests.support.fakes.journal_fakes import run_virtually
from tests.support.publishing_story import PublishingStory
from trainhouse.events.wire.topics import ALLOCATIONS, CONTROL, STATUS
from trainhouse.scheduler.core.protocol.publication import Outgoing
from trainhouse.scheduler.stream.journal.publishing import LINGER_RECORDS, LINGER_S
from trainhouse.scheduler.stream.kafka import publisher
from trainhouse.scheduler.stream.kafka.fetch_backoff import PATIENCE_S

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


def test_what_goes_to_control_is_in_a_batch_with_nothing_of_before() -> None:
    """It is sent before its batch: a pool's parts would overtake what was said of the pool until then."""

    async def tale(story: PublishingStory) -> None:
        batches: list[list[tuple[str, int]]] = []

        class Recorded:
            async def send(self, batch: Sequence[Outgoing], mark: int = 0) -> None:
                batches.append([(out.topic, int(out.value)) for out in batch])

        story.publishing.done = 0
        story.follower.unpublished.clear()
        for topics in [(CONTROL,), (STATUS,), (CONTROL, STATUS), (STATUS,), (CONTROL,), (CONTROL,)]:
            story.record(*topics)
        for _ in range(4):
            await story.publishing._publish_batch(Recorded())  # type: ignore[arg-type]
        assert batches == [
            [(CONTROL, 1), (STATUS, 2)],
            [(CONTROL, 3), (STATUS, 3), (STATUS, 4)],
            [(CONTROL, 5), (CONTROL, 6)],
        ]

    run_virtually(tale(PublishingStory()))


def test_aiokafka_has_what_is_set_in_it() -> None:
    assert "prefetch_backoff" in inspect.signature(Fetcher.__init__).parameters
    assert consumer.Fetcher.keywords == {"prefetch_backoff": PATIENCE_S}
    assert "BACKOFF_OVERRIDE" in inspect.getsource(sender.AddPartitionsToTxnHandler)
    assert sender.BACKOFF_OVERRIDE == publisher.CONCURRENT_BACKOFF_S
