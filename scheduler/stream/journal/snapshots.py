"""Snapshots of a journal's partition: taken by its owner every so many records; the last three stay.

Holds: the object is written before its pointer, and each segment that it names before it; none replaces those of another snapshot, so one
that comes late does no harm. The loop only takes hold of the state (`capture`): it is written down, hashed and stored in a thread.
A snapshot that cannot be made is an alert, and the owner goes on: the journal is the truth.
Never: deletes the log.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Generic, TypeVar

import structlog

from trainhouse.events.model.alert import AlertFired, AlertResolved, Severity
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.envelope import envelope_of
from trainhouse.events.wire.journal import JournalRecord, SnapshotPointer
from trainhouse.events.wire.repairs import NO_REPAIRS, Repairs
from trainhouse.events.wire.topics import ALERTS, SNAPSHOTS
from trainhouse.scheduler.core.errors import LogUnavailableError
from trainhouse.scheduler.core.protocol.journal import Folded
from trainhouse.scheduler.core.protocol.machine import Machine, captured
from trainhouse.scheduler.core.protocol.settled import Sealing
from trainhouse.scheduler.core.protocol.snapshot_choice import object_key
from trainhouse.scheduler.stream.interfaces import JournalArchive, Log, SnapshotStore
from trainhouse.scheduler.stream.journal.follower import Follower
from trainhouse.scheduler.stream.journal.snapshot_blob import Taken, taken
from trainhouse.scheduler.stream.journal.snapshot_recovery import Offload, Recovered, Recovery
from trainhouse.scheduler.stream.journal.snapshot_retention import Retention
from trainhouse.scheduler.stream.journal.snapshot_segments import SnapshotSegments

S = TypeVar("S")
EVERY_RECORDS = 2_000
# An index refuses to have more in the making.
UNSEALED_AT_MOST = 16
log_ = structlog.get_logger(__name__)


class Snapshots(Generic[S]):
    """Snapshots of one journal with one machine. `offload` runs the store's blocking calls."""

    def __init__(
        self,
        log: Log,
        store: SnapshotStore,
        journal: str,
        machine: Machine[S],
        *,
        every_records: int = EVERY_RECORDS,
        offload: Offload = asyncio.to_thread,
        archive: JournalArchive | None = None,
    ) -> None:
        self._log = log
        self._store = store
        self._journal = journal
        self._machine = machine
        self._every_records = every_records
        self.offload = offload
        self._recovery = Recovery(log, store, journal, machine, offload, archive)
        self._segments = SnapshotSegments(store, journal, machine)
        self._retention = Retention(log, store, journal, offload)
        self._taken: dict[int, int] = {}
        self._saving: set[int] = set()
        self._failing: dict[int, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def recover(self, partition: int, emptied: Repairs = NO_REPAIRS) -> Recovered[S]:
        """The state of the newest snapshot that can be used, else of the journal's beginning. Raises SnapshotMismatch, LogUnavailableError.

        `emptied`: hashes of records that count as empty.
        """
        recovered = await self._recovery.recover(partition, emptied)
        self._taken[partition] = recovered.snapshot_seq
        return recovered

    async def after_record(self, follower: Follower[S]) -> None:
        """Starts a snapshot when enough records were folded since the last one; the saving itself goes on in the background."""
        partition, seq = follower.partition, follower.folded.seq
        if partition in self._saving or seq - self._taken.get(partition, 0) < self._every_records:
            return
        segments = self._segments.of(follower.folded.state)
        if not all(s.sealed for s in segments[-UNSEALED_AT_MOST:]):
            return  # in a moment: nothing waits for them here
        self._saving.add(partition)
        try:
            snapshot = taken(follower, captured(self._machine.at(follower.folded.level), follower.folded.state))
        except Exception as error:
            task = asyncio.create_task(self._failed(follower.folded, error))
        else:
            task = asyncio.create_task(self._save(follower.folded, follower.last_offset, snapshot, segments))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _save(self, folded: Folded[S], offset: int, snapshot: Taken, segments: Sequence[Sealing]) -> None:
        try:
            topic_id = await self._log.topic_id(self._journal)
            named: tuple[str, ...] = await self.offload(self._segments.store, folded.partition, topic_id, segments)
            blob, sha256, state_sha256 = await self.offload(snapshot.written, named)
            key = object_key(self._journal, folded.partition, folded.seq, topic_id, sha256)
            pointer = SnapshotPointer(
                journal=self._journal,
                partition=folded.partition,
                topic_id=topic_id,
                offset=offset,
                seq=folded.seq,
                record_hash=folded.last_hash,
                object_key=key,
                sha256=sha256,
                state_sha256=state_sha256,
                machine=self._machine.name,
                fold_version=max(folded.level, self._machine.lowest_level),
            )
            await self.offload(self._store.put, key, blob)
            await self._log.send(SNAPSHOTS, pointer.key, pointer.encode())
            log_.info("snapshot taken", journal=self._journal, partition=folded.partition, seq=folded.seq, bytes=len(blob))
        except Exception as error:  # whatever the store raises: a snapshot is an optimization, the journal is the truth
            await self._failed(folded, error)
        else:
            await self._alert(folded, None)
            await self._retention.prune(folded.partition, frozenset(named))
        finally:
            self._taken[folded.partition] = folded.seq
            self._saving.discard(folded.partition)

    async def _failed(self, folded: Folded[S], error: Exception) -> None:
        log_.error("snapshot failed", journal=self._journal, partition=folded.partition, error=repr(error))
        self._taken[folded.partition] = folded.seq
        self._saving.discard(folded.partition)
        await self._alert(folded, error)

    async def _alert(self, folded: Folded[S], error: Exception | None) -> None:
        """Alerts once that snapshots of a partition fail, and once that they work again."""
        partition, failing = folded.partition, self._failing.get(folded.partition)
        if (error is None) == (failing is None):
            return
        since_ms = folded.now_ms if failing is None else failing
        key = f"{self._journal}-{partition}"
        why = f"no snapshot of {key} could be made: {error!r}"[:1500]
        how = "nothing is lost, but the next start reads the journal from the last one; mend what is named"
        fields = {
            "rule": "snapshot-failed",
            "key": key,
            "severity": Severity.WARNING,
            "summary": f"{why}; {how}" if error is not None else f"snapshots of {key} work again",
            "since_ms": since_ms,
            "at_ms": folded.now_ms,
        }
        event = (AlertFired if error is not None else AlertResolved).model_validate(fields)
        name = f"snapshot-failed:{key}:{folded.seq}"
        with contextlib.suppress(LogUnavailableError):
            await self._log.send(
                ALERTS, event.rule.encode(), encode(envelope_of(event, id=name, source="trainhouse/snapshots", now_ms=folded.now_ms))
            )
            if error is not None:
                self._failing[partition] = since_ms
            else:
                del self._failing[partition]


def hold_unpublished(follower: Follower[S], recovered: Recovered[S]) -> None:
    """Gives a follower the effects that a snapshot says are not out yet."""
    for value in recovered.unpublished:
        follower.hold(JournalRecord.decode(value), value)
