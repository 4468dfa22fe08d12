"""Sender of an operator's event, for commands that have a topic of their own.

Holds: it is acked when the call returns; its key is the caller's: on a compacted topic a record replaces an older one of its key. A topic
that is not there is an error at once; a producer of itself waits half a minute for one.
"""

from confluent_kafka.admin import AdminClient

from trainhouse.client.errors import NotReachableError
from trainhouse.events import Event, envelope_of
from trainhouse.events.bus.kafka import ONE_SHOT, EventProducer, partitions_of
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.runtime.clock import wall_ms
from trainhouse.events.settings import KafkaSettings


def send_event(kafka: KafkaSettings, topic: str, event: Event, *, event_id: str, source: str, key: bytes, at_ms: int | None = None) -> None:
    """Sends it, as of now or of `at_ms`. Raises NotReachableError. Blocks."""
    try:
        partitions_of(AdminClient(kafka.client_config(log_level=0)), topic)
    except BusUnavailableError as error:
        raise NotReachableError(f"nothing was written to Kafka at {kafka.bootstrap}: {error}") from error
    producer = EventProducer(kafka, **ONE_SHOT, log_level=0)
    try:
        producer.send(topic, envelope_of(event, id=event_id, source=source, now_ms=wall_ms() if at_ms is None else at_ms), key=key.decode())
        producer.flush()
    except BusUnavailableError as error:
        raise NotReachableError(f"Kafka at {kafka.bootstrap} does not answer: {error}") from error
