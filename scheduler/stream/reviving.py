"""Recovery of halted partitions beside those that work: now and then, and at once after a repair of their journal.

Holds: a partition goes on only from a state that was folded anew, from its snapshot or archive to the journal's end.
Never: touches a follower that works.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar

import structlog

from trainhouse.scheduler.core.errors import BrokenInvariant, LogUnavailable
from trainhouse.scheduler.stream.cancelling import still_wanted
from trainhouse.scheduler.stream.follower import Follower
from trainhouse.scheduler.stream.ports import Clock, Log

S = TypeVar("S")
Recover = Callable[[int, frozenset[str]], Awaitable[Follower[S]]]
Repairs = Callable[[], Awaitable[frozenset[str]]]
# How often repairs are looked for while a partition is halted; how soon, and at last how seldom, it is read again without one.
REPAIRS_EVERY_S = 5.0
AGAIN_AFTER_S, AGAIN_AT_MOST_S = 30.0, 600.0
TAIL_WAIT_S = 0.5
log_ = structlog.get_logger(__name__)


class Reviving(Generic[S]):
    """The halted partitions of one journal in one process. `revived`: those that may go on, for who folds them to take."""

    def __init__(self, log: Log, clock: Clock, journal: str, recover: Recover[S], repairs: Repairs) -> None:
        self._log = log
        self._clock = clock
        self._journal = journal
        self._recover = recover
        self._repairs = repairs
        self.revived: dict[int, Follower[S]] = {}

    async def run(self, followers: Mapping[int, Follower[S]], emptied: frozenset[str]) -> None:
        """Looks until it is cancelled. `emptied`: the repairs that the followers know."""
        due_s, pause_s = 0.0, AGAIN_AFTER_S
        while True:
            still_wanted()
            await asyncio.sleep(REPAIRS_EVERY_S)
            halted = [p for p, follower in followers.items() if follower.halted and p not in self.revived]
            if not halted:
                due_s, pause_s = 0.0, AGAIN_AFTER_S
                continue
            now_s = self._clock.steady_s()
            due_s = due_s or now_s + pause_s
            try:
                repairs = await self._repairs()
                if repairs == emptied and now_s < due_s:
                    continue
                for partition in halted:
                    await self._again(followers[partition], repairs)
                emptied = repairs
            except LogUnavailable as error:
                log_.warning("brokers away", journal=self._journal, error=str(error))
            pause_s = min(2 * pause_s, AGAIN_AT_MOST_S)
            due_s = self._clock.steady_s() + pause_s

    async def _again(self, follower: Follower[S], emptied: frozenset[str]) -> None:
        partition = follower.partition
        fresh = await self._recover(partition, emptied)
        _, end = await self._log.bounds(self._journal, partition)
        tail = await self._log.open_tail(self._journal, {partition: fresh.position})
        try:
            while fresh.position < end and not fresh.halted:
                for entry in await tail.take(TAIL_WAIT_S):
                    fresh.take(entry)
        except BrokenInvariant as error:
            fresh.halt(str(error), error)
        finally:
            await tail.close()
        if fresh.halted:
            follower.halted = fresh.halted
        else:
            self.revived[partition] = fresh
