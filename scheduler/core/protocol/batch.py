"""From waiting inputs to one journal record: what is already in the state is dropped, the batch is bounded, and poison is found.

Holds: a record's inputs follow the cursor without a gap; an input that makes the machine raise is refused alone, found by bisection,
and what follows from that is an input of the owner's own in the same record;
nothing stands in a record before a hand-over, whose parts go out before the record's other effects (`stream/kafka_publisher.py`);
a record never exceeds the journal's limit; `now_ms` never goes back, nor is it before that of the partition from which a pool comes.
Never: changes state; reads a clock (`clock_ms` comes in).
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from trainhouse.events import (
    DatasetVersionDeprecated,
    DatasetVersionPublished,
    Envelope,
    Event,
    EventId,
    InvalidEvent,
    ShardQuarantined,
    ShardReleased,
    envelope_of,
)
from trainhouse.events.model.dead_letter import MAX_KEPT_BYTES
from trainhouse.events.model.handover import MovePool, PoolPart, RedirectedInput
from trainhouse.events.model.upgrade import LevelRaised, UpgradeFinished
from trainhouse.events.wire.codec import Headers, decode
from trainhouse.events.wire.journal import MAX_REASON_CHARS, ClockTicked, InputRefused, JournaledInput, JournalRecord, PlacementFrozen
from trainhouse.events.wire.redirected import unwrapped
from trainhouse.events.wire.set_aside import first_offset
from trainhouse.events.wire.topics import CONTROL, MAX_INPUT_BYTES, MAX_JOURNAL_RECORD_BYTES
from trainhouse.scheduler.core.errors import BrokenInvariant, SchedulingFailed, StateLost
from trainhouse.scheduler.core.protocol.gate import Written, written
from trainhouse.scheduler.core.protocol.journal import Folded, readable
from trainhouse.scheduler.core.protocol.machine import Machine

S = TypeVar("S")
SOURCE: Final = "trainhouse/owner"
_FromElsewhere = PoolPart | DatasetVersionPublished | DatasetVersionDeprecated | ShardQuarantined | ShardReleased
# What an input that another partition passed on is larger by.
MOST_WRAPPED_BYTES: Final = 4096
# How far the journal time of the partition that a pool comes from may be ahead of this one's clock.
MOST_AHEAD_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one record. `batch_bytes` counts the inputs' bytes; decisions come on top, up to `record_bytes` in all."""

    batch_count: int = 500
    batch_bytes: int = 2 * 1024 * 1024
    input_bytes: int = MAX_INPUT_BYTES
    record_bytes: int = MAX_JOURNAL_RECORD_BYTES - 64 * 1024

    def halved(self) -> "Limits":
        """For the next try after the brokers found a record too large."""
        return Limits(max(1, self.batch_count // 2), max(1, self.batch_bytes // 2), self.input_bytes, self.record_bytes)


@dataclass(frozen=True, slots=True)
class Pending:
    """An input that waits. `refusal` says why it cannot even be read; `forged`: in whose name it came without their signature.

    `event_id`: of one that could be read, came in its own name and is refused all the same, so that its sender is answered.
    `first`: where it stands for a whole batch that was not unpacked, the first offset of that. `value`: its bytes as they came, or their
    beginning where there are more than a journal keeps.
    """

    offset: int
    size_bytes: int
    item: JournaledInput
    refusal: str = ""
    forged: str = ""
    event_id: str = ""
    first: int | None = None
    value: bytes | None = None

    def follows(self, offset: int) -> bool:
        """Whether nothing is missing between that offset and this."""
        return self.offset == offset + 1 or (self.first is not None and self.first <= offset + 1 <= self.offset)


def pending(offset: int, value: bytes | None, headers: Headers, limits: Limits) -> Pending:
    """Reads one entry of the input topic; never raises for what is in it."""
    size = len(value or b"")
    if size > limits.input_bytes + MOST_WRAPPED_BYTES:
        return _too_large(offset, value or b"", limits)
    try:
        envelope = decode(value, headers)
        if size > limits.input_bytes and not isinstance(envelope.event, RedirectedInput):
            return _too_large(offset, value or b"", limits)
        return Pending(offset, size, JournaledInput(offset, envelope), value=value)
    except InvalidEvent as error:
        if size > limits.input_bytes:
            return _too_large(offset, value or b"", limits)
        unread = JournaledInput(offset, None, value or b"")
        return Pending(offset, size, unread, str(error)[:MAX_REASON_CHARS] or "unreadable", first=first_offset(value), value=value)


def _too_large(offset: int, value: bytes, limits: Limits) -> Pending:
    reason = f"the input has {len(value)} bytes; at most {limits.input_bytes} are allowed"
    kept = value[:MAX_KEPT_BYTES]
    return Pending(offset, len(kept), JournaledInput(offset, None, kept), reason, value=kept)


def fresh(folded: Folded[S], waiting: Sequence[Pending]) -> list[Pending]:
    """The inputs beyond the cursor. Raises BrokenInvariant when they do not begin right after it or have a gap."""
    found = [p for p in waiting if p.offset > folded.cursor]
    at = folded.cursor
    for item in found:
        if not item.follows(at):
            raise BrokenInvariant(
                f"after {folded.where}: the next input has offset {item.offset}, but {at + 1} is due; "
                f"inputs are missing in the log, nothing is skipped: restore the topic or its archive"
            )
        at = item.offset
    return found


def bounded(waiting: Sequence[Pending], limits: Limits) -> list[Pending]:
    """The longest prefix within the limits; at least one input, if there is one."""
    batch: list[Pending] = []
    total = 0
    for item in waiting:
        if batch and (len(batch) >= limits.batch_count or total + item.size_bytes > limits.batch_bytes):
            break
        batch.append(item)
        total += item.size_bytes
    return batch


def _to_next_move(batch: list[Pending]) -> list[Pending]:
    """Ends a batch before a request to move a pool that does not come first."""
    return batch[: next((at for at in range(1, len(batch)) if _moves(batch[at])), len(batch))]


def _moves(item: Pending) -> bool:
    """Whether it asks for a move, be it by way of the partition that the pool was on before."""
    event = _event_of(item)
    return isinstance(event, MovePool) or (isinstance(event, RedirectedInput) and event.event.get("type") == MovePool.event_type)


@dataclass(frozen=True, slots=True)
class Proposer(Generic[S]):
    """Makes records of one owner on one machine."""

    machine: Machine[S]
    owner: str
    limits: Limits = Limits()
    input_topic: str = CONTROL
    first_level: int = 0

    def level(self, folded: Folded[S]) -> int:
        """The level that a partition's next record keeps to; an empty partition begins at `first_level`, 0 being the newest."""
        return max(folded.level or self.first_level or self.machine.fold_version, self.machine.lowest_level)

    def raised(self, folded: Folded[S], finished: UpgradeFinished, published_up_to: int) -> Written:
        """The record with which the partition goes to the level of a finished update. Time stands still in it."""
        decision = LevelRaised(level=finished.level, reason=finished.reason, user=finished.user, asked_at_ms=finished.at_ms)
        record = self._record(folded, folded.now_ms, (), (decision,), published_up_to)
        return self._written(folded, replace(record, fold_version=finished.level))

    def _raised_for(self, folded: Folded[S], batch: Sequence[Pending], published_up_to: int) -> Written | None:
        """The record that raises the level for what comes from a partition where it was raised; None: nothing does, or it was here too.

        An update that is finished for one partition is finished for all.
        """
        for event in map(_event_of, batch):
            if not isinstance(event, _FromElsewhere):
                continue
            level = min(self.machine.since.get(event.event_type, 0), self.machine.fold_version)
            if self.level(folded) < level:
                about, at_ms = _from_elsewhere(event)
                reason = f"{about}, where the update to level {level} is finished"
                finished = UpgradeFinished(journal=self.machine.name, level=level, reason=reason, user="trainhouse", at_ms=at_ms)
                return self.raised(folded, finished, published_up_to)
        return None

    def claim(self, folded: Folded[S], published_up_to: int) -> Written:
        """An empty record that says who owns the partition. Time stands still in it, and the machine never sees it."""
        return self._written(folded, self._record(folded, folded.now_ms, (), (), published_up_to))

    def propose(
        self,
        folded: Folded[S],
        clock_ms: int,
        waiting: Sequence[Pending],
        published_up_to: int,
        *,
        tick: bool,
        limits: Limits | None = None,
        must: bool = True,
        marks: Sequence[Event] = (),
    ) -> Written | None:
        """The next record, or None when nothing waits. It may hold a prefix of `waiting` only.

        `marks`: inputs of the owner's own, before all others; where a record fails with them, or begins with a move, it is made without.

        Without `must` there is none either where a tick alone decides nothing that counts (time passes without records), or fails while
        placement is frozen already.

        Raises BrokenInvariant on a gap, StateLost.
        """
        batch = bounded(fresh(folded, waiting), limits or self.limits)
        if not batch and not tick and not marks:
            return None
        if marks and batch and _moves(batch[0]):
            # Marks are due again and again, and where the journal is slow, in each record: so the move goes first, and alone, since what
            # is decided beside it may rest on them. The owner puts those of its pool into a record before it, once.
            batch, marks, tick = batch[:1], (), False
        batch = _to_next_move(batch)
        parts = [e for p in batch if isinstance(e := _event_of(p), PoolPart)]
        if raising := self._raised_for(folded, batch, published_up_to):
            return raising
        # One that is further ahead is no partition's time.
        now_ms = max(folded.now_ms, clock_ms, *(p.at_ms for p in parts if p.at_ms - clock_ms <= MOST_AHEAD_MS))
        while True:
            try:
                record = self._decided(folded, now_ms, batch, published_up_to, tick, marks)
                if not batch and not must and all(isinstance(d, self.machine.passing) for d in record.decisions):
                    return None
                return self._written(folded, record)
            except StateLost:
                raise
            except Exception as raised:
                error: Exception = raised
            if marks:
                marks = ()
                continue
            if isinstance(error, SchedulingFailed) and not self.stuck(folded):
                return self._frozen(folded, now_ms, error, published_up_to)
            if not batch and not must and self.stuck(folded):
                return None
            if not batch:
                return self._frozen(folded, now_ms, error, published_up_to)
            if tick:
                tick = False
            elif len(batch) > 1:
                batch = batch[: len(batch) // 2]
            else:
                return self._refused(folded, now_ms, batch[0], error, published_up_to)

    def _written(self, folded: Folded[S], record: JournalRecord) -> Written:
        return written(self.machine.at(record.fold_version), self.input_topic, folded.partition, record, self.limits.record_bytes)

    def _decided(
        self, folded: Folded[S], now_ms: int, batch: Sequence[Pending], published_up_to: int, tick: bool, marks: Sequence[Event] = ()
    ) -> JournalRecord:
        items = (*_marks(folded, now_ms, marks), *(p.item for p in batch))
        if tick:
            items += (JournaledInput(None, _tick(folded, now_ms)),)
        inputs = readable(items)
        refusals = [InputRefused(offset=p.offset, reason=p.refusal, event_id=p.event_id, forged=p.forged) for p in batch if p.refusal]
        decisions = self.machine.at(self.level(folded)).decide(folded.state, now_ms, inputs) if inputs else []
        return self._record(folded, now_ms, items, (*decisions, *refusals), published_up_to)

    def _refused(self, folded: Folded[S], now_ms: int, poison: Pending, error: Exception, published_up_to: int) -> Written:
        """As the bytes that came: what its envelope would be written as may be the very thing that cannot be read."""
        event = _event_of(poison)
        about = _first_event(event) if isinstance(event, RedirectedInput) else event
        refusal = InputRefused(
            offset=poison.offset,
            reason=poison.refusal or _error_reason("handling it failed", error),
            event_id=str(poison.item.envelope.id) if poison.item.envelope else poison.event_id,
            forged=poison.forged,
            job_id=str(getattr(about, "job_id", None) or ""),
            refused_type=about.event_type if about is not None else "",
        )
        raw = JournaledInput(poison.offset, None, poison.value or b"")
        with contextlib.suppress(Exception):  # where that cannot be handled either, the refusal stands alone
            envelope = None if poison.refusal else poison.item.envelope
            own = self.machine.after_refusal(folded.state, envelope, refusal.reason) if envelope is not None else None
            if own is not None:
                name = f"refused:{folded.partition}:{poison.offset}"
                item = JournaledInput(None, envelope_of(own, id=name, source=SOURCE, now_ms=now_ms))
                decisions = self.machine.at(self.level(folded)).decide(folded.state, now_ms, readable([item]))
                return self._written(folded, self._record(folded, now_ms, (raw, item), (refusal, *decisions), published_up_to))
        return self._written(folded, self._record(folded, now_ms, (raw,), (refusal,), published_up_to))

    def stuck(self, folded: Folded[S]) -> bool:
        """Whether ticks fail although placement is frozen: no tick is owed then. What froze it may have been a newer version."""
        return folded.frozen_version >= self.machine.decide_version

    def _frozen(self, folded: Folded[S], now_ms: int, error: Exception, published_up_to: int) -> Written:
        if self.stuck(folded):
            # It raises although placement is frozen: time stands still for the machine, inputs go on, until other code decides.
            return self.claim(folded, published_up_to)
        freeze = PlacementFrozen(reason=_error_reason("", error), decide_version=self.machine.decide_version)
        return self._written(folded, self._record(folded, now_ms, (), (freeze,), published_up_to))

    def _record(
        self,
        folded: Folded[S],
        now_ms: int,
        items: tuple[JournaledInput, ...],
        decisions: Sequence[Event],
        published_up_to: int,
    ) -> JournalRecord:
        offsets = [i.offset for i in items if i.offset is not None]
        return JournalRecord(
            seq=folded.seq + 1,
            owner=self.owner,
            now_ms=now_ms,
            cursor=max(offsets, default=folded.cursor),
            inputs=items,
            decisions=tuple(decisions),
            published_up_to=max(folded.published_up_to, published_up_to),
            decide_version=self.machine.decide_version,
            fold_version=self.level(folded),
            previous_hash=folded.last_hash,
        )


def _first_event(redirected: RedirectedInput) -> Event | None:
    """The event as it came first, where it can be read."""
    with contextlib.suppress(InvalidEvent):
        return unwrapped(redirected).event
    return None


def _event_of(item: Pending) -> Event | None:
    return item.item.envelope.event if item.item.envelope is not None else None


def _from_elsewhere(event: _FromElsewhere) -> tuple[str, int]:
    """Origin of an event of another partition, as a reason names it, and its time."""
    match event:
        case PoolPart():
            return f"pool {event.pool} comes from partition {event.from_partition}", event.at_ms
        case DatasetVersionPublished():
            return f"{event.version.name} was published by a partition", event.published_at_ms
        case DatasetVersionDeprecated():
            return f"{event.dataset}@sha256:{event.sha256} was deprecated by a partition", event.deprecated_at_ms
        case ShardQuarantined():
            return f"shard {event.shard} of {event.dataset} was quarantined by a partition", event.quarantined_at_ms
        case ShardReleased():
            return f"shard {event.shard} of {event.dataset} was released by a partition", event.released_at_ms


def _error_reason(what: str, error: Exception) -> str:
    """An error as a reason that can be written: no lone surrogate, and not too long."""
    text = f"{what}: {type(error).__name__}: {error}" if what else f"{type(error).__name__}: {error}"
    return text.encode("utf-8", "replace").decode()[:MAX_REASON_CHARS]


def _marks(folded: Folded[S], now_ms: int, marks: Sequence[Event]) -> Iterator[JournaledInput]:
    for place, event in enumerate(marks):
        name = f"mark:{folded.partition}:{folded.seq + 1}:{place}"
        yield JournaledInput(None, envelope_of(event, id=name, source=SOURCE, now_ms=now_ms))


def _tick(folded: Folded[S], now_ms: int) -> Envelope:
    name = f"tick:{folded.partition}:{folded.seq + 1}"
    return Envelope(id=EventId(name), source=SOURCE, event=ClockTicked(), time_ms=now_ms)
