"""Topics read once, from a moment to their present end, for what concerns one job.

Holds: reads committed records only; ends (topics that grow while they are read are read as far as they were at the call).
"""

import time
from collections.abc import Iterator, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from trainhouse.client.errors import NotReachableError
from trainhouse.client.kafka.status_feed import METADATA_TIMEOUT_S, QUIET, unreachable
from trainhouse.events.bus import kafka
from trainhouse.events.bus.kafka import at_least_s, consumer, next_records, watermarks
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.settings import KafkaSettings

STALL_S = 30.0
Place = tuple[str, int]


def scan(settings: KafkaSettings, topics: Sequence[str], needle: bytes, since_ms: int | None = None) -> Iterator[Message]:
    """Yields records whose value, key or headers hold `needle`, in no order between partitions. Blocks; raises NotReachableError."""
    reader = consumer(settings, **QUIET)
    try:
        starts, ends = _bounds(reader, topics, since_ms)
        yield from (m for m in _read(reader, starts, ends, settings.bootstrap) if _holds(m, needle))
    except (KafkaException, BusUnavailableError) as error:
        raise NotReachableError(unreachable(settings.bootstrap, error)) from error
    finally:
        reader.close()


def _bounds(reader: Consumer, topics: Sequence[str], since_ms: int | None) -> tuple[dict[Place, int], dict[Place, int]]:
    """Start and end offset of each partition that has records."""
    known = reader.list_topics(timeout=at_least_s(reader, METADATA_TIMEOUT_S)).topics
    starts, ends = {}, {}
    for topic in topics:
        for number in known[topic].partitions if topic in known else ():
            low, high = watermarks(reader, topic, number, METADATA_TIMEOUT_S)
            if high > low:
                starts[topic, number], ends[topic, number] = low, high
    if since_ms is not None and starts:
        asked = [TopicPartition(t, n, since_ms) for t, n in starts]
        for found in reader.offsets_for_times(asked, timeout=at_least_s(reader, METADATA_TIMEOUT_S)):
            place = (found.topic, found.partition)
            if found.offset < 0:  # nothing as new as that
                del starts[place], ends[place]
            else:
                starts[place] = found.offset
    return starts, ends


def _read(reader: Consumer, starts: dict[Place, int], ends: dict[Place, int], bootstrap: str) -> Iterator[Message]:
    reader.assign([TopicPartition(t, n, offset) for (t, n), offset in starts.items()])
    left, received_s, stall_s = set(ends), time.monotonic(), at_least_s(reader, STALL_S)
    while left:
        for message in next_records(reader, 1000, 0.2):
            received_s = time.monotonic()
            place = (message.topic() or "", message.partition() or 0)
            error = message.error()
            if error is None and (message.offset() or 0) < ends[place]:
                yield message
            elif error is None or error.code() == KafkaError._PARTITION_EOF:
                left.discard(place)
        if left and time.monotonic() - received_s > stall_s:
            raise NotReachableError(f"{bootstrap}: {next(iter(left))[0]} sent nothing for {stall_s:.0f} s, though more is there")


def _holds(message: Message, needle: bytes) -> bool:
    if needle in (message.value() or b"") or needle in (message.key() or b""):
        return True
    return any(needle in value for _, value in headers_of(message))


def headers_of(message: Message) -> list[tuple[str, bytes]]:
    """A record's headers, those without a value left out."""
    return [(k, v) for k, v in kafka.headers_of(message) if v is not None]
