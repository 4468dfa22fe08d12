"""Batches of a stream without waiting for them: what comes while one batch is handled is the next one.

Holds: a lone record is handled as soon as it comes; batches follow each other in order, none above the limit; a record is acked only
after the batch that it is in was handled; a stream that comes faster than it is handled is held back.
Never: polls.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterable, Awaitable, Callable, Sequence
from typing import Generic, TypeVar

E = TypeVar("E")


class Gathering(Generic[E]):
    """One stream's."""

    def __init__(self, handle: Callable[[Sequence[E]], Awaitable[None]], ack: Callable[[E], Awaitable[object]], limit: int) -> None:
        self._handle = handle
        self._ack = ack
        self._limit = limit
        self._waiting: list[E] = []
        self._came = asyncio.Event()
        self._room = asyncio.Event()

    async def run(self, stream: AsyncIterable[E]) -> None:
        """Until cancelled, or the stream ends; then nothing more is handled. Raises what `handle` raises, at the next record."""
        handling = asyncio.ensure_future(self._handle_all())
        handling.add_done_callback(lambda _: self._room.set())
        try:
            async for event in stream:
                while len(self._waiting) >= self._limit and not handling.done():
                    self._room.clear()
                    await self._room.wait()
                if handling.done():
                    handling.result()
                self._waiting.append(event)
                self._came.set()
        finally:
            handling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await handling

    async def _handle_all(self) -> None:
        while True:
            await self._came.wait()
            self._came.clear()
            batch, self._waiting = self._waiting, []
            self._room.set()
            await self._handle(batch)
            for event in batch:
                await self._ack(event)
