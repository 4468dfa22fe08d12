"""From where on the topics of the journals are needed: what lies before may be trimmed once it is archived.

A start reads the journal from the record that its newest snapshot includes last, and the input from the snapshot's cursor on. So does a
stand-in that takes over, and the explanation of the present.
Holds: a snapshot counts only if it is of this very topic and its object is whole. Never: writes.
"""

import hashlib
from collections.abc import Iterator

import orjson

from trainhouse.events.admin import topic_id
from trainhouse.events.journal import SnapshotPointer
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.topics import ADMISSION, DECISIONS, DIRECTORY
from trainhouse.scheduler.stream.ports import SnapshotStore
from trainhouse.scheduler.stream.replay_journal import snapshots_of


def needed_by_recovery(kafka: KafkaSettings, store: SnapshotStore) -> dict[tuple[str, int], int]:
    """The first needed offset by topic and partition; what is not in it is needed from its beginning. Blocks.

    Raises BusUnavailable, and what the store raises. Control is not in it: the brokers let it expire by its age.
    """
    found: dict[tuple[str, int], int] = {}
    for journal in (DECISIONS, DIRECTORY):
        for pointer, blob in _whole_snapshots(kafka, journal, store):
            found[journal, pointer.partition] = pointer.offset
            if journal == DIRECTORY:
                found[ADMISSION, pointer.partition] = int(orjson.loads(blob)["cursor"]) + 1
    return found


def _whole_snapshots(kafka: KafkaSettings, journal: str, store: SnapshotStore) -> Iterator[tuple[SnapshotPointer, bytes]]:
    newest = {pointer.partition: pointer for pointer in snapshots_of(kafka, journal)}
    of_this_topic = topic_id(kafka, journal)
    for pointer in newest.values():
        blob = store.get(pointer.object_key)
        if blob is not None and pointer.topic_id == of_this_topic and hashlib.sha256(blob).hexdigest() == pointer.sha256:
            yield pointer, blob
