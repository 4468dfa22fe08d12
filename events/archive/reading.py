"""Archive and topic as one: the records of a journal from any offset on, wherever they lie now.

Holds: first the archive, then the topic, without a gap and without a double; the archive is asked only where the topic no longer begins at
what is wanted. Where the two do not meet, ArchiveGapError says the numbers.
Never: joins a group; goes on behind a gap, also when the topic is trimmed while it is read.
"""

from collections.abc import Iterable, Iterator, Mapping

from confluent_kafka import Consumer

from trainhouse.events.archive.errors import ArchiveGapError
from trainhouse.events.archive.log import KafkaPartition, PartitionLog, record_of
from trainhouse.events.archive.partition import ArchiveStore, PartitionArchive
from trainhouse.events.archive.segments import LogRecord
from trainhouse.events.bus.admin import topic_id
from trainhouse.events.bus.kafka import read_to_end
from trainhouse.events.model.errors import RecordsGoneError
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import AUDIT, DATASETS, MODEL_HISTORY, NODE_AUDIT, STUDY_HISTORY, TOPICS

# What never expires on the brokers by itself: what `trainhouse archive` takes, and alone may trim.
# Versions of datasets are few, and clients read all of them: they stay on the brokers whole. So do decisions that clients wait for.
_WHOLE = (DATASETS, MODEL_HISTORY, STUDY_HISTORY)
ARCHIVED = tuple(t.name for t in TOPICS if t.retention_days is None and not t.compacted and t.name not in _WHOLE)

# What expires on the brokers, and is kept as a chain that can be proved: `trainhouse archive` takes it too, and never trims it.
RECORDED = (AUDIT, NODE_AUDIT)


def journal_records(
    kafka: KafkaSettings,
    reader: Consumer,
    topic: str,
    partitions: Iterable[int],
    archive: ArchiveStore | None,
    starts: Mapping[int, int] | None = None,
) -> Iterator[LogRecord]:
    """The records from their beginnings (or `starts`) to the ends as of the call, in the order of each partition. Blocks.

    `reader` is a `journal_reader`. Raises ArchiveCorruptError, ArchiveGapError, BusUnavailableError, and what the store raises.
    """
    at = {partition: (starts or {}).get(partition, 0) for partition in partitions}
    while True:
        for partition in at:
            log = KafkaPartition(kafka, reader, topic, partition)
            while (low := log.bounds()[0]) > at[partition]:
                old = archive_of(kafka, archive, topic, partition, low)
                end = joint(log, old)
                yield from old.read(at[partition], end)
                at[partition] = end
        try:
            yield from map(record_of, read_to_end(reader, topic, at, starts=at, whole=True))
            return
        except RecordsGoneError:
            continue  # trimmed just now, before anything of it was read: so it is archived


def archive_of(kafka: KafkaSettings, archive: ArchiveStore | None, topic: str, partition: int, low: int) -> PartitionArchive:
    """The archive of a partition whose topic begins at `low`. Blocks on the brokers. Raises ArchiveGapError where no store is known."""
    if archive is None:
        raise ArchiveGapError(
            f"{topic}-{partition} begins at offset {low}: what came before is in the archive, and no object store is known "
            "or it does not answer (TRAINHOUSE_S3_*)"
        )
    return PartitionArchive(archive, topic, topic_id(kafka, topic), partition)


def joint(log: PartitionLog, archive: PartitionArchive) -> int:
    """Offset at which the archive ends and the topic goes on. Blocks. Raises ArchiveGapError, ArchiveCorruptError, BusUnavailableError.

    The archive's end only grows, and nothing beyond it is trimmed: so it is asked for between the topic's beginning and the topic's end.
    """
    low, _ = log.bounds()
    end = archive.end()
    _, high = log.bounds()
    if end < low:
        lost = f"the records of offsets {end} to {low - 1} are in neither"
        raise ArchiveGapError(f"{archive.name} begins at offset {low}, and its archive ends at {end}: {lost}")
    if end > high:
        lost = "the topic lost its last records, restore it first"
        raise ArchiveGapError(f"{archive.name} ends at offset {high}, and its archive at {end}: {lost}")
    return end
