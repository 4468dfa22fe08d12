"""Reads the topic of progress for the partitions that this process decides, from its end on, into their live statuses.

It is not an agent of the stream processor's: a group gives partitions to whom it likes, and this follows who decides, stand-ins included.
Holds: what is read is vetted as an input of control is; a report in another's name changes nothing, and becomes a dead letter. What is
missed, and what is older than this process's reign, is replaced by the next report, a second later: nothing is read twice or kept.
Never: commits offsets; writes to the journal; ends because the brokers, or the topic, are away.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

import structlog

from trainhouse.events import DeadLetter, Event, ProgressReported, envelope_of
from trainhouse.events.wire.codec import HEADERS, encode
from trainhouse.events.wire.topics import PROGRESS, VERDICTS
from trainhouse.scheduler.core.errors import BrokenInvariant, LogUnavailableError
from trainhouse.scheduler.core.protocol.batch import Limits, Pending, pending
from trainhouse.scheduler.core.protocol.publication import Outgoing, set_aside, signature_refused
from trainhouse.scheduler.core.protocol.refusal_limits import PublishedRefusals, alike_of, key_of
from trainhouse.scheduler.stream.cancellation import still_wanted
from trainhouse.scheduler.stream.interfaces import Clock, Entry, Log, Publisher, Tail
from trainhouse.scheduler.stream.journal.follower import Follower
from trainhouse.scheduler.stream.metrics import ProgressMeters

S = TypeVar("S")
Vetting = Callable[[S, Sequence[Entry], Sequence[Pending], Sequence[S]], list[Pending]]
TAKE_S = 0.25
WATCH_S = 1.5  # longer than the time between two reports of a job
RETRY_S = 2.0
MOST_REFUSALS = 1_000
SOURCE = "trainhouse/scheduler"
log_ = structlog.get_logger(__name__)


class ProgressFeed(Generic[S]):
    """One reader for all partitions of a process."""

    def __init__(self, log: Log, clock: Clock, meters: ProgressMeters | None = None, vetting: Vetting[S] | None = None) -> None:
        self._log = log
        self._clock = clock
        self._meters = meters or ProgressMeters()
        self._vetting = vetting
        self._limits = Limits()
        self._tail: Tail | None = None
        self._next: dict[int, int] = {}
        self._published_refusals = PublishedRefusals()
        self._refused: deque[Outgoing] = deque(maxlen=MOST_REFUSALS)
        self._publisher: Publisher | None = None
        self._ends: dict[int, int] = {}
        self._growing: frozenset[int] = frozenset()

    def grows(self, partition: int) -> bool:
        """Whether jobs report on a partition that another process decides: its owner then appends a record every second or so."""
        return partition in self._growing

    async def watch(self, followers: Mapping[int, Follower[S]]) -> None:
        """Looks at partitions of others until cancelled. Beside all else: where there is no such topic, an answer takes long."""
        while True:
            still_wanted()
            now_s = self._clock.steady_s()
            others = [p for p, f in followers.items() if not f.halted and not f.ownership.decides(now_s)]
            try:
                ends = await self._log.ends(PROGRESS, others)
            except LogUnavailableError:
                ends = {}
            self._growing = frozenset(p for p, end in ends.items() if end > self._ends.get(p, end))
            self._ends = ends
            await asyncio.sleep(WATCH_S)

    async def run(self, followers: Mapping[int, Follower[S]]) -> None:
        """Reads until cancelled."""
        try:
            while True:
                still_wanted()
                try:
                    await self._step(followers)
                except (LogUnavailableError, BrokenInvariant) as error:  # the second one: what was to be read has expired
                    log_.warning("progress cannot be read now; tried again", error=str(error))
                    await self._close()
                    await asyncio.sleep(RETRY_S)
        finally:
            await self._close()

    async def _step(self, followers: Mapping[int, Follower[S]]) -> None:
        now_s = self._clock.steady_s()
        wanted = {p for p, f in followers.items() if not f.halted and f.ownership.decides(now_s)}
        if wanted != self._next.keys() or any(_unread(followers[p]) for p in wanted):
            await self._read_those(followers, wanted)
        if self._tail is None:
            await asyncio.sleep(TAKE_S)
            return
        by_partition: dict[int, list[Entry]] = {}
        for entry in await self._tail.take(TAKE_S):
            by_partition.setdefault(entry.partition, []).append(entry)
        for partition, entries in by_partition.items():
            self._next[partition] = entries[-1].offset + 1
            self._take(followers, partition, entries)
        await self._publish_refusals()

    async def _read_those(self, followers: Mapping[int, Follower[S]], wanted: set[int]) -> None:
        known = {p: self._next[p] for p in wanted & self._next.keys() if not _unread(followers[p])}
        for partition in wanted - known.keys():
            live = followers[partition].live_statuses
            if live is not None:
                live.read_from_end()
        positions = known | await self._log.ends(PROGRESS, wanted - known.keys())
        tail, self._tail, self._next = self._tail, None, {}
        if tail is not None:
            await tail.close()
        if positions:
            self._tail = await self._log.open_tail(PROGRESS, positions)
        self._next = positions

    def _take(self, followers: Mapping[int, Follower[S]], partition: int, entries: Sequence[Entry]) -> None:
        follower = followers[partition]
        live, state = follower.live_statuses, follower.folded.state
        if live is None or live.unread or follower.halted:
            return
        found = [pending(e.offset, e.value, e.headers, self._limits) for e in entries]
        if self._vetting is not None:
            others = [f.folded.state for p, f in followers.items() if p != partition]
            found = self._vetting(state, entries, found, others)
        reports: list[Event] = []
        for entry, item in zip(entries, found, strict=True):
            event = item.item.envelope.event if item.item.envelope is not None else None
            if isinstance(event, ProgressReported):
                reports.append(event)
            else:
                self._meters.refused.inc()
                self._refuse(partition, entry, item)
        self._meters.reports.inc(len(reports))
        now_ms = max(follower.folded.now_ms, follower.time.now_ms(self._clock.steady_s()))
        waited = live.due
        live.note_read()
        live.offer_inputs(state, reports, now_ms)
        if live.due and not waited:
            follower.wake()

    def _refuse(self, partition: int, entry: Entry, item: Pending) -> None:
        """Sets aside what is in another's name; says so as of control, so that a flood stays small."""
        if not item.forged or not self._published_refusals.next(alike_of(item.forged, item.refusal), self._clock.steady_s()):
            return
        log_.warning("progress is not its node's", claimed=item.forged, partition=partition, offset=entry.offset, reason=item.refusal)
        now_ms = self._clock.now_ms()
        event = signature_refused(item.forged, item.refusal, PROGRESS, partition, entry.offset, now_ms)
        name = f"signature-refused:{PROGRESS}-{partition}-{entry.offset}"
        value = encode(envelope_of(event, id=name, source=SOURCE, now_ms=now_ms))
        self._refused.append(set_aside(DeadLetter(PROGRESS, partition, entry.offset, item.refusal), entry.value))
        self._refused.append(Outgoing(VERDICTS, key_of(item.forged).encode(), value, HEADERS))

    async def _publish_refusals(self) -> None:
        if not self._refused:
            return
        if self._publisher is None:
            self._publisher = await self._log.open_publisher(None)
        batch = list(self._refused)
        await self._publisher.send(batch)
        for _ in batch:
            self._refused.popleft()

    async def _close(self) -> None:
        tail, self._tail, self._next = self._tail, None, {}
        publisher, self._publisher = self._publisher, None
        if tail is not None:
            await tail.close()
        if publisher is not None:
            await publisher.close()


def _unread(follower: Follower[S]) -> bool:
    return follower.live_statuses is not None and follower.live_statuses.unread
