"""The owner of one partition: takes inputs, decides, appends one record, waits until its own tail has folded it.

Holds: state never changes here; an owner that lost the race for a seq decides again from the new state; at most one append is under way;
a record with inputs ends with a tick, or one follows soon: `TICK_PAUSE` times as long as the last one took to decide, `busy_tick_s` at
most; effects wait when too many of them are not out yet. An idle tick is decided after each record, when a timer runs out and every
`look_s`; it is appended if it decides anything, if something is owed (`Follower.owed`), or if no record came for `Ownership.quiet_s`.
What fails in a reign other than the brokers stops this partition alone: its state is as the journal says, so it is tried again later.
Never: skips an input; decides before its tail has read what its own append followed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import structlog

from trainhouse.events import Event
from trainhouse.events.model.handover import PoolHandedOver
from trainhouse.events.wire.topics import MAX_JOURNAL_RECORD_BYTES
from trainhouse.scheduler.core.errors import BrokenInvariant, LogUnavailableError, RecordTooLarge, StateLost
from trainhouse.scheduler.core.protocol.batch import Pending, Proposer, bounded
from trainhouse.scheduler.core.protocol.gate import Written
from trainhouse.scheduler.core.protocol.machine import ReadsAhead
from trainhouse.scheduler.stream.cancellation import ended, still_wanted
from trainhouse.scheduler.stream.interfaces import Appended, Clock, Log
from trainhouse.scheduler.stream.journal.follower import Follower
from trainhouse.scheduler.stream.journal.input_feed import InputFeed
from trainhouse.scheduler.stream.journal.publishing import Publishing
from trainhouse.scheduler.stream.journal.settings import HostSettings
from trainhouse.scheduler.stream.journal.snapshot_recovery import Offload
from trainhouse.scheduler.stream.metrics import JournalMeters

S = TypeVar("S")
# Cycles that cost little may follow each other closely; those of a long queue leave most of the time to inputs.
TICK_PAUSE = 3
LEAST_PAUSE_S = 0.002
# By whether this machine's clock and the brokers' differ from journal time.
CLOCKS = {
    (False, False): "the clocks agree with journal time again",
    (True, False): "this machine's clock is off; journal time does not follow it: set the clock",
    (False, True): "the brokers' clock is off; journal time does not follow it: set the brokers' clocks",
    (True, True): "this machine's clock and the brokers' are both off; journal time follows them slowly: check all clocks",
}
log_ = structlog.get_logger(__name__)


class Owner(Generic[S]):
    """One partition of one journal in this process, whether it decides now or stands by."""

    def __init__(
        self,
        settings: HostSettings,
        log: Log,
        follower: Follower[S],
        feed: InputFeed,
        proposer: Proposer[S],
        clock: Clock,
        offload: Offload,
        after_record: Callable[[Follower[S]], Awaitable[None]] | None = None,
        meters: JournalMeters | None = None,
    ) -> None:
        self._log = log
        self._journal = settings.journal
        self._follower = follower
        self._feed = feed
        self._proposer = proposer
        self._clock = clock
        self._offload = offload
        self._pace = settings.pace
        self._transactional = settings.transactional
        self._after_record = after_record
        self._meters = meters or JournalMeters("journal")
        self._limits = proposer.limits
        self._waiting: list[Pending] = []
        self._ticked_at_s = float("-inf")
        self._looked: tuple[int, float] = (-1, float("-inf"))  # at which seq, and when
        self._owes_tick = False
        self._marked_move = -1  # offset of the newest move before which its pool's progress was proposed
        self._busy_pause_s = self._pace.busy_tick_s
        self._publishing: Publishing[S] | None = None
        self.rounds = 0
        self.trouble = ""

    async def run(self) -> None:
        """Runs until cancelled. `rounds` grows as long as it does not hang; `trouble` says why the last reign ended, if it failed."""
        while True:
            still_wanted()
            self.rounds += 1
            if not self._decides():
                self.trouble = ""
                await self._follower.until(self._decides, self._pace.role_check_s)
                continue
            try:
                await self._reign()
            except LogUnavailableError as error:
                log_.warning("brokers away", journal=self._journal, partition=self._follower.partition, error=str(error))
                await asyncio.sleep(self._pace.retry_s)
            except StateLost as error:
                self._follower.halt(f"{type(error).__name__}: {error}", error)
            except Exception as error:
                await self._stopped(error)

    async def _stopped(self, error: Exception) -> None:
        """Another process has its turn; where none takes it, this one tries again."""
        self.trouble = f"{type(error).__name__}: {error}"
        log_.error("partition stopped", journal=self._journal, partition=self._follower.partition, reason=self.trouble, exc_info=error)
        self._follower.ownership.on_given_up(self._clock.steady_s())
        await asyncio.sleep(self._pace.stopped_retry_s)

    def _decides(self) -> bool:
        return not self._follower.halted and self._follower.ownership.decides(self._clock.steady_s())

    async def _reign(self) -> None:
        self._waiting.clear()
        if not await self._claimed():
            return
        log_.info("deciding", journal=self._journal, partition=self._follower.partition, seq=self._follower.folded.seq)
        self._publishing = Publishing(self._log, self._journal, self._follower, self._clock, transactional=self._transactional)
        task = asyncio.create_task(self._publishing.run())
        try:
            while self._decides():
                still_wanted()
                self.rounds += 1
                if task.done():
                    # Whatever ended it: without a publisher this is no reign, also if the group has given the partition back meanwhile.
                    task.result()
                    break
                await self._step()
        finally:
            self._publishing = None
            await ended(task)
            await self._feed.close()
            log_.info("standing by", journal=self._journal, partition=self._follower.partition, seq=self._follower.folded.seq)

    async def _claimed(self) -> bool:
        while self._decides():
            still_wanted()
            self.rounds += 1
            claim = self._proposer.claim(self._follower.folded, 0)
            await self._append(claim)
            if self._follower.own_seq >= claim.record.seq:
                self._resume_time()
                return True
        return False

    def _resume_time(self) -> None:
        f = self._follower
        f.time.resume(f.folded.now_ms, f.timed_ms, f.appended_ms, self._clock.now_ms(), self._clock.steady_s())

    async def _step(self) -> None:
        folded = self._follower.folded
        self._waiting = [p for p in self._waiting if p.offset > folded.cursor]
        blocked = len(self._follower.unpublished) > self._pace.max_unpublished
        if not self._waiting and not blocked:
            self._waiting = await self._feed.take(folded.cursor, self._until_tick_s())
        elif blocked:
            await self._follower.until(lambda: len(self._follower.unpublished) <= self._pace.max_unpublished, self._until_tick_s())
        if not blocked:
            await self._read_ahead()
        folded = self._follower.folded
        if self._follower.halted:
            return  # its state may be half folded
        finished = self._follower.to_raise
        if finished is not None:
            published = self._publishing.advance() if self._publishing else 0
            await self._append(self._proposer.raised(folded, finished, published))
            return
        waiting = [] if blocked else [p for p in self._waiting if p.offset > folded.cursor]
        now_s = self._clock.steady_s()
        tick = now_s - self._ticked_at_s >= (self._busy_pause_s if waiting or self._owes_tick else self._pace.idle_tick_s)
        owes_tick = self._owes_tick and not self._proposer.stuck(folded)
        now_ms = self._follower.time.now_ms(self._clock.steady_s())
        marks = self._marks(waiting, now_ms, tick)
        owed = self._follower.owed(now_s) or self._owed_live()
        must = bool(waiting or marks) or owes_tick or owed or self._follower.ownership.quiet(now_s)
        if tick and not must and not self._looks(folded.seq, now_s):
            await self._idled(now_s)
            return
        began_s = self._clock.steady_s()
        proposed = self._proposed(now_ms, waiting, marks, tick=tick, must=must)
        if proposed is None:
            if tick:
                self._looked, self._owes_tick = (folded.seq, now_s), False
                await self._idled(now_s)
            return
        self.trouble = ""
        record = proposed.record
        self._meters.proposed(record, self._clock.steady_s() - began_s)
        if tick:
            self._ticked_at_s = now_s
            self._busy_pause_s = min(self._pace.busy_tick_s, max(LEAST_PAUSE_S, TICK_PAUSE * (self._clock.steady_s() - now_s)))
        # What came in is acted on at a tick alone: a proposal that had to leave its tick out must not wait for an idle one.
        self._owes_tick = bool(record.inputs) and not record.ticked
        with self._meters.append.time():
            await self._append(proposed)
        if self._after_record is not None:
            await self._after_record(self._follower)

    async def _read_ahead(self) -> None:
        """Has the next record's large inputs read in another thread; of what was folded meanwhile, they are read again where they are
        decided on."""
        machine, folded = self._proposer.machine, self._follower.folded
        if not isinstance(machine, ReadsAhead):
            return
        batch = bounded([p for p in self._waiting if p.offset > folded.cursor], self._limits)
        read = machine.read_ahead(folded.state, [p.item.envelope.event for p in batch if p.item.envelope is not None])
        if read is None:
            return
        try:
            keep = await self._offload(read)
        except Exception:
            return  # `decide` fails on it as well, and knows what is to be done
        if self._follower.folded.seq == folded.seq:
            keep()

    def _proposed(self, now_ms: int, waiting: list[Pending], marks: Sequence[Event], *, tick: bool, must: bool) -> Written | None:
        """The next record; where it decides about a job of which there is newer progress than it knows, decided anew with that.

        A move's record holds no marks: one with those of its pool comes before it, and no second one, however much is reported meanwhile.
        """
        folded, live = self._follower.folded, self._follower.live_statuses
        published = self._publishing.advance() if self._publishing else 0

        def propose(marks: Sequence[Event]) -> Written | None:
            return self._proposer.propose(folded, now_ms, waiting, published, tick=tick, limits=self._limits, must=must, marks=marks)

        proposed = propose(marks)
        behind = () if proposed is None or live is None else live.behind(folded.state, proposed.record.decisions)
        if proposed is None or not behind:
            return proposed
        if not any(isinstance(d, PoolHandedOver) for d in proposed.record.decisions):
            return propose([*marks, *behind])
        if self._marked_move == proposed.record.cursor:
            return proposed
        self._marked_move = proposed.record.cursor
        return self._proposer.propose(folded, now_ms, [], published, tick=False, must=False, marks=behind) or proposed

    def _marks(self, waiting: list[Pending], now_ms: int, tick: bool) -> Sequence[Event]:
        """Returns the marks of live progress that are due in the journal."""
        state, live = self._follower.folded.state, self._follower.live_statuses
        if live is None:
            return ()
        live.offer_inputs(state, [p.item.envelope.event for p in waiting if p.item.envelope is not None], now_ms)
        marks = live.marks(state, now_ms) if tick else ()
        if live.due:
            self._follower.wake()
        return marks

    def _owed_live(self) -> bool:
        """Whether a record is owed to what goes beside the journal: others see by it that an owner decides here."""
        live = self._follower.live_statuses
        return (live is not None and live.unrecorded) or (self._publishing is not None and self._publishing.owed())

    def _looks(self, seq: int, now_s: float) -> bool:
        """Whether a tick could find anything: something was folded since the last look, or time enough went by."""
        looked_seq, looked_at_s = self._looked
        return seq != looked_seq or now_s - looked_at_s >= self._pace.look_s

    async def _idled(self, now_s: float) -> None:
        """A tick that left no record."""
        self._ticked_at_s = now_s
        if self._after_record is not None:
            await self._after_record(self._follower)

    def _until_tick_s(self) -> float:
        # A little beyond, so that rounding never makes it wake too early and spin.
        pause_s = self._busy_pause_s if self._owes_tick else self._pace.idle_tick_s
        return max(0.001, self._ticked_at_s + pause_s - self._clock.steady_s() + 0.001)

    async def _append(self, proposed: Written) -> None:
        """Returns when the record's seq is folded, by any process, or when the brokers failed; both are safe to decide after."""
        record, sent_at_s = proposed.record, self._clock.steady_s()
        self._follower.expect(proposed)
        sending = asyncio.ensure_future(self._log.append(self._journal, self._follower.partition, proposed.value))
        sending.add_done_callback(lambda _: self._follower.wake())
        try:
            await self._follower.until(
                lambda: self._follower.folded.seq >= record.seq or bool(self._follower.halted) or _failed(sending),
                self._pace.fold_timeout_s,
            )
            if not sending.done() and self._follower.folded.seq >= record.seq:
                await asyncio.wait([sending], timeout=self._pace.fold_timeout_s)
            if sending.done():
                self._learn(sending.result(), sent_at_s)
        except RecordTooLarge as error:
            if self._limits.batch_count == 1:
                raise BrokenInvariant(
                    f"{self._journal} refuses a record with one input: {error}; set its max.message.bytes to {MAX_JOURNAL_RECORD_BYTES}"
                ) from error
            self._limits = self._limits.halved()
            log_.warning("record too large, batch halved", journal=self._journal, error=str(error), limits=self._limits)
            return
        finally:
            if not sending.done():
                sending.cancel()
        self._limits = self._proposer.limits

    def _learn(self, appended: Appended, sent_at_s: float) -> None:
        time, partition = self._follower.time, self._follower.partition
        if not time.anchored:
            return  # the claim itself
        changed = time.observe(sent_at_s, self._clock.steady_s(), appended.timestamp_ms, self._clock.now_ms())
        for clock, off_ms in (("own", time.clock_off_ms), ("brokers", time.broker_off_ms)):
            self._meters.clock_off.labels(partition, clock).set(off_ms / 1000)
        if changed:
            off = {"clock_off_ms": time.clock_off_ms, "brokers_off_ms": time.broker_off_ms}
            log_.error(CLOCKS[time.off], journal=self._journal, partition=partition, **off)


def _failed(sending: "asyncio.Future[Appended]") -> bool:
    return sending.done() and (sending.cancelled() or sending.exception() is not None)
