"""Reads and writes the recorded partition counts, and holds the brokers and the settings against them. Blocks on the brokers.

Holds: what is not recorded yet is recorded as the brokers have it, once; records are in one partition, so all see the same order.
Never: changes a topic.
"""

import threading
from collections.abc import Callable, Iterable, Mapping

import structlog
from confluent_kafka import KafkaException

from trainhouse.events.bus.kafka import ONE_SHOT, TO_END, EventProducer, consumer, read_to_end
from trainhouse.events.model.errors import BusUnavailableError, TopicsDifferError
from trainhouse.events.model.topic_record import TopicRecorded
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.envelope import envelope_of
from trainhouse.events.wire.partition_counts import SCHEDULING, Topology, topology_of, why_refused
from trainhouse.events.wire.project_topics import rows_of
from trainhouse.events.wire.topics import TOPICS, TOPOLOGY

ANSWER_S = 30.0
RETRY_S = 1.0
LOOK_S = 60.0
SOURCE = "trainhouse/topics"
log = structlog.get_logger(__name__)


def read_topology(kafka: KafkaSettings, group: str = "trainhouse-reader", timeout_s: float = ANSWER_S) -> tuple[Topology, dict[str, int]]:
    """Reads the recorded topology, and the counts of our topics that the brokers let this process see. Raises BusUnavailableError."""
    reader = consumer(kafka, group=group, log_level=0, **TO_END)
    try:
        listed = reader.list_topics(timeout=timeout_s).topics
        found = {name: len(topic.partitions) for name, topic in listed.items() if topic.error is None and topic.partitions}
        ours = {row.name for row in (*TOPICS, *rows_of(found))}
        counts = {name: count for name, count in found.items() if name in ours}
        if TOPOLOGY not in counts:
            return Topology(), counts
        return topology_of(message.value() for message in read_to_end(reader, TOPOLOGY, [0], timeout_s)), counts
    except KafkaException as error:
        raise BusUnavailableError(f"the brokers at {kafka.bootstrap} do not answer: {error.args[0].str()}") from error
    finally:
        reader.close()


def record(kafka: KafkaSettings, counts: Mapping[str, int], now_ms: int, was: Mapping[str, int] | None = None) -> None:
    """Records these counts. Returns when the brokers have them. Raises BusUnavailableError."""
    producer = EventProducer(kafka, **ONE_SHOT, log_level=0)
    for topic in sorted(counts):
        event = TopicRecorded(topic=topic, partitions=counts[topic], was=(was or {}).get(topic, 0), at_ms=now_ms)
        event_id = f"{topic}:partitions:{event.was}:{event.partitions}"
        producer.send(TOPOLOGY, envelope_of(event, id=event_id, source=SOURCE, now_ms=now_ms))
    producer.flush()


def setting_of(kafka: KafkaSettings) -> int | None:
    """The count in the settings; None where they do not say."""
    return kafka.partitions if "partitions" in kafka.model_fields_set else None


def checked_topology(kafka: KafkaSettings, group: str = "trainhouse-reader", timeout_s: float = ANSWER_S) -> Topology:
    """Returns the recorded topology, or the brokers' counts if none is recorded. Raises TopicsDifferError, BusUnavailableError."""
    topology, found = read_topology(kafka, group, timeout_s)
    refusal = why_refused(topology, found, setting_of(kafka))
    if refusal:
        raise TopicsDifferError(refusal)
    if not topology.counts:
        log.warning("no partition counts are recorded on these brokers yet; `trainhouse up` or `trainhouse topics grow` records them")
    return topology.adopting(found)


def checked_patiently(kafka: KafkaSettings, group: str, stop: threading.Event) -> Topology | None:
    """The same, waiting while the brokers are away; None where `stop` was set before. Raises TopicsDifferError."""
    while not stop.is_set():
        try:
            return checked_topology(kafka, group)
        except BusUnavailableError as error:
            log.warning("partition counts are not known yet", error=str(error))
            stop.wait(RETRY_S)
    return None


def watch(kafka: KafkaSettings, group: str, stop: threading.Event, refuse: Callable[[str], None], every_s: float = LOOK_S) -> None:
    """Looks again and again, also while the brokers are away, until `stop`: calls `refuse` when records by key may be misplaced.

    Partitions that were added to the scheduler's topics alone misplace nothing: they are unused until they are recorded, as a line says.
    """
    while not stop.is_set():
        try:
            topology, found = read_topology(kafka, group)
        except BusUnavailableError:
            stop.wait(RETRY_S)
            continue
        keyed = {name: count for name, count in found.items() if name not in SCHEDULING}
        refusal = why_refused(topology, keyed, setting_of(kafka))
        if refusal:
            refuse(refusal)
            return
        if added := why_refused(topology, found):
            log.error("partitions were added by other means", problem=added)
        stop.wait(every_s)


def unrecorded(topology: Topology, found: Mapping[str, int], names: Iterable[str]) -> dict[str, int]:
    """Counts of these topics that are to be recorded as the brokers have them."""
    return {name: found[name] for name in names if name in found and name not in topology.counts}
