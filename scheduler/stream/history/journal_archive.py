"""The journals' archive over the object store, for a recovery that needs records which the log no longer holds.

Never: writes.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from trainhouse.events.archive.log import KafkaPartition, journal_reader
from trainhouse.events.archive.partition import ArchiveStore, PartitionArchive
from trainhouse.events.archive.reading import joint
from trainhouse.events.bus.admin import topic_id
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.settings import KafkaSettings
from trainhouse.scheduler.core.errors import LogUnavailableError
from trainhouse.scheduler.stream.interfaces import Entry


@dataclass(frozen=True)
class ArchivedJournals:
    """Archives of the journals on these brokers."""

    kafka: KafkaSettings
    store: ArchiveStore

    def archived(self, journal: str, partition: int, start: int = 0) -> tuple[Iterator[Entry], int]:
        """Entries from `start` on, and where the log goes on. Raises LogUnavailableError, ArchiveError, and what the store raises."""
        reader = journal_reader(self.kafka)
        try:
            archive = PartitionArchive(self.store, journal, topic_id(self.kafka, journal), partition)
            end = joint(KafkaPartition(self.kafka, reader, journal, partition), archive)
        except BusUnavailableError as error:
            raise LogUnavailableError(str(error)) from error
        finally:
            reader.close()
        return (Entry(partition, r.offset, r.timestamp_ms, r.key, r.value) for r in archive.read(start, end)), end
