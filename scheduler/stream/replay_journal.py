"""Replay's shell: reads a journal from Kafka, from its first record to its end, and verifies it.

Holds: reads only. Never: joins a group.
"""

from collections.abc import Iterator
from typing import Any, TypeVar

from trainhouse.events.journal import SnapshotPointer
from trainhouse.events.kafka import TO_END, consumer, read_to_end
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.topics import DECISIONS, DIRECTORY, SNAPSHOTS
from trainhouse.scheduler.core.machine import Machine
from trainhouse.scheduler.replay import LogEntry, ReplayReport, verify

S = TypeVar("S")


def machines(kafka: KafkaSettings) -> dict[str, Machine[Any]]:
    """The machine of each journal, by topic."""
    from trainhouse.scheduler.core.directory import DirectoryMachine
    from trainhouse.scheduler.core.schedule import ScheduleMachine

    return {DIRECTORY: DirectoryMachine(control_partitions=kafka.partitions), DECISIONS: ScheduleMachine()}


def verify_journal(kafka: KafkaSettings, journal: str, machine: Machine[S]) -> ReplayReport:
    """Verifies one journal with one machine; blocks until it is read. Raises BusUnavailable."""
    reader = consumer(kafka, **TO_END)
    try:
        snapshots = dict(_snapshots(kafka, journal))
        partitions = sorted(reader.list_topics(journal, timeout=30).topics[journal].partitions)
        messages = read_to_end(reader, journal, partitions)
        return verify((LogEntry(m.partition() or 0, m.offset() or 0, m.value() or b"") for m in messages), machine, snapshots)
    finally:
        reader.close()


def _snapshots(kafka: KafkaSettings, journal: str) -> Iterator[tuple[tuple[int, int], str]]:
    reader = consumer(kafka, **TO_END)
    try:
        for message in read_to_end(reader, SNAPSHOTS, [0]):
            pointer = SnapshotPointer.decode(message.value() or b"")
            if pointer.journal == journal:
                yield (pointer.partition, pointer.seq), pointer.state_sha256
    finally:
        reader.close()
