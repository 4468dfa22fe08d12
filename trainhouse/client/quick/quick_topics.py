"""Topics of the deployment, read to their ends without the settings models and our own consumer.

Holds: what is not plainly readable (brokers that do not answer in time, a batch that stops a reader, a record in another form) raises
NotQuickError: the whole client then reads, and has the words for it. Reads committed records only.
Never: joins a group, commits or creates anything.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from trainhouse.client.quick.quick_sql import knows_kafka, section_of

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

    from trainhouse.events import Event

ANSWER_S: Final = 10.0
BATCH: Final = 1000
FROM_START: Final = -2
"""librdkafka's offset of a partition's beginning."""
# By the names of the settings, which `KafkaSettings.client_config` translates alike.
NAMES: Final = {
    "bootstrap": "bootstrap.servers",
    "security_protocol": "security.protocol",
    "sasl_mechanism": "sasl.mechanism",
    "sasl_username": "sasl.username",
    "sasl_password": "sasl.password",  # nosec B105  # pragma: allowlist secret
    "ssl_ca_location": "ssl.ca.location",
    "ssl_certificate_location": "ssl.certificate.location",
    "ssl_key_location": "ssl.key.location",
    "ssl_key_password": "ssl.key.password",  # nosec B105  # pragma: allowlist secret
}
PLAINTEXT: Final = {"security.protocol": "PLAINTEXT"}
# As `events.bus.kafka.consumer` with TO_END, for a reader that ends with its command.
READER: Final[Mapping[str, Any]] = {
    "group.id": "trainhouse-reader",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "fetch.wait.max.ms": 20,
    "fetch.message.max.bytes": 8 * 1024 * 1024,
    "receive.message.max.bytes": 64 * 1024 * 1024,
    "log_level": 0,
}


class NotQuickError(Exception):
    """The whole client has to read this."""


@dataclass(frozen=True)
class QuickTopics:
    """Reader of whole topics. `config`: librdkafka's, for the brokers of the settings. `partitions`: of topics, as settings have it."""

    config: Mapping[str, Any] = field(repr=False)
    partitions: int | None = None

    def read(self, topic: str, *types: str) -> list[tuple[bytes, Any]]:
        """Keys and events of these types, each without its model where it is plain; None where a key was deleted. An event is as its model
        has it, those of a key are in their order. Blocks. Raises NotQuickError."""
        records = [(message.key() or b"", message.value()) for message in self.messages(topic)]
        read = [(key, value, None if value is None else _event(topic, value, types)) for key, value in records]
        return [(key, event) for key, value, event in read if event is not None or value is None]

    def newest_of(self, topic: str, event_type: str) -> list[Any]:
        """The newest event of each key that is of one type, as `read` has it, of keys that were not deleted since. Blocks. Raises
        NotQuickError."""
        found: dict[bytes, Any] = {}
        for key, event in self.read(topic, event_type):
            found.pop(key, None) if event is None else found.update({key: event})
        return list(found.values())

    def has_key(self, topic: str, key: str) -> bool:
        """Whether a topic has a record of a key that was not deleted. Blocks. Raises NotQuickError."""
        return {m.key(): m.value() is not None for m in self.messages(topic)}.get(key.encode(), False)

    def lacks(self, topic: str, name: str) -> bool:
        """Whether no record's key or value has a name. Blocks. False as well where that cannot be read."""
        needle = name.encode()
        try:
            return bool(needle) and not any(needle in (m.key() or b"") or needle in (m.value() or b"") for m in self.messages(topic))
        except NotQuickError:
            return False

    def counts(self) -> dict[str, int]:
        """Partitions of each topic that this account may see. Blocks. Raises NotQuickError."""
        with self.reader() as reader:
            return reader.counts()

    def reader(self) -> TopicReader:
        """A reader of several topics, one after the other, by one consumer."""
        return TopicReader(self.config)

    def later(self, topic: str, key: str, place: tuple[int, int], held: int) -> Mapping[str, Any] | None:
        """The newest record of a key behind that at a place, a partition and an offset: an event in JSON, without its model. `held`: an
        offset of that partition from which to read on. None where there is none. Blocks. Raises NotQuickError."""
        import orjson

        partition, offset = place
        wanted, value = key.encode(), None
        for message in self.messages(topic, {partition: held}):
            if message.key() == wanted and (message.offset() or 0) > offset:
                value = message.value() or b""
        if value is None:
            return None
        try:
            found = orjson.loads(value)
        except orjson.JSONDecodeError as error:
            raise NotQuickError(f"topic {topic}: {error}") from error
        if not isinstance(found, dict):
            raise NotQuickError(f"topic {topic}: a record is no event")
        return found

    def messages(self, topic: str, since: Mapping[int, int] | None = None) -> Iterator[Message]:
        """Yields the records of a topic up to its end, those of a partition in their order; of the partitions of `since` alone from these
        offsets, where it is given. Blocks. Raises NotQuickError."""
        with self.reader() as reader:
            yield from reader.messages(topic, since)


def _event(topic: str, value: bytes, types: Collection[str]) -> Any:
    """A record's event; one that is not plain by its model, with which all models are loaded. None: of another type. Raises
    NotQuickError."""
    from trainhouse.client.quick.plain_events import NotPlainError, plain_record

    try:
        return plain_record(value, types)
    except NotPlainError:
        event = _decoded(topic, value)
        return event if event.event_type in types else None


def _decoded(topic: str, value: bytes) -> Event:
    from trainhouse.events.model.errors import InvalidEvent
    from trainhouse.events.wire.codec import decode_parts, split

    try:
        attributes, data = split(value)
        if "specversion" not in attributes:
            raise NotQuickError(f"topic {topic}: a record is not in the structured mode")
        return decode_parts(attributes, data).event
    except InvalidEvent as error:
        raise NotQuickError(str(error)) from error


class TopicReader:
    """A consumer that reads one topic after the other."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self._consumer: Consumer | None = None

    def __enter__(self) -> TopicReader:
        from confluent_kafka import Consumer, KafkaException

        try:
            self._consumer = Consumer({**self._config, **READER})
        except (KafkaException, ValueError) as error:
            raise NotQuickError(str(error)) from error
        return self

    def __exit__(self, *_: object) -> None:
        if self._consumer is not None:
            self._consumer.close()

    def counts(self) -> dict[str, int]:
        """As that of QuickTopics."""
        from confluent_kafka import KafkaException

        assert self._consumer is not None
        try:
            listed = self._consumer.list_topics(timeout=ANSWER_S).topics
        except KafkaException as error:
            raise NotQuickError(str(error)) from error
        return {name: len(topic.partitions) for name, topic in listed.items() if topic.error is None and topic.partitions}

    def newest_records(self, topic: str) -> dict[int, Message | None]:
        """The newest record of each partition; None where it never had one. Blocks. Raises NotQuickError, also where it was deleted."""
        ends = self._ends(topic)
        found: dict[int, Message | None] = dict.fromkeys(ends)
        for message in self.messages(topic, {number: end - 1 for number, end in ends.items() if end}):
            found[message.partition() or 0] = message
        if any(found[number] is None for number, end in ends.items() if end):
            raise NotQuickError(f"topic {topic}: its newest record is gone")
        return found

    def _ends(self, topic: str) -> dict[int, int]:
        """The offset behind the newest record of each partition."""
        from confluent_kafka import KafkaException, TopicPartition

        assert self._consumer is not None
        try:
            each = {number: TopicPartition(topic, number) for number in self._partitions(topic)}
            return {number: self._consumer.get_watermark_offsets(place, timeout=ANSWER_S)[1] for number, place in sorted(each.items())}
        except (KafkaException, TypeError) as error:
            raise NotQuickError(str(error)) from error

    def _partitions(self, topic: str) -> list[int]:
        assert self._consumer is not None
        known = self._consumer.list_topics(topic, timeout=ANSWER_S).topics[topic]
        if known.error is not None or not known.partitions:
            raise NotQuickError(f"topic {topic}: {known.error}")
        return list(known.partitions)

    def messages(self, topic: str, since: Mapping[int, int] | None = None) -> Iterator[Message]:
        """As those of QuickTopics."""
        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        reader = self._consumer
        assert reader is not None
        try:
            begin = dict.fromkeys(self._partitions(topic), FROM_START) if since is None else since
            left, silent_since_s = set(begin), time.monotonic()
            reader.assign([TopicPartition(topic, number, offset) for number, offset in begin.items()])
            while left:
                for message in reader.consume(BATCH, 0.2):
                    silent_since_s = time.monotonic()
                    error = message.error()
                    if error is None:
                        yield message
                    elif error.code() == KafkaError._PARTITION_EOF:
                        left.discard(message.partition())
                    else:
                        raise NotQuickError(f"topic {topic}: {error.str()}")
                if left and time.monotonic() > silent_since_s + ANSWER_S:
                    raise NotQuickError(f"topic {topic}: nothing came for {ANSWER_S:.0f} s")
        except KafkaException as error:
            raise NotQuickError(str(error)) from error


def topics_of(file: Mapping[str, Any], environment: Mapping[str, str]) -> QuickTopics | None:
    """The brokers of a settings file and an environment; None where the settings models have to decide. Pure."""
    if not knows_kafka(file, environment):
        return None
    known = section_of(file, environment, "kafka")
    chosen = {NAMES[name]: value for name, value in known.items() if name in NAMES}
    if not all(isinstance(value, str) and value for value in chosen.values()):
        return None
    partitions = known.get("partitions")
    if partitions is not None and not (type(partitions) is int or (isinstance(partitions, str) and partitions.isdecimal())):
        return None
    return QuickTopics(PLAINTEXT | chosen, None if partitions is None else int(partitions))
