"""Takes what is new in a topic partition into its archive.

Holds: committed records only, each byte for byte with its offset; where it stands is what the store says, so it may be killed at any
instant, and several may run at once: one of them writes each object, the others go on behind it.
Never: changes the topic.
"""

from dataclasses import dataclass

from trainhouse.events.archive.log import PartitionLog
from trainhouse.events.archive.partition import PartitionArchive
from trainhouse.events.archive.reading import joint
from trainhouse.events.archive.segments import cut
from trainhouse.events.model.errors import RecordsGoneError

# Of keys and values before compression: some MiB in memory, and a fraction of it in the store.
SEGMENT_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Archived:
    """Result of one run, and the archive's end after it."""

    end: int
    records: int = 0
    objects: int = 0


def archive_partition(
    log: PartitionLog, archive: PartitionArchive, segment_bytes: int = SEGMENT_BYTES, *, expires: bool = False
) -> Archived:
    """Archives up to the topic's end as of the call. Blocks. With `expires`, an archive may begin where the topic does now.

    Raises ArchiveGapError, ArchiveCorruptError, BusUnavailableError, and what the store raises.
    """
    records = objects = 0
    while True:
        end = log.bounds()[0] if expires and archive.end() == 0 else joint(log, archive)
        try:
            for group in cut(log.records(end), segment_bytes):
                if not archive.add(end, group):
                    break
                records, objects, end = records + len(group), objects + 1, group[-1].offset + 1
            else:
                return Archived(end, records, objects)
        except RecordsGoneError:
            pass
        # Another writer was first (and may have trimmed already): on from where its objects end.
