"""Runs a stream processor until it is told to stop, or crashes it on purpose.

Holds: a broken invariant ends the process at once with a clear line, so that a supervisor starts it anew from what the log says.
Never: goes on after one.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Sequence
from typing import Any, NoReturn

import structlog

from trainhouse.scheduler.stream.garbage import Settling

EXIT_BROKEN = 70
STOP_TIMEOUT_S = 5.0
log_ = structlog.get_logger(__name__)


def crash(error: BaseException) -> NoReturn:
    """Ends the process now: no handler, no commit, no flush of anything but the log."""
    log_.critical("crashing on purpose", error=f"{type(error).__name__}: {error}", exc_info=error)
    os._exit(EXIT_BROKEN)


async def serve(app: Any, services: Sequence[Awaitable[None]]) -> None:
    """Runs the Faust app beside the services until SIGTERM or SIGINT. Any of them ending by itself crashes the process."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    tasks = [asyncio.ensure_future(s) for s in services]
    tasks.append(asyncio.ensure_future(_faust(app)))
    tasks.append(asyncio.ensure_future(Settling().run()))
    waiting = asyncio.ensure_future(stop.wait())
    done, _ = await asyncio.wait([*tasks, waiting], return_when=asyncio.FIRST_COMPLETED)
    for task in done - {waiting}:
        crash(task.exception() or RuntimeError("a service ended by itself"))
    log_.info("stopping")
    try:
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await app.stop()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    except TimeoutError:
        log_.warning("did not stop in time; leaving", timeout_s=STOP_TIMEOUT_S)
    os._exit(0)


async def _faust(app: Any) -> None:
    await app.start()
    await app.wait_until_stopped()
    if app.crashed:
        raise app.crash_reason or RuntimeError("the stream processor crashed")
    await asyncio.Event().wait()
