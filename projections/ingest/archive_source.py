"""Archived records of a lane's topics, read before the topic itself.

Holds: the offsets of archive and topic meet, or ArchiveGapError says why not; what expires on the brokers by itself has no archive, and
begins
where it begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from confluent_kafka import Consumer

from trainhouse.events.archive.log import KafkaPartition
from trainhouse.events.archive.partition import ArchiveStore
from trainhouse.events.archive.reading import ARCHIVED, archive_of, joint
from trainhouse.events.archive.segments import LogRecord
from trainhouse.events.settings import KafkaSettings
from trainhouse.projections.record import Record


class OldRecords:
    """Queue of archived records. `archive` None: no archive is configured. Every call blocks."""

    def __init__(self, kafka: KafkaSettings, archive: ArchiveStore | None) -> None:
        self._kafka = kafka
        self._archive = archive
        self._waiting: Iterator[Record] = iter(())
        self.exhausted = True

    def begin(self, reader: Consumer, topic: str, partition: int, start: int, low: int, end: int | None = None) -> int:
        """Returns the offset at which to read the topic, whose first is `low`; `take` returns the records from `start` up to there.

        `end`: exclusive bound of `take`'s records. Raises ArchiveGapError, ArchiveCorruptError, BusUnavailableError.
        """
        if start >= low or topic not in ARCHIVED:
            return max(start, low)
        archive = archive_of(self._kafka, self._archive, topic, partition, low)
        goes_on = joint(KafkaPartition(self._kafka, reader, topic, partition), archive)
        upto = goes_on if end is None else min(goes_on, end)
        self._waiting = chain(self._waiting, (_of_topic(topic, r) for r in archive.read(start, upto)))
        self.exhausted = False
        return goes_on

    def take(self, max_records: int, max_bytes: int) -> list[Record]:
        """The next records, at most about so many; empty after the last one."""
        found: list[Record] = []
        size = 0
        while not self.exhausted and len(found) < max_records and size < max_bytes:
            record = next(self._waiting, None)
            if record is None:
                self.exhausted = True
                break
            found.append(record)
            size += len(record.value or b"")
        return found


def _of_topic(topic: str, record: LogRecord) -> Record:
    return Record(topic, record.partition, record.offset, record.timestamp_ms, record.key, record.value, record.headers)
