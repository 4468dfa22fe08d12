"""Replay's shell: reads a journal from its archive and from Kafka, from its first record to its end, and verifies it.

Holds: reads only; the archive is asked only where the topic no longer begins with its first record. Never: joins a group.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from confluent_kafka import Consumer

from trainhouse.events.archive.log import journal_reader
from trainhouse.events.archive.partition import ArchiveStore
from trainhouse.events.archive.reading import journal_records
from trainhouse.events.archive.segments import LogRecord
from trainhouse.events.bus.admin import topic_id
from trainhouse.events.bus.kafka import TO_END, consumer, partitions_of, read_to_end
from trainhouse.events.bus.repair_log import emptied_records
from trainhouse.events.bus.topology_log import read_topology
from trainhouse.events.model.errors import RecordsGoneError
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.journal import InvalidRecordError, SnapshotPointer, record_hash
from trainhouse.events.wire.repairs import Repairs
from trainhouse.events.wire.topics import DECISIONS, DIRECTORY, REGISTRY, SNAPSHOTS, TUNING
from trainhouse.scheduler.core.protocol.journal import Folded
from trainhouse.scheduler.core.protocol.machine import Machine
from trainhouse.scheduler.repairs import Search, search
from trainhouse.scheduler.replay import LogEntry, ReplayReport, verify
from trainhouse.scheduler.stream.interfaces import SnapshotStore
from trainhouse.scheduler.stream.journal.snapshot_recovery import fits, load
from trainhouse.scheduler.stream.studies.recomputed_suggestions import RecomputedSuggestions
from trainhouse.scheduler.time_travel import Past, past

S = TypeVar("S")
# Later than any record can be.
FOR_EVER_MS = 2**62


def machines(kafka: KafkaSettings) -> dict[str, Machine[Any]]:
    """The machine of each journal, by topic. Blocks. Raises BusUnavailableError."""
    from trainhouse.scheduler.core.intake.directory import DirectoryMachine
    from trainhouse.scheduler.core.registry.registry_machine import RegistryMachine
    from trainhouse.scheduler.core.schedule import ScheduleMachine
    from trainhouse.scheduler.core.studies.study_machine import TunerMachine
    from trainhouse.scheduler.stream.settled.settled_index import SettledIndex

    topology, found = read_topology(kafka)
    made_with = topology.adopting(found).made_with(kafka.partitions)
    directory = DirectoryMachine(control_partitions=made_with, index=SettledIndex())
    return {DIRECTORY: directory, DECISIONS: ScheduleMachine(), REGISTRY: RegistryMachine(), TUNING: TunerMachine()}


def verify_journal(kafka: KafkaSettings, journal: str, machine: Machine[S], archive: ArchiveStore | None = None) -> ReplayReport:
    """Verifies one journal with one machine; blocks until it is read. Raises BusUnavailableError, ArchiveError."""
    reader = journal_reader(kafka)
    try:
        # What a program below the lowest level wrote says the same in other bytes: it cannot be compared.
        comparable = (p for p in snapshots_of(kafka, journal) if machine.lowest_level <= p.fold_version <= machine.fold_version)
        snapshots = {(p.partition, p.seq): p.state_sha256 for p in comparable}
        records = journal_records(kafka, reader, journal, partitions_of(reader, journal), archive)
        suggestions = RecomputedSuggestions() if journal == TUNING else None
        also: Any = None if suggestions is None else suggestions.differences
        report = verify(map(entry_of, records), machine, snapshots, emptied_records(kafka, journal), also)
        if suggestions is not None:
            report.suggestions, report.other_versions = suggestions.recomputed, suggestions.other_versions
        return report
    finally:
        reader.close()


def past_of(
    kafka: KafkaSettings,
    journal: str,
    machine: Machine[S],
    at_ms: int,
    *,
    partitions: Iterable[int] | None = None,
    store: SnapshotStore | None = None,
    archive: ArchiveStore | None = None,
) -> Past[S]:
    """One journal as of a moment; blocks until it is read. `store`: where snapshots are; without it all is folded.

    Raises NoSuchMomentError, BrokenInvariant, BusUnavailableError, ArchiveError.
    """
    reader = journal_reader(kafka)
    try:
        chosen = sorted(partitions_of(reader, journal) if partitions is None else partitions)
        pointers = [p for p in newest_first(kafka, journal) if p.partition in chosen] if store is not None else []
        repairs = emptied_records(kafka, journal)
        known = _usable(reader, journal, machine, at_ms, pointers, store, repairs)
        starts = {p: offset + 1 for p, (offset, _) in known.items()}
        entries = map(entry_of, journal_records(kafka, reader, journal, chosen, archive, starts))
        return past(entries, machine, at_ms, [folded for _, folded in known.values()], repairs)
    finally:
        reader.close()


def entry_of(record: LogRecord) -> LogEntry:
    """A record as replay takes it."""
    return LogEntry(record.partition, record.offset, record.value or b"")


def _usable(
    reader: Consumer,
    journal: str,
    machine: Machine[S],
    at_ms: int,
    pointers: Sequence[SnapshotPointer],
    store: SnapshotStore | None,
    repairs: Repairs,
) -> dict[int, tuple[int, Folded[S]]]:
    """By partition the first of these snapshots that is whole, of this very log, and not newer than the moment; with its offset."""
    found: dict[int, tuple[int, Folded[S]]] = {}
    for pointer in pointers:
        partition = pointer.partition
        if partition in found:
            continue
        if store is None:
            break
        blob = store.get(pointer.object_key)
        if blob is None or not fits(machine, pointer) or hashlib.sha256(blob).hexdigest() != pointer.sha256:
            continue
        try:
            loaded = load(machine, pointer, blob, store)
        except Exception:  # nosec B112  # whole bytes of another format: an older one is tried, or the journal itself is read
            continue
        if repairs.behind(partition, pointer.seq, loaded.emptied):
            continue
        folded = loaded.folded
        try:
            last = next(iter(read_to_end(reader, journal, [partition], starts={partition: pointer.offset}, whole=True)), None)
        except RecordsGoneError:
            continue  # a newer snapshot lets the topic begin later: all is read, from the archive on
        if last is not None and record_hash(last.value() or b"") == pointer.record_hash and folded.now_ms <= at_ms:
            found[partition] = pointer.offset, folded
    return found


def snapshots_of(kafka: KafkaSettings, journal: str) -> Iterator[SnapshotPointer]:
    """The pointers to a journal's snapshots, in the order of writing, later deleted ones too. Blocks. Raises BusUnavailableError."""
    return (pointer for _, pointer in _pointers(kafka, journal) if pointer is not None)


def newest_first(kafka: KafkaSettings, journal: str) -> list[SnapshotPointer]:
    """The pointers that are not deleted, of all partitions, by seq. Blocks. Raises BusUnavailableError."""
    by_key = dict(_pointers(kafka, journal))
    return sorted({p.object_key: p for p in by_key.values() if p is not None}.values(), key=lambda p: p.seq, reverse=True)


def _pointers(kafka: KafkaSettings, journal: str) -> Iterator[tuple[bytes, SnapshotPointer | None]]:
    """The records of pointers with their keys; None: deleted, unreadable, or of another journal or topic."""
    reader = consumer(kafka, log_level=0, **TO_END)
    place = journal, topic_id(kafka, journal)
    try:
        for message in read_to_end(reader, SNAPSHOTS, [0]):
            try:
                pointer = SnapshotPointer.decode(message.value() or b"")
            except InvalidRecordError:
                yield message.key() or b"", None
                continue
            yield message.key() or b"", pointer if (pointer.journal, pointer.topic_id) == place else None
    finally:
        reader.close()


def broken_records(
    kafka: KafkaSettings,
    journal: str,
    machine: Machine[S],
    *,
    store: SnapshotStore | None = None,
    archive: ArchiveStore | None = None,
    emptied: frozenset[str] | None = None,
) -> Search[S]:
    """The first record of each partition that this program cannot fold, from the newest snapshot on (`store`), else from the beginning.

    `emptied`: the records that count as empty, None: as the topic of repairs says. Blocks. Raises BusUnavailableError, ArchiveError.
    """
    reader = journal_reader(kafka)
    try:
        chosen = sorted(partitions_of(reader, journal))
        repairs = emptied_records(kafka, journal)
        pointers = newest_first(kafka, journal) if store is not None else []
        known = _usable(reader, journal, machine, FOR_EVER_MS, pointers, store, repairs)
        starts = {p: offset + 1 for p, (offset, _) in known.items()}
        entries = map(entry_of, journal_records(kafka, reader, journal, chosen, archive, starts))
        return search(entries, machine, [folded for _, folded in known.values()], repairs if emptied is None else emptied)
    finally:
        reader.close()
