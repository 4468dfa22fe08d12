"""Batches of a stream: at once when nothing is handled, together when something is, in order, bounded, acked after they were handled."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainhouse.scheduler.stream.gathering import Gathering


class Story:
    """A stream that is fed by hand, and a handler that waits until it may go on."""

    def __init__(self, limit: int = 100) -> None:
        self.batches: list[list[int]] = []
        self.acked: list[int] = []
        self.taken = 0
        self.may = asyncio.Event()
        self.may.set()
        self.fails = False
        self._queue: asyncio.Queue[int] = asyncio.Queue()
        self._task = asyncio.create_task(Gathering(self._handle, self._ack, limit).run(self._stream()))

    def feed(self, *numbers: int) -> None:
        for number in numbers:
            self._queue.put_nowait(number)

    async def end(self) -> None:
        self._task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await self._task

    async def failed(self) -> BaseException | None:
        return (await asyncio.gather(self._task, return_exceptions=True))[0]

    async def _stream(self) -> AsyncIterator[int]:
        while True:
            number = await self._queue.get()
            self.taken += 1
            yield number

    async def _handle(self, batch: Sequence[int]) -> None:
        self.batches.append(list(batch))
        if self.fails:
            raise RuntimeError("broken")
        await self.may.wait()

    async def _ack(self, number: int) -> None:
        assert any(number in batch for batch in self.batches)
        self.acked.append(number)


async def settle() -> None:
    for _ in range(200):
        await asyncio.sleep(0)


def told(tale: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(tale(), 20))


def test_a_lone_record_waits_for_nothing_and_the_rest_for_the_batch_before() -> None:
    async def tale() -> None:
        story = Story()
        story.may.clear()
        story.feed(1)
        await settle()
        assert story.batches == [[1]] and story.acked == []
        story.feed(2, 3, 4)
        await settle()
        assert story.batches == [[1]], "one batch at a time"
        story.may.set()
        await settle()
        assert story.batches == [[1], [2, 3, 4]] and story.acked == [1, 2, 3, 4]
        await story.end()

    told(tale)


def test_a_stream_that_is_too_fast_is_held_back() -> None:
    async def tale() -> None:
        story = Story(limit=3)
        story.may.clear()
        story.feed(*range(20))
        await settle()
        assert sum(map(len, story.batches)) <= 3 and story.taken <= 3 + 3 + 1
        story.may.set()
        await settle()
        assert [n for batch in story.batches for n in batch] == list(range(20))
        assert max(map(len, story.batches)) <= 3 and story.acked == list(range(20))
        await story.end()

    told(tale)


def test_what_was_not_handled_to_its_end_is_not_acked() -> None:
    async def tale() -> None:
        story = Story()
        story.may.clear()
        story.feed(1, 2)
        await settle()
        await story.end()
        story.may.set()
        await settle()
        assert story.acked == []

    told(tale)


def test_a_handler_that_raises_ends_the_run_at_the_next_record() -> None:
    async def tale() -> None:
        story = Story()
        story.fails = True
        story.feed(1)
        await settle()
        story.feed(2)
        assert "broken" in str(await story.failed())
        assert story.acked == []

    told(tale)


@given(st.lists(st.sampled_from(["feed", "hold", "go"]), max_size=30), st.integers(1, 4))
def test_every_record_is_handled_once_in_order_however_they_come(steps: list[str], limit: int) -> None:
    async def tale() -> None:
        story = Story(limit)
        fed = 0
        for step in steps:
            if step == "feed":
                story.feed(fed)
                fed += 1
            elif step == "hold":
                story.may.clear()
            else:
                story.may.set()
            await asyncio.sleep(0)
        story.may.set()
        await settle()
        assert [n for batch in story.batches for n in batch] == list(range(fed)) == story.acked
        assert all(0 < len(batch) <= limit for batch in story.batches)
        await story.end()

    told(tale)
