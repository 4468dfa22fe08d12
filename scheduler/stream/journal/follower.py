"""The tail of one partition's journal, folded: every process has one for every partition, all the time.

Holds: state changes here and nowhere else; effects of folded records wait in `unpublished` until the journal says they are out. A record
that cannot be folded halts this partition alone, before anything of what follows it is read.
Never: appends.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog

from trainhouse.events.model.upgrade import UpgradeFinished
from trainhouse.events.wire.journal import JournalRecord
from trainhouse.events.wire.repairs import NO_REPAIRS, Repairs
from trainhouse.events.wire.topics import STATUS
from trainhouse.scheduler.core.protocol.gate import Written
from trainhouse.scheduler.core.protocol.journal import Folded, fold_bytes
from trainhouse.scheduler.core.protocol.log_clock import TOLERANCE_MS, LogTime
from trainhouse.scheduler.core.protocol.machine import Machine
from trainhouse.scheduler.core.protocol.ownership import Ownership
from trainhouse.scheduler.core.protocol.publication import Outgoing, outgoing
from trainhouse.scheduler.stream.interfaces import Clock, Entry, LiveStatuses

S = TypeVar("S")
log_ = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Unpublished:
    """The effects of one folded record, and its bytes (a snapshot must carry them until they are out)."""

    seq: int
    effects: list[Outgoing]
    record: bytes

    @property
    def urgent(self) -> bool:
        """Whether something in it is acted on, and not only looked at."""
        return any(e.topic != STATUS for e in self.effects)


class Follower(Generic[S]):
    """One partition of one journal. `position` is the offset of the next entry to read."""

    def __init__(
        self,
        machine: Machine[S],
        input_topic: str,
        folded: Folded[S],
        position: int,
        ownership: Ownership,
        clock: Clock,
        emptied: Repairs = NO_REPAIRS,
    ) -> None:
        self.machine = machine
        self.input_topic = input_topic
        self.folded = folded
        self.position = position
        self.ownership = ownership
        self.unpublished: deque[Unpublished] = deque()
        self.last_offset = -1
        self.own_seq = 0
        self.halted = ""
        self.finished: UpgradeFinished | None = None
        self.emptied = emptied
        self.time = LogTime()
        # Append times: of the last record that counted, and of the last one with a newer journal time.
        self.appended_ms = -1
        self.timed_ms = 0
        self.live = False
        self.live_statuses: LiveStatuses[S] | None = None
        self._owes_tick = False
        self._clock = clock
        self._changed: asyncio.Future[None] | None = None
        self._own: Written | None = None

    @property
    def partition(self) -> int:
        return self.folded.partition

    def take(self, entry: Entry) -> JournalRecord | None:
        """Folds one entry of the log; its record if it counted. One that cannot be folded sets `halted`; what follows is passed over."""
        if self.halted:
            self.position = entry.offset + 1
            return None
        try:
            return self._take(entry)
        except Exception as error:  # a fold may raise anything: what it leaves is not used again
            self.halt(f"offset {entry.offset}: {type(error).__name__}: {error}", error)
            self.position = entry.offset + 1
            return None

    def halt(self, reason: str, error: BaseException | None = None) -> None:
        """Ends this partition's work until it is recovered anew; all others go on."""
        self.halted = reason
        log_.error("partition halted", partition=self.partition, seq=self.folded.seq, reason=reason, exc_info=error)
        self.wake()

    def replaced_by(self, fresh: "Follower[S]") -> None:
        """Goes on from a state that was recovered anew."""
        self.folded, self.position, self.unpublished = fresh.folded, fresh.position, fresh.unpublished
        self.last_offset, self.emptied, self._own, self._owes_tick = fresh.last_offset, fresh.emptied, None, fresh._owes_tick
        # While it was halted it read no owner's record: whether it may decide shows from now on.
        self.ownership.standing_in, self.ownership.owed_since_s = False, None
        self.time, self.appended_ms, self.timed_ms = fresh.time, fresh.appended_ms, fresh.timed_ms
        self.halted = fresh.halted
        if self.live_statuses is not None:
            self.live_statuses.foreign_record()
        self.wake()

    def _take(self, entry: Entry) -> JournalRecord | None:
        before_ms = self.folded.now_ms
        own, self._own = (self._own, None) if self._own is not None and self._own.value == entry.value else (None, self._own)
        read = own.record if own is not None else None
        self.folded, record = fold_bytes(self.machine, self.folded, entry.value, read, self.emptied)
        self.position = entry.offset + 1
        if record is not None and entry.value is not None:
            self.last_offset = entry.offset
            self.hold(record, entry.value, own.published if own is not None else None)
            if record.owner == self.ownership.owner:
                self.own_seq = record.seq
            self._note_time(record, entry.timestamp_ms, before_ms)
            self._note_live(record)
            # Also a claim does: time stands still in it, so it says nothing of its own age.
            self._owes_tick = not record.ticked
            self.ownership.on_record(record.owner, self._clock.steady_s())
        self.wake()
        return record

    def _note_live(self, record: JournalRecord) -> None:
        if self.live_statuses is None:
            return
        if record.owner == self.ownership.owner:
            self.live_statuses.own_record(record.now_ms, record.decisions)
        else:
            self.live_statuses.foreign_record()

    def _note_time(self, record: JournalRecord, appended_ms: int, before_ms: int) -> None:
        self.appended_ms = appended_ms
        if record.now_ms <= before_ms:
            return  # a claim: time stands still in it
        self.timed_ms = max(appended_ms, 0)
        if record.owner != self.ownership.owner:
            # One that came while this process was paused says nothing of now.
            fresh = appended_ms < 0 or abs(self._clock.now_ms() - appended_ms) < TOLERANCE_MS
            self.time.follow(record.now_ms, self._clock.steady_s(), live=self.live and fresh)

    def owed(self, now_s: float) -> bool:
        """Whether a record is due though no input waits: effects are not out, no tick came after the last inputs, a timer has run out, or
        an update was finished.

        Time is the journal's own, carried on by the steady clock: a wrong clock makes no process stand in. Where ticks fail although
        placement is frozen, no tick is owed: another process could do no better, unless its version is newer.
        """
        if self.unpublished or self.to_raise is not None:
            return True
        if self.folded.frozen_version >= self.machine.decide_version:
            return False
        if self._owes_tick:
            return True
        wake_ms = self.machine.wakes_ms(self.folded.state, self.folded.now_ms)
        return wake_ms is not None and wake_ms <= self.folded.now_ms + 1000 * (now_s - self.ownership.last_record_at_s)

    @property
    def to_raise(self) -> UpgradeFinished | None:
        """The finished update to whose level this partition has not gone yet."""
        return self.finished if self.finished is not None and self.finished.level > self.folded.level else None

    def expect(self, own: Written) -> None:
        """This process appends these bytes now: it has read them already."""
        self._own = own

    def hold(self, record: JournalRecord, value: bytes, effects: list[Outgoing] | None = None) -> None:
        """Keeps a folded record's effects until they are out, and lets go of those that are."""
        if effects is None:
            effects = outgoing(self.machine, self.input_topic, self.partition, record)
        if effects and record.seq > self.folded.published_up_to:
            self.unpublished.append(Unpublished(record.seq, effects, value))
        while self.unpublished and self.unpublished[0].seq <= self.folded.published_up_to:
            self.unpublished.popleft()

    def wake(self) -> None:
        """Wakes all waiters."""
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)
        self._changed = None

    async def until(self, condition: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Waits until `condition` holds; False when it does not after `timeout_s`."""
        end_s = None if timeout_s is None else self._clock.steady_s() + timeout_s
        while not condition():
            left_s = None if end_s is None else end_s - self._clock.steady_s()
            if left_s is not None and left_s <= 0:
                return False
            if self._changed is None:
                self._changed = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._changed], timeout=left_s)
        return True
