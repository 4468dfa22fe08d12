"""The brokers as a pass over compacted topics needs them.

Holds: one transactional id for all passes, so one that was paused is shut out by the next one that writes; a transaction that nobody ends
is aborted by the brokers within TRANSACTION_S. Never: joins a group, or commits offsets.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from trainhouse.events.archive.log import record_of
from trainhouse.events.archive.segments import LogRecord
from trainhouse.events.bus.kafka import TO_END, consumer, partitions_of, producer_config, read_to_end
from trainhouse.events.model.errors import BusUnavailableError, EventError
from trainhouse.events.security.grants import TOMBSTONES
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.project_topics import STATUS_PREFIX, rows_of

TRANSACTION_S: Final = 60
ANSWER_S: Final = 30.0
_SHUT_OUT: Final = (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)


class SupersededPassError(EventError):
    """Another pass began meanwhile, which does the same."""


class KafkaTopics:
    """Reads and writes, for one pass. Raises BusUnavailableError, SupersededPassError."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._reader = consumer(settings, **TO_END)
        self._everything = consumer(settings, **TO_END, **{"isolation.level": "read_uncommitted"})
        self._producer = Producer(
            producer_config(settings, **{"transactional.id": TOMBSTONES, "transaction.timeout.ms": TRANSACTION_S * 1000, "log_level": 2})
        )
        self._landed: dict[bytes, int] = {}
        self._refused: list[KafkaError] = []

    def status_topics(self) -> list[str]:
        try:
            names = self._reader.list_topics(timeout=ANSWER_S).topics
        except KafkaException as error:
            raise BusUnavailableError(f"the brokers at {self._settings.bootstrap} did not list their topics: {error}") from error
        return [row.name for row in rows_of(names) if row.name.startswith(STATUS_PREFIX)]

    def partitions(self, topic: str) -> list[int]:
        return partitions_of(self._reader, topic, ANSWER_S)

    def records(self, topic: str, partition: int, start: int = 0) -> Iterator[LogRecord]:
        return map(record_of, read_to_end(self._reader, topic, [partition], ANSWER_S, {partition: start}))

    def appended_since(self, topic: str, partition: int, start: int, end: int) -> Iterator[LogRecord]:
        if start >= end:
            return
        for message in read_to_end(self._everything, topic, [partition], ANSWER_S, {partition: start}):
            if (message.offset() or 0) >= end:
                return
            yield record_of(message)

    def shut_out_others(self) -> None:
        self._call(self._producer.init_transactions, ANSWER_S)

    def begin(self, topic: str, partition: int, keys: Sequence[bytes]) -> Mapping[bytes, int]:
        self._landed, self._refused = {}, []
        self._call(self._producer.begin_transaction)
        for key in keys:
            self._producer.produce(topic, key=key, value=None, partition=partition, on_delivery=self._delivered)
            self._producer.poll(0)
        left = self._producer.flush(ANSWER_S)
        if self._refused:
            self._raise(self._refused[0])
        if left or len(self._landed) < len(keys):
            raise BusUnavailableError(f"{topic}-{partition}: tombstones are not acked by {self._settings.bootstrap}")
        return self._landed

    def commit(self) -> None:
        self._call(self._producer.commit_transaction, ANSWER_S)

    def abort(self) -> None:
        self._call(self._producer.abort_transaction, ANSWER_S)

    def close(self) -> None:
        """Leaves; what is open is aborted by the brokers."""
        self._reader.close()
        self._everything.close()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._refused.append(error)
        else:
            self._landed[message.key() or b""] = message.offset() or 0

    def _call(self, function: Any, *arguments: float) -> None:
        try:
            function(*arguments)
        except KafkaException as error:
            self._raise(error.args[0])

    def _raise(self, error: KafkaError) -> None:
        if error.code() in _SHUT_OUT:
            raise SupersededPassError("another run of it began meanwhile and does the same")
        raise BusUnavailableError(f"tombstones were not written at {self._settings.bootstrap}: {error.str()}")
