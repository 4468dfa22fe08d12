"""Snapshots of a journal's partition, and recovery from the newest one.

Holds: a snapshot is used only if it belongs to this very topic (its id), its bytes have the hash that the pointer names, and the log
holds the record that it includes last; otherwise SnapshotMismatch: the process refuses to append rather than fork history. Only where
the object alone is missing, damaged or of another fold, the journal is folded from its beginning: from its archive, where the log was
trimmed.
A snapshot that cannot be made is an alert, and the owner goes on: the journal is the truth.
Never: deletes the log.
"""

import asyncio
import base64
import contextlib
import hashlib
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import orjson
import structlog

from trainhouse.events.alert import AlertFired, AlertResolved, Severity
from trainhouse.events.codec import encode
from trainhouse.events.envelope import envelope_of
from trainhouse.events.journal import JournalRecord, SnapshotPointer, record_hash
from trainhouse.events.topics import ALERTS, SNAPSHOTS
from trainhouse.scheduler.core.errors import LogUnavailable, SnapshotMismatch
from trainhouse.scheduler.core.journal import NOTHING_EMPTIED, Folded, begin, fold_bytes
from trainhouse.scheduler.core.machine import Machine
from trainhouse.scheduler.stream.follower import Follower
from trainhouse.scheduler.stream.ports import JournalArchive, Log, SnapshotStore

S = TypeVar("S")
EVERY_RECORDS = 2_000
CHECK_TIMEOUT_S = 10.0
log_ = structlog.get_logger(__name__)
Offload = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Recovered(Generic[S]):
    """Where to go on: the state, the next offset of the journal, and the records whose effects are not out yet."""

    folded: Folded[S]
    position: int
    unpublished: tuple[bytes, ...] = ()


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
        self._offload = offload
        self._archive = archive
        self._taken: dict[int, int] = {}
        self._saving: set[int] = set()
        self._failing: dict[int, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def recover(self, partition: int, emptied: frozenset[str] = NOTHING_EMPTIED) -> Recovered[S]:
        """The newest snapshot's state, or that of what is archived, or the empty one. Raises SnapshotMismatch, LogUnavailable."""
        start, end = await self._log.bounds(self._journal, partition)
        key = f"{self._journal}/{partition}".encode()
        value = (await self._log.newest(SNAPSHOTS, [key])).get(key)
        if value is None:
            return await self._from_the_beginning(
                partition,
                emptied,
                start,
                SnapshotMismatch(f"{self._journal}-{partition} begins at offset {start} and no snapshot covers what is gone"),
            )
        pointer = SnapshotPointer.decode(value)
        await self._belongs(pointer, start, end)
        try:
            recovered = await self._load(pointer)
        except SnapshotMismatch as error:
            # The whole journal is still there, and it is the truth: only time is lost.
            log_.error("snapshot unusable; folding the whole journal", error=str(error))
            return await self._from_the_beginning(partition, emptied, start, error)
        self._taken[partition] = pointer.seq
        return recovered

    async def _from_the_beginning(self, partition: int, emptied: frozenset[str], start: int, why: SnapshotMismatch) -> Recovered[S]:
        """Nothing is folded yet, but for what the log no longer holds: that comes from the archive. Raises `why` where there is none."""
        if not start:
            return Recovered(begin(self._machine, partition), 0)
        if self._archive is None:
            raise SnapshotMismatch(f"{why}; restore the journal from its archive") from why
        log_.warning("folding the archived journal", journal=self._journal, partition=partition, log_begins=start)
        recovered: Recovered[S] = await self._offload(self._fold_archived, partition, self._archive, emptied)
        return recovered

    def _fold_archived(self, partition: int, archive: JournalArchive, emptied: frozenset[str]) -> Recovered[S]:
        """The archived part of a partition, folded. Blocks."""
        folded, unpublished = begin(self._machine, partition), deque[tuple[int, bytes]]()
        entries, end = archive.archived(self._journal, partition)
        for value in entries:
            folded, record = fold_bytes(self._machine, folded, value, emptied=emptied)
            if record is not None and value is not None:
                unpublished.append((record.seq, value))
            while unpublished and unpublished[0][0] <= folded.published_up_to:
                unpublished.popleft()
        return Recovered(folded, end, tuple(value for _, value in unpublished))

    async def after_record(self, follower: Follower[S]) -> None:
        """Starts a snapshot when enough records were folded since the last one; the saving itself goes on in the background."""
        partition, seq = follower.partition, follower.folded.seq
        if partition in self._saving or seq - self._taken.get(partition, 0) < self._every_records:
            return
        self._saving.add(partition)
        try:
            state = self._machine.dump(follower.folded.state)
            blob = dump(follower, state)
        except Exception as error:
            task = asyncio.create_task(self._failed(follower.folded, error))
        else:
            task = asyncio.create_task(self._save(follower.folded, follower.last_offset, state, blob))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _save(self, folded: Folded[S], offset: int, state: bytes, blob: bytes) -> None:
        key = f"snapshots/{self._journal}/{folded.partition}/{folded.seq:016d}.json"
        try:
            pointer = SnapshotPointer(
                journal=self._journal,
                partition=folded.partition,
                topic_id=await self._log.topic_id(self._journal),
                offset=offset,
                seq=folded.seq,
                record_hash=folded.last_hash,
                object_key=key,
                sha256=hashlib.sha256(blob).hexdigest(),
                state_sha256=hashlib.sha256(state).hexdigest(),
                machine=self._machine.name,
                fold_version=self._machine.fold_version,
            )
            await self._offload(self._store.put, key, blob)
            await self._log.send(SNAPSHOTS, pointer.key, pointer.encode())
            log_.info("snapshot taken", journal=self._journal, partition=folded.partition, seq=folded.seq, bytes=len(blob))
        except Exception as error:  # whatever the store raises: a snapshot is an optimization, the journal is the truth
            await self._failed(folded, error)
        else:
            await self._alert(folded, None)
        finally:
            self._taken[folded.partition] = folded.seq
            self._saving.discard(folded.partition)

    async def _failed(self, folded: Folded[S], error: Exception) -> None:
        log_.error("snapshot failed", journal=self._journal, partition=folded.partition, error=repr(error))
        self._taken[folded.partition] = folded.seq
        self._saving.discard(folded.partition)
        await self._alert(folded, error)

    async def _alert(self, folded: Folded[S], error: Exception | None) -> None:
        """Says once that snapshots of a partition fail, and once that they work again."""
        partition, failing = folded.partition, self._failing.get(folded.partition)
        if (error is None) == (failing is None):
            return
        since_ms = folded.now_ms if failing is None else failing
        key = f"{self._journal}-{partition}"
        why = f"no snapshot of {key} could be made: {error!r}"[:1500]
        how = "nothing is lost, but the next start reads the journal from the last one; mend what is named"
        told = {
            "rule": "snapshot-failed",
            "key": key,
            "severity": Severity.WARNING,
            "summary": f"{why}; {how}" if error is not None else f"snapshots of {key} work again",
            "since_ms": since_ms,
            "at_ms": folded.now_ms,
        }
        event = (AlertFired if error is not None else AlertResolved).model_validate(told)
        name = f"snapshot-failed:{key}:{folded.seq}"
        with contextlib.suppress(LogUnavailable):
            await self._log.send(
                ALERTS, event.rule.encode(), encode(envelope_of(event, id=name, source="trainhouse/snapshots", now_ms=folded.now_ms))
            )
            if error is not None:
                self._failing[partition] = since_ms
            else:
                del self._failing[partition]

    async def _belongs(self, pointer: SnapshotPointer, start: int, end: int) -> None:
        where = f"the snapshot of {pointer.journal}-{pointer.partition} at seq {pointer.seq}"
        topic_id = await self._log.topic_id(self._journal)
        if pointer.topic_id != topic_id:
            raise SnapshotMismatch(f"{where} is of the topic with id {pointer.topic_id}, this one has {topic_id}: the topic was made anew")
        if not start <= pointer.offset < end:
            raise SnapshotMismatch(f"{where} ends at offset {pointer.offset}, but the log holds [{start}, {end}): records were lost")
        if pointer.machine != self._machine.name or pointer.fold_version > self._machine.fold_version:
            raise SnapshotMismatch(
                f"{where} is of {pointer.machine} with fold_version {pointer.fold_version}, this program's is {self._machine.fold_version}"
            )
        value = await self._entry(pointer)
        if value is None or record_hash(value) != pointer.record_hash:
            raise SnapshotMismatch(f"{where} follows a record with hash {pointer.record_hash}, the log has another at that offset")

    async def _entry(self, pointer: SnapshotPointer) -> bytes | None:
        tail = await self._log.open_tail(self._journal, {pointer.partition: pointer.offset})
        try:
            entries = await tail.take(CHECK_TIMEOUT_S)
        finally:
            await tail.close()
        if not entries:
            raise LogUnavailable(f"{self._journal}-{pointer.partition} gave no record at offset {pointer.offset} in {CHECK_TIMEOUT_S} s")
        return entries[0].value if entries[0].offset == pointer.offset else None

    async def _load(self, pointer: SnapshotPointer) -> Recovered[S]:
        blob: bytes | None = await self._offload(self._store.get, pointer.object_key)
        found = hashlib.sha256(blob or b"").hexdigest()
        if blob is None or found != pointer.sha256:
            raise SnapshotMismatch(
                f"the snapshot {pointer.object_key} is {'missing' if blob is None else 'damaged'}: its SHA-256 should be {pointer.sha256}"
            )
        if pointer.fold_version != self._machine.fold_version:
            version = self._machine.fold_version
            raise SnapshotMismatch(f"the snapshot {pointer.object_key} is of fold_version {pointer.fold_version}, not {version}")
        return load(self._machine, pointer, blob)


def dump(follower: Follower[S], state: bytes) -> bytes:
    """A folded partition as bytes: the protocol's part, the machine's dumped state, and what is not published yet."""
    folded = follower.folded
    return orjson.dumps(
        {
            "cursor": folded.cursor,
            "now_ms": folded.now_ms,
            "published_up_to": folded.published_up_to,
            "frozen_version": folded.frozen_version,
            "state": base64.b64encode(state).decode(),
            "unpublished": [base64.b64encode(u.record).decode() for u in follower.unpublished],
        }
    )


def load(machine: Machine[S], pointer: SnapshotPointer, blob: bytes) -> Recovered[S]:
    """The folded partition back from its bytes."""
    head = orjson.loads(blob)
    folded = Folded(
        partition=pointer.partition,
        state=machine.load(base64.b64decode(head["state"])),
        seq=pointer.seq,
        cursor=head["cursor"],
        now_ms=head["now_ms"],
        published_up_to=head["published_up_to"],
        last_hash=pointer.record_hash,
        frozen_version=head["frozen_version"],
    )
    return Recovered(folded, pointer.offset + 1, tuple(base64.b64decode(r) for r in head["unpublished"]))


def hold_unpublished(follower: Follower[S], recovered: Recovered[S]) -> None:
    """Gives a follower the effects that a snapshot says are not out yet."""
    for value in recovered.unpublished:
        follower.hold(JournalRecord.decode(value), value)
