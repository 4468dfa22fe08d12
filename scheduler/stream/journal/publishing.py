"""Sends the effects of folded records, in order, while this process owns the partition.

Holds: opening a publisher fences the one before it; only then is the journal read to its end, and only from there is published;
with transactions, how far was published is committed with the effects themselves, so none is published twice after a crash;
a publisher stops at its first failed send and is never used again; one that is refused for longer than `takeover_s` gives its partition
up. `done` moves after acks only. What is acted on goes out at once, statuses alone within `LINGER_S`.
Never: sends an effect of a record that did not count, or every one of a flood of refused signatures.
"""

import asyncio
from collections.abc import Sequence
from typing import Generic, TypeVar

import structlog

from trainhouse.events.wire.topics import CONTROL
from trainhouse.scheduler.core.errors import FencedError, LogUnavailableError
from trainhouse.scheduler.core.protocol.publication import Outgoing
from trainhouse.scheduler.core.protocol.refusal_limits import PublishedRefusals
from trainhouse.scheduler.stream.cancellation import still_wanted
from trainhouse.scheduler.stream.interfaces import Clock, Log, Publisher
from trainhouse.scheduler.stream.journal.follower import Follower
from trainhouse.scheduler.stream.journal.project_statuses import ProjectStatuses

S = TypeVar("S")
BATCH_RECORDS = 200
BATCH_BYTES = 4 * 1024 * 1024
RETRY_S = 0.3
# A transaction costs the brokers the same whatever it holds, and the next one waits for it. Statuses alone are published a little later.
LINGER_S = 0.05
LINGER_RECORDS = 50
LIVE_STATUSES = 200
log_ = structlog.get_logger(__name__)


class Publishing(Generic[S]):
    """The publisher of one partition during one reign. `done`: all effects of records up to this seq are out."""

    def __init__(self, log: Log, journal: str, follower: Follower[S], clock: Clock, *, transactional: bool) -> None:
        self._log = log
        self._journal = journal
        self._follower = follower
        self._clock = clock
        self._transactional_id = f"{journal}-{follower.partition}" if transactional else None
        self._projects = ProjectStatuses(log, clock)
        self._published_refusals = PublishedRefusals()
        self._refused_since_s: float | None = None
        self._unproven = False
        self.done: int | None = None

    async def run(self) -> None:
        """Publishes until it is cancelled or fenced. An own record must have counted before."""
        while True:
            still_wanted()
            seen = self._follower.own_seq
            try:
                await self._session()
            except FencedError:
                log_.warning("publisher fenced", journal=self._journal, partition=self._follower.partition)
                self._follower.ownership.on_fenced(self._clock.steady_s())
                self._follower.wake()
                return
            except LogUnavailableError as error:
                if self._follower.live_statuses is not None:
                    self._follower.live_statuses.resend()
                log_.warning("publisher failed", journal=self._journal, partition=self._follower.partition, error=str(error))
                if self._refused_for_long():
                    log_.error(
                        "publisher refused for too long; another process may decide",
                        journal=self._journal,
                        partition=self._follower.partition,
                    )
                    self._follower.ownership.on_given_up(self._clock.steady_s())
                    self._follower.wake()
                    return
            await asyncio.sleep(RETRY_S)
            still_wanted()
            # A new publisher fences others, so ownership is proven again first.
            self._unproven = True
            await self._follower.until(lambda seen=seen: self._follower.own_seq > seen)  # type: ignore[misc]
            self._unproven = False

    def _refused_for_long(self) -> bool:
        now_s = self._clock.steady_s()
        if self._refused_since_s is None:
            self._refused_since_s = now_s
        return now_s - self._refused_since_s > self._follower.ownership.takeover_s

    def owed(self) -> bool:
        """Whether live statuses wait for a record that proves ownership, before a publisher is opened anew. Effects wait for none: theirs
        is owed anyway."""
        live = self._follower.live_statuses
        return self._unproven and live is not None and live.due

    def advance(self) -> int:
        """Returns the seq up to which all effects are published, records without effects included."""
        folded = self._follower.folded
        if self.done is None:
            return folded.published_up_to
        done = self.done
        waiting = next((u.seq for u in self._follower.unpublished if u.seq > done), None)
        return max(folded.seq if waiting is None else waiting - 1, folded.published_up_to)

    async def _session(self) -> None:
        publisher = await self._log.open_publisher(self._transactional_id, self._journal)
        self._projects.forget()
        self._published_refusals.forget()
        try:
            _, end = await self._log.bounds(self._journal, self._follower.partition)
            await self._follower.until(lambda: self._follower.position >= end)
            self.done = max(self._follower.folded.published_up_to, await publisher.mark())
            while True:
                still_wanted()
                if not self._waits():
                    self._refused_since_s = None
                await self._follower.until(self._waits)
                await self._follower.until(self._urgent, LINGER_S)
                await self._publish_batch(publisher)
        finally:
            await publisher.close()

    def _waits(self) -> bool:
        return self._unsent() or (self._follower.live_statuses is not None and self._follower.live_statuses.due)

    def _unsent(self) -> bool:
        return bool(self._follower.unpublished) and self._follower.unpublished[-1].seq > (self.done or 0)

    def _urgent(self) -> bool:
        """Whether something waits that is acted on, or so much that it is better out."""
        records = 0
        for item in self._follower.unpublished:
            records += item.seq > (self.done or 0)
            if records >= LINGER_RECORDS or (records and item.urgent):
                return True
        return False

    async def _publish_batch(self, publisher: Publisher) -> None:
        batch: list[Outgoing] = []
        size = records = 0
        last = done = self.done or 0
        for item in self._follower.unpublished:
            if item.seq <= done:
                continue
            passes_on = self._transactional_id is not None and _passes_on(item.effects)
            if records >= BATCH_RECORDS or size >= BATCH_BYTES or (passes_on and any(out.topic != CONTROL for out in batch)):
                break
            batch.extend(item.effects)
            size += sum(len(e.value) for e in item.effects)
            records += 1
            last = item.seq
        else:
            batch += self._live()
        if batch:
            now_s = self._clock.steady_s()
            wanted = [out for out in batch if not out.alike or self._published_refusals.next(out.alike, now_s)]
            kept = await self._projects.keep(wanted)
            await self._projects.sent(kept, publisher.send(kept, mark=last if records else 0))
            self.done, self._refused_since_s = last, None

    def _live(self) -> list[Outgoing]:
        """Statuses without a record, of a state whose effects are all out, or in the batch that these end."""
        folded, live = self._follower.folded, self._follower.live_statuses
        if live is None or self._follower.halted:
            return []
        now_ms = max(folded.now_ms, self._follower.time.now_ms(self._clock.steady_s()))
        return live.outgoing(folded.state, folded.partition, folded.seq, now_ms, LIVE_STATUSES)


def _passes_on(effects: Sequence[Outgoing]) -> bool:
    """Whether something goes to another partition: it is sent before the rest of its batch, which therefore holds nothing of before."""
    return any(out.topic == CONTROL for out in effects)
