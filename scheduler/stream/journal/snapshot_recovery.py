"""Recovery of a journal's partition: the newest usable snapshot by seq, and what the log and its archive hold after it.

Holds: a snapshot of an older fold is lifted to this program's, so that what follows it alone is folded. One whose pointer or object cannot
be used (gone, damaged, of a newer fold, of a format that no step leads from, the log trimmed past it without an
archive) is passed over for the next older one, and at last for the journal's beginning, archive included. A pointer that proves that the
log lost records (its topic was made anew, it ends earlier, it holds another record there) is a SnapshotMismatch, unless a newer snapshot
of this topic can be used: the process refuses to append rather than fork history.
Never: writes.
"""

import base64
import hashlib
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import orjson
import structlog

from trainhouse.events.wire.journal import SnapshotPointer, pointer_prefix, record_hash, record_head
from trainhouse.events.wire.repairs import NO_REPAIRS, Repairs
from trainhouse.events.wire.topics import SNAPSHOTS
from trainhouse.scheduler.core.errors import LogUnavailableError, SnapshotMismatch, UnusableSnapshotError
from trainhouse.scheduler.core.protocol.journal import Folded, begin, fold_bytes
from trainhouse.scheduler.core.protocol.machine import Machine, Segmented
from trainhouse.scheduler.core.protocol.settled import Fetch
from trainhouse.scheduler.core.protocol.snapshot_choice import pointers_of, segment_key
from trainhouse.scheduler.stream.interfaces import JournalArchive, Log, SnapshotStore

S = TypeVar("S")
CHECK_TIMEOUT_S = 10.0
# Retention leaves a few; a bound for what it could not delete.
MOST_TRIED = 10
log_ = structlog.get_logger(__name__)
Offload = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Recovered(Generic[S]):
    """Result of a recovery: the state, the next offset of the journal, and the records whose effects are not out yet.

    `snapshot_seq`: of the snapshot that it began with, 0 without one. `timed_ms`: append time of the last record with a newer journal time,
    0 where it is not known. `emptied`: the repairs that the snapshot rests on.
    """

    folded: Folded[S]
    position: int
    unpublished: tuple[bytes, ...] = ()
    snapshot_seq: int = 0
    timed_ms: int = 0
    emptied: frozenset[str] = frozenset()


class Recovery(Generic[S]):
    """Recovery of one journal with one machine. `offload` runs the store's blocking calls."""

    def __init__(
        self, log: Log, store: SnapshotStore, journal: str, machine: Machine[S], offload: Offload, archive: JournalArchive | None
    ) -> None:
        self._log = log
        self._store = store
        self._journal = journal
        self._machine = machine
        self._offload = offload
        self._archive = archive

    async def recover(self, partition: int, emptied: Repairs = NO_REPAIRS) -> Recovered[S]:
        """The newest usable snapshot's state, else that of the journal's beginning. Raises SnapshotMismatch, LogUnavailableError."""
        topic_id = await self._log.topic_id(self._journal)
        found = await self._log.newest(SNAPSHOTS, pointer_prefix(self._journal, partition))
        # Asked last: a snapshot that an owner takes meanwhile is not beyond the log's end.
        start, end = await self._log.bounds(self._journal, partition)
        pointers = pointers_of(found, self._journal, partition)
        for key in sorted(pointers.unreadable):
            log_.error("snapshot pointer unreadable; passing over it", key=key.decode(errors="replace"))
        why = ""
        for pointer in pointers.newest_first(topic_id)[:MOST_TRIED]:
            await self._belongs(pointer, start, end)
            try:
                return await self._from_snapshot(pointer, start, emptied)
            except UnusableSnapshotError as error:
                why = why or str(error)
                log_.error("snapshot unusable; trying the next older one, then the whole journal", error=str(error))
        for pointer in pointers.foreign(topic_id):
            where = f"the snapshot of {pointer.journal}-{pointer.partition} at seq {pointer.seq}"
            raise SnapshotMismatch(f"{where} is of the topic with id {pointer.topic_id}, this one has {topic_id}: the topic was made anew")
        return await self._from_the_beginning(partition, start, why, emptied)

    async def _from_snapshot(self, pointer: SnapshotPointer, start: int, emptied: Repairs) -> Recovered[S]:
        """Raises UnusableSnapshotError, LogUnavailableError."""
        recovered = await self._load(pointer)
        if emptied.behind(pointer.partition, pointer.seq, recovered.emptied):
            raise UnusableSnapshotError(f"the snapshot {pointer.object_key} has a record in it that counts as empty since")
        if recovered.position >= start:
            return recovered
        where = (
            f"the snapshot {pointer.object_key} ends at offset {pointer.offset} and {self._journal}-{pointer.partition} begins at {start}"
        )
        if self._archive is None:
            raise UnusableSnapshotError(f"{where}: what is between them is archived, and no archive is configured")
        try:
            bridged: Recovered[S] = await self._offload(self._fold_archived, recovered, self._archive, emptied)
        except LogUnavailableError:
            raise
        except Exception as error:  # whatever the archive raises: an older snapshot may do
            raise UnusableSnapshotError(f"{where}: the archive does not fill the gap: {error}") from error
        return bridged

    async def _from_the_beginning(self, partition: int, start: int, why: str, emptied: Repairs) -> Recovered[S]:
        """Nothing is folded yet, but for what the log no longer holds: that comes from the archive."""
        empty = Recovered(begin(self._machine, partition), 0)
        if not start:
            return empty
        if self._archive is None:
            why = why or f"{self._journal}-{partition} begins at offset {start} and no snapshot covers what is gone"
            raise SnapshotMismatch(f"{why}; restore the journal from its archive")
        log_.warning("folding the archived journal", journal=self._journal, partition=partition, log_begins=start)
        recovered: Recovered[S] = await self._offload(self._fold_archived, empty, self._archive, emptied)
        return recovered

    def _fold_archived(self, recovered: Recovered[S], archive: JournalArchive, emptied: Repairs) -> Recovered[S]:
        """Folds the archived records from there on. Blocks."""
        folded, timed_ms = recovered.folded, recovered.timed_ms
        unpublished = deque((int(record_head(value)["seq"]), value) for value in recovered.unpublished)
        entries, end = archive.archived(self._journal, folded.partition, recovered.position)
        for entry in entries:
            before_ms = folded.now_ms
            folded, record = fold_bytes(self._machine, folded, entry.value, emptied=emptied)
            timed_ms = max(entry.timestamp_ms, 0) if folded.now_ms > before_ms else timed_ms
            if record is not None and entry.value is not None:
                unpublished.append((record.seq, entry.value))
            while unpublished and unpublished[0][0] <= folded.published_up_to:
                unpublished.popleft()
        return Recovered(folded, end, tuple(value for _, value in unpublished), recovered.snapshot_seq, timed_ms)

    async def _belongs(self, pointer: SnapshotPointer, start: int, end: int) -> None:
        """Raises SnapshotMismatch where the log no longer is that which the snapshot was taken of."""
        where = f"the snapshot of {pointer.journal}-{pointer.partition} at seq {pointer.seq}"
        if pointer.offset >= end:
            raise SnapshotMismatch(f"{where} ends at offset {pointer.offset}, but the log holds [{start}, {end}): records were lost")
        if pointer.offset < start:
            return  # trimmed: the record after it names its hash
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
            place = f"{self._journal}-{pointer.partition}"
            raise LogUnavailableError(f"{place} gave no record at offset {pointer.offset} in {CHECK_TIMEOUT_S} s")
        return entries[0].value if entries[0].offset == pointer.offset else None

    async def _load(self, pointer: SnapshotPointer) -> Recovered[S]:
        name = f"the snapshot {pointer.object_key}"
        if not fits(self._machine, pointer):
            of = f"{pointer.machine} with fold_version {pointer.fold_version}"
            read = f"{self._machine.formats.oldest_fold} to {self._machine.fold_version}"
            raise UnusableSnapshotError(f"{name} is of {of}, this program reads those of {self._machine.name} with {read}")
        try:
            blob: bytes | None = await self._offload(self._store.get, pointer.object_key)
        except Exception as error:  # whatever the store raises
            raise UnusableSnapshotError(f"{name} cannot be read: {error}") from error
        if blob is None or hashlib.sha256(blob).hexdigest() != pointer.sha256:
            how = "missing" if blob is None else "damaged"
            raise UnusableSnapshotError(f"{name} is {how}: its SHA-256 should be {pointer.sha256}")
        try:
            loaded: Recovered[S] = await self._offload(load, self._machine, pointer, blob, self._store)
            return loaded
        except Exception as error:  # its bytes are whole: it is of a format that this program does not read
            raise UnusableSnapshotError(f"{name} cannot be loaded: {error!r}"[:1000]) from error


def fits(machine: Machine[S], pointer: SnapshotPointer) -> bool:
    """Whether the machine reads snapshots of that fold_version: its own, or an older one that its steps lift."""
    return pointer.machine == machine.name and machine.formats.oldest_fold <= pointer.fold_version <= machine.fold_version


def fetched_from(store: SnapshotStore, pointer: SnapshotPointer) -> Fetch:
    """Returns a function that reads the segments of a snapshot. Blocks."""
    return lambda segment: store.get(segment_key(pointer.journal, pointer.partition, pointer.topic_id, segment))


def load(machine: Machine[S], pointer: SnapshotPointer, blob: bytes, store: SnapshotStore) -> Recovered[S]:
    """The folded partition back from its bytes, and from the segments that they name. Blocks. Raises what machine and store raise."""
    head = orjson.loads(blob)
    data = base64.b64decode(head["state"])
    state = machine.load_with(data, fetched_from(store, pointer)) if isinstance(machine, Segmented) else machine.load(data)
    folded = Folded(
        partition=pointer.partition,
        state=state,
        seq=pointer.seq,
        cursor=head["cursor"],
        now_ms=head["now_ms"],
        published_up_to=head["published_up_to"],
        last_hash=pointer.record_hash,
        frozen_version=head["frozen_version"],
        level=pointer.fold_version,
    )
    unpublished = tuple(base64.b64decode(r) for r in head["unpublished"])
    emptied = frozenset(head.get("emptied", ()))
    return Recovered(folded, pointer.offset + 1, unpublished, pointer.seq, int(head.get("timed_ms", 0)), emptied)
