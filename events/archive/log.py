"""One topic partition as the archive sees it: its offsets, its committed records, and what may be deleted of it.

Never: joins a group; reads on behind a gap.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from trainhouse.events.archive.segments import LogRecord
from trainhouse.events.bus.kafka import TO_END, consumer, headers_of, read_to_end, watermarks
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.settings import KafkaSettings

# A reader whose next record was trimmed away must not go on with a later one.
NO_GAPS = {"auto.offset.reset": "error"}
TIMEOUT_S = 30.0


class PartitionLog(Protocol):
    """A topic partition. All methods block, and raise BusUnavailableError."""

    def bounds(self) -> tuple[int, int]:
        """The first offset that is still there and the next one to be written."""

    def records(self, start: int) -> Iterator[LogRecord]:
        """Records from `start` to the end as of the call. Raises RecordsGoneError before the first one if the log begins later."""

    def delete_before(self, offset: int) -> int:
        """Deletes what lies before; returns where it begins then."""


class KafkaPartition:
    """The brokers' partition. `reader` is a `journal_reader`; one iteration at a time."""

    def __init__(self, kafka: KafkaSettings, reader: Consumer, topic: str, partition: int) -> None:
        self._kafka = kafka
        self._reader = reader
        self._topic = topic
        self._partition = partition

    def bounds(self) -> tuple[int, int]:
        return watermarks(self._reader, self._topic, self._partition)

    def records(self, start: int) -> Iterator[LogRecord]:
        return map(record_of, read_to_end(self._reader, self._topic, [self._partition], starts={self._partition: start}, whole=True))

    def delete_before(self, offset: int) -> int:
        try:
            admin = AdminClient(self._kafka.client_config(log_level=4))
            asked = admin.delete_records([TopicPartition(self._topic, self._partition, offset)], request_timeout=TIMEOUT_S)
            (done,) = (future.result(2 * TIMEOUT_S) for future in asked.values())
        except (KafkaException, TimeoutError) as error:
            raise BusUnavailableError(f"{self._topic}-{self._partition} was not trimmed to {offset}: {error}") from error
        return int(done.low_watermark)


def journal_reader(kafka: KafkaSettings) -> Consumer:
    """A consumer that reads to ends and fails where records that it wants are gone. The caller closes it."""
    return consumer(kafka, log_level=0, **TO_END, **NO_GAPS)


def record_of(message: Message) -> LogRecord:
    """A message without error as a record."""
    headers: Iterable[tuple[str, bytes | None]] = headers_of(message)
    return LogRecord(
        message.partition() or 0, message.offset() or 0, message.timestamp()[1], message.key(), message.value(), tuple(headers)
    )
