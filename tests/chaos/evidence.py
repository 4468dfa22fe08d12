"""All that the judge looks at: every record of the topics, as plain events.

Never: a projection or a journal state; those are what is judged.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

from trainhouse.events import Envelope, decode, topics
from trainhouse.events.kafka import TO_END, consumer, read_to_end
from trainhouse.events.settings import KafkaSettings

READ = (topics.JOBS, topics.CONTROL, topics.ALLOCATIONS, topics.STATUS, topics.METRICS, topics.LOGS, topics.CHECKPOINTS)


@dataclass(frozen=True)
class Record:
    """One record: where it stands, when the broker took it, and what it says."""

    topic: str
    partition: int
    offset: int
    at_ms: int
    envelope: Envelope


@dataclass
class Evidence:
    """The records of each topic, in the order of their partitions."""

    records: dict[str, list[Record]] = field(default_factory=lambda: defaultdict(list))

    def of(self, topic: str, *types: type) -> Iterable[Record]:
        return (r for r in self.records[topic] if not types or isinstance(r.envelope.event, types))


def gather(settings: KafkaSettings, partitions: int) -> Evidence:
    """Reads every topic to its end. Blocks for seconds."""
    evidence = Evidence()
    reader = consumer(settings, group="judge", log_level=0, **TO_END)
    try:
        for topic in READ:
            for message in read_to_end(reader, topic, range(partitions)):
                kind, at_ms = message.timestamp()
                envelope = decode(message.value(), message.headers())
                evidence.records[topic].append(
                    Record(
                        topic, message.partition() or 0, message.offset() or 0, 0 if kind == TIMESTAMP_NOT_AVAILABLE else at_ms, envelope
                    )
                )
    finally:
        reader.close()
    return evidence
