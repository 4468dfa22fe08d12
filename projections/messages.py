"""Messages of a consumer: records, and errors of the brokers about a topic.

Holds: what passes by itself (a broker that is away, a partition's end) is no trouble; of what does not, a person hears the topic and the
way out.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog
from confluent_kafka import KafkaError, Message

from trainhouse.events.model.errors import BusUnavailableError

_PASSING = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._DESTROY_BROKER,
        KafkaError._PARTITION_EOF,
        KafkaError._TIMED_OUT,
    }
)
_NOT_FOR_US = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.TOPIC_AUTHORIZATION_FAILED})

log = structlog.get_logger(__name__)


def good_messages(messages: Sequence[Message]) -> list[Message]:
    """Messages without errors. Raises BusUnavailableError on an error that does not pass by itself."""
    for message in messages:
        error = _lasting(message)
        if error is not None:
            raise BusUnavailableError(f"reading {message.topic()}: {_error_text(error)}")
    return [m for m in messages if m.error() is None]


class TopicTroubles:
    """For topics that are followed together: says once what is wrong with one, and once that it is read again; the others go on."""

    def __init__(self) -> None:
        self._partitions: dict[str, set[int]] = {}

    def good(self, messages: Sequence[Message]) -> list[Message]:
        """Messages without errors."""
        for message in messages:
            topic, partition, error = message.topic() or "", message.partition() or 0, _lasting(message)
            if error is not None:
                self._say(topic, partition, error)
            elif message.error() is None:
                self._is_well(topic, partition)
        return [m for m in messages if m.error() is None]

    def _say(self, topic: str, partition: int, error: KafkaError) -> None:
        if topic not in self._partitions:
            log.error("a topic cannot be read; it is tried again, and the others go on", topic=topic, error=_error_text(error))
        self._partitions.setdefault(topic, set()).add(partition)

    def _is_well(self, topic: str, partition: int) -> None:
        ill = self._partitions.get(topic)
        if ill is None:
            return
        ill.discard(partition)
        if not ill:
            del self._partitions[topic]
            log.info("a topic is read again", topic=topic)


def _lasting(message: Message) -> KafkaError | None:
    error = message.error()
    return None if error is None or error.retriable() or error.code() in _PASSING else error


def _error_text(error: KafkaError) -> str:
    mend = "; create the topics (`trainhouse up` does), or let this user read them" if error.code() in _NOT_FOR_US else ""
    return f"{error.str()}{mend}"
