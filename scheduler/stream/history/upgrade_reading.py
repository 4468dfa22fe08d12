"""Reads how far an update is: announcements, and the newest record of each partition of the journals. Blocks on the brokers.

Never: joins a group; writes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException

from trainhouse.events.bus.kafka import TO_END, consumer, partitions_of, read_to_end, watermarks
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.journal import InvalidRecordError, record_head
from trainhouse.events.wire.running_programs import Announced, running
from trainhouse.events.wire.topics import UPGRADES
from trainhouse.scheduler.core.protocol.machine import Machine
from trainhouse.scheduler.stream.history.journal_replay import newest_first
from trainhouse.scheduler.upgrades import JournalUpgrade, PartitionLevel


def upgrades_of(kafka: KafkaSettings, machines: Mapping[str, Machine[Any]]) -> list[JournalUpgrade]:
    """Every journal, by topic. Raises BusUnavailableError."""
    reader = consumer(kafka, log_level=0, **TO_END)
    try:
        announced = _announced(reader)
        levels = {journal: _levels(kafka, reader, journal) for journal in machines}
    except KafkaException as error:
        raise BusUnavailableError(f"the brokers at {kafka.bootstrap} do not answer: {error}") from error
    finally:
        reader.close()
    # One clock for all: the brokers'.
    now_ms = max([a.appended_ms for a in announced] + [p.appended_ms for found in levels.values() for p in found], default=0)
    programs = running(announced, now_ms)
    return [
        JournalUpgrade(journal, machine.fold_version, levels[journal], [p for p in programs if p.journal == journal], now_ms)
        for journal, machine in machines.items()
    ]


def _announced(reader: Consumer) -> Sequence[Announced]:
    """None on brokers from before there were levels."""
    if UPGRADES not in reader.list_topics(timeout=30.0).topics:
        return []
    found = read_to_end(reader, UPGRADES, partitions_of(reader, UPGRADES))
    return [Announced(m.key(), m.value(), m.timestamp()[1]) for m in found]


def _levels(kafka: KafkaSettings, reader: Consumer, journal: str) -> list[PartitionLevel]:
    """From the newest record of each partition; where all are trimmed, from the newest snapshot."""
    found = {partition: PartitionLevel(partition, 0) for partition in partitions_of(reader, journal)}
    for pointer in reversed(newest_first(kafka, journal)):
        found[pointer.partition] = PartitionLevel(pointer.partition, pointer.fold_version)
    starts = {partition: max(0, watermarks(reader, journal, partition)[1] - 1) for partition in found}
    for message in read_to_end(reader, journal, sorted(found), starts=starts):
        partition = message.partition() or 0
        try:
            head = record_head(message.value())
        except InvalidRecordError:
            continue
        level = max(found[partition].level, int(head.get("fold_version", 0)))
        found[partition] = PartitionLevel(partition, level, str(head.get("owner", "")), message.timestamp()[1])
    return [found[partition] for partition in sorted(found)]
