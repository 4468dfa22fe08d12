"""The events of one whole topic, up to its end as of the call."""

from collections.abc import Iterator

from confluent_kafka import KafkaException

from trainhouse.client.errors import NotReachableError
from trainhouse.client.kafka.outcomes import event_of
from trainhouse.client.kafka.status_feed import METADATA_TIMEOUT_S, QUIET, unreachable
from trainhouse.events import Event
from trainhouse.events.bus.kafka import at_least_s, consumer, read_to_end
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.settings import KafkaSettings


def topic_events(kafka: KafkaSettings, topic: str) -> Iterator[tuple[bytes, Event]]:
    """Keys and events of a topic, those of a key in their order. Blocks. Raises NotReachableError."""
    reader = consumer(kafka, **QUIET)
    try:
        known = reader.list_topics(topic, timeout=at_least_s(reader, METADATA_TIMEOUT_S)).topics[topic]
        if known.error is not None:
            raise NotReachableError(f"{kafka.bootstrap} has no topic {topic}: {known.error.str()}; `trainhouse up` makes it")
        for message in read_to_end(reader, topic, sorted(known.partitions)):
            event = event_of(message)
            if event is not None:
                yield message.key() or b"", event
    except (KafkaException, BusUnavailableError) as error:
        raise NotReachableError(unreachable(kafka.bootstrap, error)) from error
    finally:
        reader.close()
