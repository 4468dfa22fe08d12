"""Cancellation that cannot get lost: some clients swallow it while they close, and a task would then run for ever.

Holds: a loop that calls `still_wanted` each round ends after a cancellation, even where a client swallowed the exception.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any

ASK_AGAIN_S = 1.0


def still_wanted() -> None:
    """Raises CancelledError when the current task was asked to end."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def apart(work: Awaitable[None]) -> None:
    """Awaits in a task of its own: a cancellation reaches the caller at once and never `work`."""
    await asyncio.shield(asyncio.ensure_future(work))


async def ended(task: asyncio.Task[Any]) -> None:
    """Cancels a task until it has ended: once is not enough for one whose client swallowed the first. Raises what it had raised."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=ASK_AGAIN_S)
    if not task.cancelled():
        task.result()
