"""The past as the scheduler's journal has it: reads archive and topic from the first record to the end, for a history.

Holds: reads only; a record counts by the rule of the journal (the next seq, and it names the hash of the one before).
Never: joins a group; folds a machine's state, so that journals of any version can be read.
"""

from collections.abc import Iterable, Iterator

from trainhouse.events.archive.log import journal_reader
from trainhouse.events.archive.partition import ArchiveStore
from trainhouse.events.archive.reading import journal_records
from trainhouse.events.bus.kafka import partitions_of
from trainhouse.events.bus.repair_log import emptied_records
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.journal import NO_HASH, InvalidRecordError, read_decision, record_hash, record_head
from trainhouse.events.wire.repairs import is_emptied
from trainhouse.events.wire.topics import DECISIONS
from trainhouse.events.wire.upcast import UPCASTERS
from trainhouse.scheduler.core.errors import BrokenInvariant
from trainhouse.scheduler.core.protocol.journal import NOTHING_EMPTIED
from trainhouse.scheduler.replay import LogEntry
from trainhouse.scheduler.sim.history import KINDS, Happening, History, history_of
from trainhouse.scheduler.stream.history.journal_replay import entry_of


def recorded_history(kafka: KafkaSettings, archive: ArchiveStore | None = None) -> History:
    """The history of all partitions; blocks until they are read. Raises BusUnavailableError, BrokenInvariant, ArchiveError."""
    reader = journal_reader(kafka)
    try:
        records = journal_records(kafka, reader, DECISIONS, partitions_of(reader, DECISIONS), archive)
        return history_of(happenings(map(entry_of, records), emptied_records(kafka, DECISIONS)))
    finally:
        reader.close()


def happenings(entries: Iterable[LogEntry], emptied: frozenset[str] = NOTHING_EMPTIED) -> Iterator[Happening]:
    """The decisions of the records that count, in the order of each partition, then how far each goes. Raises BrokenInvariant.

    `emptied`: hashes of records that count as empty.
    """
    wanted = {kind.event_type for kind in KINDS}
    ends: dict[int, tuple[int, str]] = {}
    last_ms: dict[int, int] = {}
    for entry in entries:
        seq, last_hash = ends.get(entry.partition, (0, NO_HASH))
        empty = is_emptied(entry.value, emptied)
        try:
            head = record_head(entry.value)
        except InvalidRecordError as error:
            if empty:
                continue
            raise BrokenInvariant(f"partition {entry.partition}, after seq {seq}: {error}") from error
        if head["seq"] != seq + 1:
            if not seq and head["seq"] > 1:
                raise BrokenInvariant(f"partition {entry.partition} begins at seq {head['seq']}: restore the journal from its archive")
            continue
        if empty:
            ends[entry.partition] = (seq + 1, record_hash(entry.value))
            continue
        if head.get("previous_hash") != last_hash:
            raise BrokenInvariant(f"partition {entry.partition}, seq {seq + 1}: its previous_hash is not the hash of the record before it")
        ends[entry.partition] = (seq + 1, record_hash(entry.value))
        last_ms[entry.partition] = int(head["now_ms"])
        for decision in head["decisions"]:
            if UPCASTERS.newest(decision["type"]) in wanted:
                yield Happening(entry.partition, int(head["now_ms"]), read_decision(decision))
    for partition, now_ms in sorted(last_ms.items()):
        yield Happening(partition, now_ms, None)
