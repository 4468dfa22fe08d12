"""Reads the repairs of journals from their topic. Blocks on the brokers. Never: writes."""

import threading

import structlog
from confluent_kafka import KafkaException

from trainhouse.events.bus.kafka import TO_END, consumer, partitions_of, read_to_end
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.repairs import NO_REPAIRS, Repairs, emptied_by
from trainhouse.events.wire.topics import JOURNAL_REPAIRS

ANSWER_S = 30.0
RETRY_S = 1.0
log = structlog.get_logger(__name__)


def emptied_records(kafka: KafkaSettings, journal: str, group: str = "trainhouse-reader") -> Repairs:
    """A journal's records that count as empty; none on brokers from before there were repairs. Raises BusUnavailableError."""
    reader = consumer(kafka, group=group, log_level=0, **TO_END)
    try:
        if JOURNAL_REPAIRS not in reader.list_topics(timeout=ANSWER_S).topics:
            return NO_REPAIRS
        found = read_to_end(reader, JOURNAL_REPAIRS, partitions_of(reader, JOURNAL_REPAIRS, ANSWER_S), ANSWER_S)
        return emptied_by([message.value() for message in found], journal)
    except KafkaException as error:
        raise BusUnavailableError(f"the brokers at {kafka.bootstrap} do not answer: {error}") from error
    finally:
        reader.close()


def emptied_records_patiently(
    kafka: KafkaSettings, journal: str, stop: threading.Event, group: str = "trainhouse-reader"
) -> frozenset[str]:
    """The same, waiting while the brokers are away; none where `stop` was set before. Blocks."""
    while not stop.is_set():
        try:
            return emptied_records(kafka, journal, group)
        except BusUnavailableError as error:
            log.warning("repairs of the journal are not read now", error=str(error))
            stop.wait(RETRY_S)
    return frozenset()
