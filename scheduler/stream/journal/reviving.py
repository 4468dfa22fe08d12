"""Recovery of halted partitions beside those that work: now and then, and at once after a repair of their journal.

Holds: a partition goes on only from a state that was folded anew, from its snapshot or archive to the journal's end. One that works, and
has folded a record that counts as empty since, is halted and recovered too: else its state would not be that of the others.
Never: keeps the loop of the partitions that work for long.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar

import structlog

from trainhouse.events.wire.repairs import Repairs
from trainhouse.scheduler.core.errors import BrokenInvariant, LogUnavailableError
from trainhouse.scheduler.stream.cancellation import still_wanted
from trainhouse.scheduler.stream.interfaces import Clock, Log
from trainhouse.scheduler.stream.journal.follower import Follower

S = TypeVar("S")
Recover = Callable[[int, Repairs], Awaitable[Follower[S]]]
Ask = Callable[[], Awaitable[Repairs]]
# How often repairs are looked for while a partition is halted; how soon, and at last how seldom, it is read again without one.
REPAIRS_EVERY_S, REPAIRS_AT_LEAST_EVERY_S = 5.0, 60.0
AGAIN_AFTER_S, AGAIN_AT_MOST_S = 30.0, 600.0
TAIL_WAIT_S = 0.5
# Records that are folded before others have their turn.
AT_ONCE = 10
log_ = structlog.get_logger(__name__)


class Reviving(Generic[S]):
    """The halted partitions of one journal in one process. `revived`: those that may go on, for who folds them to take."""

    def __init__(self, log: Log, clock: Clock, journal: str, recover: Recover[S], repairs: Ask) -> None:
        self._log = log
        self._clock = clock
        self._journal = journal
        self._recover = recover
        self._repairs = repairs
        self.revived: dict[int, Follower[S]] = {}

    async def run(self, followers: Mapping[int, Follower[S]]) -> None:
        """Looks until it is cancelled."""
        due_s, pause_s, asked_s = 0.0, AGAIN_AFTER_S, self._clock.steady_s()
        while True:
            still_wanted()
            await asyncio.sleep(REPAIRS_EVERY_S)
            now_s = self._clock.steady_s()
            if not any(f.halted for f in followers.values()) and now_s - asked_s < REPAIRS_AT_LEAST_EVERY_S:
                due_s, pause_s = 0.0, AGAIN_AFTER_S
                continue
            try:
                repairs = await self._repairs()
                asked_s = now_s
                self._halt_behind(followers, repairs)
                halted = [f for p, f in followers.items() if f.halted and p not in self.revived]
                due_s = due_s or now_s + pause_s
                new = any(repairs != f.emptied for f in halted)
                if not halted or (not new and now_s < due_s):
                    continue
                for follower in halted:
                    await self._again(follower, repairs)
            except LogUnavailableError as error:
                log_.warning("brokers away", journal=self._journal, error=str(error))
                continue  # they say nothing of the partition
            pause_s = min(2 * pause_s, AGAIN_AT_MOST_S)
            due_s = self._clock.steady_s() + pause_s

    def _halt_behind(self, followers: Mapping[int, Follower[S]], repairs: Repairs) -> None:
        for partition, follower in followers.items():
            if follower.halted or repairs == follower.emptied:
                continue
            if repairs.behind(partition, follower.folded.seq, follower.emptied):
                follower.halt("a record that this process has folded counts as empty since; it is recovered anew")
            else:
                follower.emptied = repairs

    async def _again(self, follower: Follower[S], emptied: Repairs) -> None:
        fresh = await self.at_the_end(follower.partition, emptied)
        if fresh.halted:
            follower.halted, follower.emptied = fresh.halted, emptied
        else:
            self.revived[follower.partition] = fresh

    async def at_the_end(self, partition: int, emptied: Repairs) -> Follower[S]:
        """A partition as its journal says up to its end; halted where it cannot be folded. Raises LogUnavailableError."""
        fresh = await self._recover(partition, emptied)
        _, end = await self._log.bounds(self._journal, partition)
        tail = await self._log.open_tail(self._journal, {partition: fresh.position})
        try:
            while fresh.position < end and not fresh.halted:
                for number, entry in enumerate(await tail.take(TAIL_WAIT_S), 1):
                    fresh.take(entry)
                    if number % AT_ONCE == 0:
                        await asyncio.sleep(0)
        except BrokenInvariant as error:
            fresh.halt(str(error), error)
        finally:
            await tail.close()
        return fresh
