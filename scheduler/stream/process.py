"""Runs a stream processor until it is told to stop, or crashes it on purpose.

Holds: a broken invariant ends the process at once with a clear line, so that a supervisor starts it anew from what the log says.
Never: goes on after one.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable
from typing import Any, NoReturn

import structlog

EXIT_BROKEN = 70
STOP_TIMEOUT_S = 5.0
log_ = structlog.get_logger(__name__)


def crash(error: BaseException) -> NoReturn:
    """Ends the process now: no handler, no commit, no flush of anything but the log."""
    log_.critical("crashing on purpose", error=f"{type(error).__name__}: {error}", exc_info=error)
    os._exit(EXIT_BROKEN)


async def unending(service: Awaitable[None]) -> None:
    """Runs what must run as long as the process: crashes it when that fails or ends by itself; may be cancelled."""
    try:
        await service
    except Exception as error:
        crash(error)
    crash(RuntimeError("a service ended by itself"))


async def serve(app: Any) -> None:
    """Runs the Faust app until SIGTERM or SIGINT; ends the process. An app that fails crashes it."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    running = asyncio.ensure_future(_faust(app))
    waiting = asyncio.ensure_future(stop.wait())
    await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        crash(running.exception() or RuntimeError("the stream processor ended by itself"))
    log_.info("stopping")
    try:
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await app.stop()
    except TimeoutError:
        log_.warning("did not stop in time; leaving", timeout_s=STOP_TIMEOUT_S)
    os._exit(0)


async def _faust(app: Any) -> None:
    await app.start()
    await app.wait_until_stopped()
    if app.crashed:
        raise app.crash_reason or RuntimeError("the stream processor crashed")
    await asyncio.Event().wait()
