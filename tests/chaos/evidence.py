"""All that the judge looks at: every record of the topics, as plain events; the journal's bytes; the entries of the commit chains.

Never: a projection or a journal's folded state; those are what is judged.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

from trainhouse.checkpointing.objects import ObjectStore
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


@dataclass(frozen=True)
class Stored:
    """What the object store has: chains by job and number as they are, and the hashes of all chunks."""

    chains: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)
    chunks: frozenset[str] = frozenset()


@dataclass
class Evidence:
    """The records of each topic, in the order of their partitions; the scheduler's journal as bytes, by partition."""

    records: dict[str, list[Record]] = field(default_factory=lambda: defaultdict(list))
    journal: dict[int, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    stored: Stored = field(default_factory=Stored)

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
                when_ms = 0 if kind == TIMESTAMP_NOT_AVAILABLE else at_ms
                evidence.records[topic].append(Record(topic, message.partition() or 0, message.offset() or 0, when_ms, envelope))
        for message in read_to_end(reader, topics.DECISIONS, range(partitions)):
            evidence.journal[message.partition() or 0].append(message.value() or b"")
    finally:
        reader.close()
    return evidence


def stored(objects: ObjectStore) -> Stored:
    """Every entry of every job's chain, and what chunks there are. Blocks for seconds."""
    chains: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
    chunks = {found.key.rpartition("/")[2] for found in objects.list("chunks/")}
    for found in objects.list("jobs/"):
        _, job_id, kind, *rest = found.key.split("/")
        if kind == "chunks":
            chunks.add(rest[-1])
        if kind == "commits" and rest:
            chains[job_id][int(rest[-1])] = orjson.loads(objects.get(found.key))["entry"]
    return Stored(dict(chains), frozenset(chunks))
