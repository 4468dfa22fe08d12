"""Outcome of a request: the topics that answer it, read from the moment before it was sent.

Holds: an answer that comes at any time after the reader was made is seen; reads committed records only.
Never: sends; joins a consumer group.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar

from confluent_kafka import KafkaException, Message, TopicPartition

from trainhouse.client.errors import NoReplyError, NotReachableError
from trainhouse.client.kafka.status_feed import METADATA_TIMEOUT_S, SILENT, unreachable
from trainhouse.events import Event, InvalidEvent, decode
from trainhouse.events.bus.kafka import at_least_s, consumer, headers_of, next_records, watermarks
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.settings import KafkaSettings

T = TypeVar("T")
Match = Callable[[Message], T | None]
POLL_S = 0.2
NONE_EARLIER: Mapping[str, int] = {}


class Outcomes:
    """Reader of new records on some topics. A context manager; not for two threads. Raises NotReachableError.

    `earlier`: how many records before the end of each partition of a topic are read as well.
    """

    def __init__(self, settings: KafkaSettings, topics: Sequence[str], earlier: Mapping[str, int] = NONE_EARLIER) -> None:
        self._settings = settings
        self._reader = consumer(settings, **SILENT)
        try:
            self._reader.assign([place for topic in topics for place in self._starts(topic, earlier.get(topic, 0))])
        except (KafkaException, BusUnavailableError) as error:
            self._reader.close()
            raise NotReachableError(unreachable(settings.bootstrap, error)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._reader.close()

    def first(self, match: "Match[T]", timeout_s: float, asked: str) -> T:
        """The first answer that `match(message)` takes. Blocks. Raises NoReplyError, which says what was `asked`."""
        timeout_s = at_least_s(self._reader, timeout_s)
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for message in next_records(self._reader, 500, POLL_S):
                if message.error() is not None or message.value() is None:
                    continue
                found = match(message)
                if found is not None:
                    return found
        raise NoReplyError(
            f"{asked}: no answer within {timeout_s:g} s. It was sent, and counts as soon as intake and the scheduler get to it: "
            "are they up? See `trainhouse ps`"
        )

    def _starts(self, topic: str, earlier: int) -> list[TopicPartition]:
        known = self._reader.list_topics(topic, timeout=at_least_s(self._reader, METADATA_TIMEOUT_S)).topics[topic]
        if known.error is not None:
            raise NotReachableError(f"{self._settings.bootstrap} has no topic {topic}: {known.error.str()}; `trainhouse up` makes it")
        bounds = {n: watermarks(self._reader, topic, n, METADATA_TIMEOUT_S) for n in sorted(known.partitions)}
        return [TopicPartition(topic, n, max(low, high - earlier)) for n, (low, high) in bounds.items()]


def event_of(message: Message) -> Event | None:
    """The event of a record; None of one that says nothing to this program (a newer writer's, a tombstone)."""
    try:
        return decode(message.value(), headers_of(message)).event
    except InvalidEvent:
        return None


def key_of(message: Message) -> str:
    """The record's key as text."""
    return (message.key() or b"").decode("utf-8", "replace")
