"""All partitions of one journal in one process: one tail that folds them all, and an owner or stand-by for each.

Holds: the tail has read every partition to its end before any owner may decide. What cannot be folded, or fails in a partition's owner,
halts that partition alone: it is reported, recovered anew now and then, and at once when its journal was repaired. `run` raises when an
owner hangs, since a call of a client that never comes back ends with its process alone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog

from trainhouse.events.wire.partition_counts import topology_of
from trainhouse.events.wire.repairs import Repairs, emptied_by
from trainhouse.events.wire.topics import JOURNAL_REPAIRS, PROGRESS, TOPOLOGY
from trainhouse.scheduler.core.errors import BrokenInvariant, LogUnavailableError
from trainhouse.scheduler.core.protocol.batch import Pending, Proposer
from trainhouse.scheduler.core.protocol.journal import Folded, begin
from trainhouse.scheduler.core.protocol.machine import Machine
from trainhouse.scheduler.core.protocol.ownership import Ownership
from trainhouse.scheduler.stream.cancellation import still_wanted
from trainhouse.scheduler.stream.interfaces import Clock, Entry, LiveStatuses, Log, Tail
from trainhouse.scheduler.stream.journal.decision_log import log_decisions
from trainhouse.scheduler.stream.journal.follower import Follower
from trainhouse.scheduler.stream.journal.halting import HaltReports
from trainhouse.scheduler.stream.journal.input_feed import InputFeed, Vet
from trainhouse.scheduler.stream.journal.owner import Owner
from trainhouse.scheduler.stream.journal.progress_feed import ProgressFeed
from trainhouse.scheduler.stream.journal.reviving import Reviving
from trainhouse.scheduler.stream.journal.settings import HostSettings
from trainhouse.scheduler.stream.journal.snapshots import Snapshots, hold_unpublished
from trainhouse.scheduler.stream.journal.upgrading import Upgrading
from trainhouse.scheduler.stream.metrics import JournalMeters, measure_lag

S = TypeVar("S")
Vetting = Callable[[S, Sequence[Entry], Sequence[Pending], Sequence[S]], list[Pending]]
Observer = Callable[[Follower[S]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Live(Generic[S]):
    """Live progress beside a journal: its feed, and the live statuses of each partition."""

    feed: ProgressFeed[S]
    statuses: Callable[[], LiveStatuses[S]]


TAIL_WAIT_S = 0.5
RETRY_S = 0.5
WATCH_S = 1.0
ADDED_EVERY_S = 5.0
# Much longer than any round takes that comes to an end: appends, reads and answers have limits of 15 s each.
HUNG_TURNS = 120
log_ = structlog.get_logger(__name__)


class JournalHost(Generic[S]):
    """Runs a machine over every partition of a journal. Assignments and batches come in from the stream processor."""

    def __init__(
        self,
        settings: HostSettings,
        log: Log,
        machine: Machine[S],
        snapshots: Snapshots[S],
        clock: Clock,
        observers: Sequence[Observer[S]] = (),
        meters: JournalMeters | None = None,
        vetting: Vetting[S] | None = None,
        live: Live[S] | None = None,
    ) -> None:
        self._vetting = vetting
        self._live = live
        self._settings = settings
        self._log = log
        self._machine = machine
        self._snapshots = snapshots
        self._clock = clock
        self._observers = (snapshots.after_record, *observers)
        self._meters = meters or JournalMeters("journal")
        self._reports = HaltReports(log, clock, settings.journal, machine, self._meters)
        self._reviving = Reviving(log, clock, settings.journal, self._follower, self._repairs)
        self._upgrading = Upgrading(log, clock, settings.journal, settings.owner, machine)
        self._assigned: set[int] = set()
        self._added: dict[int, Follower[S]] = {}
        self._owners: dict[int, Owner[S]] = {}
        self.followers: dict[int, Follower[S]] = {}
        self.feeds: dict[int, InputFeed] = {}
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """Recovers, then follows and decides until cancelled. Raises BrokenInvariant when an owner hangs."""
        self._tail = await self._recovered()
        owners = self._owners = {partition: self._owner(partition) for partition in self.followers}
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._follow(tasks))
                for owner in owners.values():
                    tasks.create_task(owner.run())
                tasks.create_task(self._watch(owners))
                tasks.create_task(self._report(owners))
                tasks.create_task(self._reviving.run(self.followers))
                tasks.create_task(self._watch_owed())
                tasks.create_task(self._upgrading.run(self.followers))
                if self._live is not None:
                    tasks.create_task(self._live.feed.run(self.followers))
                    tasks.create_task(self._live.feed.watch(self.followers))
                if self._settings.grows:
                    tasks.create_task(self._watch_added())
                tasks.create_task(measure_lag(self._log, self._settings.input_topic, self._cursors, self._meters.lag))
        except* Exception as group:
            raise group.exceptions[0] from None
        finally:
            await self._tail.close()

    def offer(self, partition: int, entries: Sequence[Entry]) -> None:
        """A batch of the stream processor: a hint until the journal holds it."""
        if partition in self.feeds:
            self.feeds[partition].offer(entries)

    def on_assigned(self, partitions: set[int]) -> None:
        """The group gave these partitions to this process; all others are not its own."""
        self._assigned = set(partitions)
        for partition, follower in self.followers.items():
            self.feeds[partition].reset()
            if partition in partitions:
                follower.ownership.on_assigned()
            else:
                follower.ownership.on_revoked()
            follower.wake()

    def folded(self, partition: int = 0) -> S | None:
        """The state of a partition as this process has folded it; None before it was recovered, and while it is halted."""
        follower = self.followers.get(partition) if self.ready.is_set() else None
        return None if follower is None or follower.halted else follower.folded.state

    def deciding(self, partition: int = 0) -> S | None:
        """The same, where this process decides; else None."""
        state = self.folded(partition)
        return state if state is not None and self.followers[partition].ownership.decides(self._clock.steady_s()) else None

    async def _recovered(self) -> Tail:
        while True:
            still_wanted()
            try:
                return await self._try_recover()
            except LogUnavailableError as error:
                log_.warning("brokers away", journal=self._settings.journal, error=str(error))
                await asyncio.sleep(RETRY_S)

    async def _try_recover(self) -> Tail:
        ends: dict[int, int] = {}
        partitions = await self._log.partitions(self._settings.journal)
        emptied = await self._repairs()
        for partition in partitions:
            follower = self.followers[partition] = await self._follower(partition, emptied)
            follower.live_statuses = None if self._live is None else self._live.statuses()
            self.feeds[partition] = self._feed(partition)
            _, ends[partition] = await self._log.bounds(self._settings.journal, partition)
        tail = await self._log.open_tail(self._settings.journal, {p: f.position for p, f in self.followers.items()})
        try:
            while any(self.followers[p].position < end for p, end in ends.items()):
                self._fold(await tail.take(TAIL_WAIT_S))
        except BaseException:
            await tail.close()
            raise
        for follower in self.followers.values():
            self._forget_the_past(follower)
            follower.live = True
        self.on_assigned(self._assigned)
        self.ready.set()
        log_.info("recovered", journal=self._settings.journal, seqs={p: f.folded.seq for p, f in self.followers.items()})
        return tail

    def _feed(self, partition: int) -> InputFeed:
        return InputFeed(self._log, self._settings.input_topic, partition, self._settings.limits, self._vet_of(partition))

    def _vet_of(self, partition: int) -> Vet | None:
        vetting = self._vetting
        if vetting is None:
            return None

        def vet(entries: Sequence[Entry], found: Sequence[Pending]) -> list[Pending]:
            others = [follower.folded.state for other, follower in self.followers.items() if other != partition]
            return vetting(self.followers[partition].folded.state, entries, found, others)

        return vet

    async def _repairs(self) -> Repairs:
        return emptied_by(await self._log.whole(JOURNAL_REPAIRS), self._settings.journal)

    async def _follower(self, partition: int, emptied: Repairs) -> Follower[S]:
        """A partition as far as snapshot or archive have it; halted where neither they nor the topic have its records."""
        _, end = await self._log.bounds(self._settings.journal, partition)
        try:
            recovered = await self._snapshots.recover(partition, emptied)
            follower = self._at(recovered.folded, recovered.position, emptied)
            follower.timed_ms = recovered.timed_ms
            hold_unpublished(follower, recovered)
        except LogUnavailableError:
            raise
        except Exception as error:  # of the store, of the archive, of what is in them
            follower = self._at(begin(self._machine, partition), end, emptied)
            follower.halt(f"it cannot be recovered: {type(error).__name__}: {error}", error)
        return follower

    def _at(self, folded: Folded[S], position: int, emptied: Repairs) -> Follower[S]:
        ownership = Ownership(self._settings.owner, self._settings.takeover_s, self._clock.steady_s())
        return Follower(self._machine, self._settings.input_topic, folded, position, ownership, self._clock, emptied)

    def _forget_the_past(self, follower: Follower[S]) -> None:
        """Records read during recovery are old: silence counts from the newest one's own time, so a restart need not wait anew."""
        age_s, role = (self._clock.now_ms() - follower.folded.now_ms) / 1000, follower.ownership
        role.last_record_at_s = self._clock.steady_s() - min(max(age_s, 0.0), role.quiet_s + role.takeover_s)

    async def _follow(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            still_wanted()
            self._fold(await self._tail.take(TAIL_WAIT_S))
            if self._reviving.revived or self._added:
                self._take_added(tasks)
                await self._take_in()

    async def _take_in(self) -> None:
        """Partitions that were recovered anew go on, in a tail that begins where they are. Here, so that no read is under way."""
        for partition, fresh in self._reviving.revived.items():
            self.followers[partition].replaced_by(fresh)
            self._forget_the_past(self.followers[partition])
            self.feeds[partition].reset()
            log_.info("partition revived", journal=self._settings.journal, partition=partition, seq=fresh.folded.seq)
        self._reviving.revived.clear()
        positions = {p: f.position for p, f in self.followers.items()}
        await self._tail.close()
        while True:
            still_wanted()
            try:
                self._tail = await self._log.open_tail(self._settings.journal, positions)
                return
            except LogUnavailableError as error:
                log_.warning("brokers away", journal=self._settings.journal, error=str(error))
                await asyncio.sleep(RETRY_S)

    def _take_added(self, tasks: asyncio.TaskGroup) -> None:
        """Partitions that the journal did not have before get a feed and an owner. Here, so that no read is under way."""
        for partition, fresh in sorted(self._added.items()):
            self.followers[partition], self.feeds[partition] = fresh, self._feed(partition)
            fresh.live_statuses = None if self._live is None else self._live.statuses()
            self._forget_the_past(fresh)
            fresh.live = True
            if partition in self._assigned:
                fresh.ownership.on_assigned()
            self._owners[partition] = self._owner(partition)
            tasks.create_task(self._owners[partition].run())
            log_.info("partition added", journal=self._settings.journal, partition=partition, seq=fresh.folded.seq)
        self._added.clear()

    async def _watch_added(self) -> None:
        """Recovers partitions that were recorded and added since the start; those that are not recorded are left alone."""
        journal, inputs = self._settings.journal, self._settings.input_topic
        while True:
            still_wanted()
            await asyncio.sleep(ADDED_EVERY_S)
            try:
                there = set(await self._log.partitions(journal)) & set(await self._log.partitions(inputs))
                if self._live is not None:
                    there &= set(await self._log.partitions(PROGRESS))
                if there <= self.followers.keys() | self._added.keys():
                    continue
                recorded = topology_of(await self._log.whole(TOPOLOGY)).counts.get(journal, 0)
                emptied = await self._repairs()
                for partition in sorted(p for p in there - self.followers.keys() - self._added.keys() if p < recorded):
                    self._added[partition] = await self._reviving.at_the_end(partition, emptied)
            except LogUnavailableError as error:
                log_.warning("brokers away", journal=journal, error=str(error))

    async def _report(self, owners: Mapping[int, Owner[S]]) -> None:
        while True:
            still_wanted()
            await self._reports.look(self.followers, owners)
            await asyncio.sleep(WATCH_S)

    async def _watch(self, owners: Mapping[int, Owner[S]]) -> None:
        """Raises BrokenInvariant when an owner makes no round. Counts its own turns, so that a pause of this process is no hang."""
        seen: dict[int, tuple[int, int]] = {}
        while True:
            still_wanted()
            await asyncio.sleep(WATCH_S)
            for partition, owner in owners.items():
                rounds, turns = seen.get(partition, (-1, 0))
                seen[partition] = (owner.rounds, turns + 1 if owner.rounds == rounds else 0)
                if turns >= HUNG_TURNS:
                    raise BrokenInvariant(
                        f"the owner of {self._settings.journal}-{partition} hangs: no round in {HUNG_TURNS * WATCH_S:g} s; "
                        "a new start goes on from what the journal says"
                    )

    async def _watch_owed(self) -> None:
        """Sees whether something is owed on partitions that others decide: since the look before, or at the start since the last record."""
        before_s = {partition: f.ownership.last_record_at_s for partition, f in self.followers.items()}
        while True:
            still_wanted()
            others = {p: f for p, f in self.followers.items() if not (f.halted or f.ownership.assigned or f.ownership.standing_in)}
            waits = await self._inputs_wait(others)
            now_s = self._clock.steady_s()
            for partition, follower in others.items():
                reported = self._live is not None and self._live.feed.grows(partition)
                owed = waits.get(partition, False) or follower.owed(now_s) or reported
                follower.ownership.on_owed(owed, before_s.get(partition, now_s))
            before_s = dict.fromkeys(others, now_s)
            await asyncio.sleep(self._settings.takeover_s / 4)

    async def _inputs_wait(self, followers: Mapping[int, Follower[S]]) -> dict[int, bool]:
        """Returns by partition whether the input topic goes beyond the cursor; empty where the brokers do not answer."""
        if not followers:
            return {}
        cursors = {partition: follower.folded.cursor for partition, follower in followers.items()}
        try:
            ends = await self._log.ends(self._settings.input_topic, followers.keys())
        except LogUnavailableError:
            return {}
        return {partition: end > cursors[partition] + 1 for partition, end in ends.items()}

    def _cursors(self) -> dict[int, int]:
        """The last handled offset of each partition; on the way, what is read off each follower."""
        now_s = self._clock.steady_s()
        for partition, follower in self.followers.items():
            self._meters.deciding.labels(partition).set(not follower.halted and follower.ownership.decides(now_s))
            self._meters.unpublished.labels(partition).set(len(follower.unpublished))
            self._meters.seq.labels(partition).set(follower.folded.seq)
        return {partition: follower.folded.cursor for partition, follower in self.followers.items()}

    def _fold(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            record = self.followers[entry.partition].take(entry)
            if record is not None and record.owner == self._settings.owner:
                log_decisions(record, entry.partition)

    async def _after_record(self, follower: Follower[S]) -> None:
        for observe in self._observers:
            if not follower.halted:  # else its state may be half folded
                await observe(follower)

    def _first_level(self) -> int:
        """The level at which an empty partition begins: the lowest of the others, so that a program of before can take it over; 0 where all
        are empty."""
        return min((f.folded.level for f in self.followers.values() if f.folded.level), default=0)

    def _owner(self, partition: int) -> Owner[S]:
        return Owner(
            self._settings,
            self._log,
            self.followers[partition],
            self.feeds[partition],
            Proposer(self._machine, self._settings.owner, self._settings.limits, self._settings.input_topic, self._first_level()),
            self._clock,
            self._snapshots.offload,
            self._after_record,
            self._meters,
        )
