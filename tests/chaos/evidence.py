"""All that the judge looks at: every record of the topics, as plain events; the journal's bytes; the entries of the commit chains.

Never: a projection or a journal's folded state; those are what is judged.
"""

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from tests.support.extremes import SOURCE
from trainhouse.checkpointing.stores.object_store import ObjectStore
from trainhouse.events import DeadLetter, Envelope, InvalidEvent, decode
from trainhouse.events.bus.kafka import TO_END, consumer, headers_of, read_to_end
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire import topics

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


Place = tuple[str, int, int]


@dataclass
class Evidence:
    """The records of each topic, in the order of their partitions; the scheduler's journal as bytes, by partition.

    `foreign`: where records stand that cannot be read, or that an outsider sent. `letters`: which records are dead letters. `admitted`: the
    ids of events that intake passed on. `decided`: the offset of the last record with inputs of each journal's partition.
    """

    records: dict[str, list[Record]] = field(default_factory=lambda: defaultdict(list))
    journal: dict[int, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    stored: Stored = field(default_factory=Stored)
    foreign: list[Place] = field(default_factory=list)
    letters: set[Place] = field(default_factory=set)
    admitted: set[str] = field(default_factory=set)
    decided: dict[tuple[str, int], int] = field(default_factory=dict)

    def offsets(self, topic: str, partition: int) -> list[int]:
        """Of all records of a partition, foreign ones too."""
        foreign = [offset for name, of, offset in self.foreign if (name, of) == (topic, partition)]
        return sorted([*foreign, *(r.offset for r in self.records[topic] if r.partition == partition)])

    def of(self, topic: str, *types: type) -> Iterable[Record]:
        return (r for r in self.records[topic] if not types or isinstance(r.envelope.event, types))


def gather(settings: KafkaSettings, partitions: int) -> Evidence:
    """Reads every topic to its end. Blocks for seconds."""
    evidence = Evidence()
    reader = consumer(settings, group="judge", log_level=0, **TO_END)
    try:
        for topic in READ:
            for message in read_to_end(reader, topic, range(partitions)):
                _file(evidence, topic, message)
        for message in read_to_end(reader, topics.ADMISSION, range(partitions)):
            evidence.admitted.add(_id(message))
        for message in read_to_end(reader, topics.DEAD_LETTERS, range(partitions)):
            with suppress(KeyError, ValueError):  # an outsider writes there too
                letter = DeadLetter.of_headers([(name, value or b"") for name, value in headers_of(message)])
                evidence.letters.add((letter.topic, letter.partition, letter.offset))
        for topic in (topics.DECISIONS, topics.DIRECTORY):
            for message in read_to_end(reader, topic, range(partitions)):
                value, partition = message.value() or b"", message.partition() or 0
                if topic == topics.DECISIONS:
                    evidence.journal[partition].append(value)
                if orjson.loads(value)["inputs"]:
                    evidence.decided[topic, partition] = message.offset() or 0
    finally:
        reader.close()
    return evidence


def _file(evidence: Evidence, topic: str, message: Message) -> None:
    kind, at_ms = message.timestamp()
    place = topic, message.partition() or 0, message.offset() or 0
    try:
        envelope = decode(message.value(), headers_of(message))
    except InvalidEvent:
        evidence.foreign.append(place)
        return
    if envelope.source == SOURCE:
        evidence.foreign.append(place)
    else:
        evidence.records[topic].append(Record(*place, 0 if kind == TIMESTAMP_NOT_AVAILABLE else at_ms, envelope))


def _id(message: Message) -> str:
    try:
        return str(decode(message.value(), headers_of(message)).id)
    except InvalidEvent:
        return ""


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
