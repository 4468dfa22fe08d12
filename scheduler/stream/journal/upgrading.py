"""Updates as the processes of a journal see them: each announces its versions, and learns which level an operator finished.

Holds: a level reaches a follower only where this program can write it, and from the topic that operators alone may write. Where the
brokers or the topic are away, all else goes on.
Never: writes to the journal (the owner does).
"""

import asyncio
import contextlib
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import structlog

from trainhouse.events import envelope_of
from trainhouse.events.model.upgrade import ANNOUNCED_EVERY_MS, ProgramRunning
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.running_programs import finished_level
from trainhouse.events.wire.topics import UPGRADES, UPGRADES_FINISHED
from trainhouse.scheduler.core.errors import LogUnavailableError
from trainhouse.scheduler.core.protocol.machine import Machine
from trainhouse.scheduler.stream.cancellation import still_wanted
from trainhouse.scheduler.stream.interfaces import Clock, Log
from trainhouse.scheduler.stream.journal.follower import Follower

LOOK_EVERY_S: Final = 5.0
FAREWELL_S: Final = 1.0
SOURCE: Final = "trainhouse/upgrading"
log_ = structlog.get_logger(__name__)


class Upgrading:
    """One journal in one process."""

    def __init__(self, log: Log, clock: Clock, journal: str, process: str, machine: Machine[Any]) -> None:
        self._log = log
        self._clock = clock
        self._journal = journal
        self._process = process
        self._machine = machine
        self._read_to = -1
        self._announced_s = float("-inf")

    async def run(self, followers: Mapping[int, Follower[Any]]) -> None:
        """Looks until it is cancelled, then takes its announcement back."""
        try:
            while True:
                still_wanted()
                try:
                    await self._announce()
                    await self._look(followers)
                except LogUnavailableError as error:
                    log_.warning("updates are not read now", journal=self._journal, error=str(error))
                await asyncio.sleep(LOOK_EVERY_S)
        finally:
            await self._gone()

    async def _announce(self) -> None:
        now_s = self._clock.steady_s()
        if now_s - self._announced_s < ANNOUNCED_EVERY_MS / 1000:
            return
        # Whether or not it can be sent: a topic that takes nothing is not asked each time.
        self._announced_s = now_s
        event = self._running()
        name = f"running:{self._journal}:{self._process}:{event.at_ms}"
        await self._log.send(UPGRADES, event.key, encode(envelope_of(event, id=name, source=SOURCE, now_ms=event.at_ms)))

    def _running(self) -> ProgramRunning:
        return ProgramRunning(
            journal=self._journal,
            process=self._process,
            release=_release(),
            decide_version=self._machine.decide_version,
            fold_version=self._machine.fold_version,
            lowest_level=self._machine.lowest_level,
            at_ms=self._clock.now_ms(),
        )

    async def _look(self, followers: Mapping[int, Follower[Any]]) -> None:
        end = (await self._log.ends(UPGRADES_FINISHED, [0]))[0]
        if end == self._read_to:
            return
        finished = finished_level(await self._log.whole(UPGRADES_FINISHED), self._journal, self._machine.fold_version)
        self._read_to = end
        for follower in followers.values():
            follower.finished = finished
            follower.wake()

    async def _gone(self) -> None:
        with contextlib.suppress(Exception):  # without it, it is forgotten within minutes
            async with asyncio.timeout(FAREWELL_S):
                await self._log.send(UPGRADES, self._running().key, None)


def _release() -> str:
    try:
        return version("trainhouse")
    except PackageNotFoundError:
        return ""
