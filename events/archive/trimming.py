"""Deletes from a topic partition what is archived.

Holds: what is deleted was read back from the archive just before, and was equal record by record to what the topic held.
Never: deletes beyond the archive, or beyond what it is told that readers still need.
"""

from itertools import takewhile, zip_longest

from trainhouse.events.archive.errors import ArchiveCorruptError
from trainhouse.events.archive.log import PartitionLog
from trainhouse.events.archive.partition import PartitionArchive
from trainhouse.events.model.errors import RecordsGoneError


def trim(log: PartitionLog, archive: PartitionArchive, needed_from: int) -> int:
    """Deletes what is archived and lies before `needed_from`; returns where the topic begins then. Blocks.

    Raises ArchiveCorruptError, BusUnavailableError, and what the store raises.
    """
    upto = min(archive.end(), needed_from)
    while (low := log.bounds()[0]) < upto:
        try:
            compare(log, archive, low, upto)
        except RecordsGoneError:
            continue  # another one trimmed meanwhile
        return log.delete_before(upto)
    return low


def compare(log: PartitionLog, archive: PartitionArchive, start: int, end: int) -> None:
    """Raises ArchiveCorruptError unless the archive has all that the topic has of [start, end), and nothing else.

    Raises RecordsGoneError where the topic was trimmed meanwhile.
    """
    kept = takewhile(lambda record: record.offset < end, log.records(start))
    for archived, here in zip_longest(archive.read(start, end), kept):
        if archived != here:
            offset = min(r.offset for r in (archived, here) if r is not None)
            raise ArchiveCorruptError(
                f"{archive.name}: what is archived of offset {offset} is not what the topic holds; nothing was deleted"
            )
