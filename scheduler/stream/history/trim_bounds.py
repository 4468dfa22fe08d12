"""From where on the topics of the journals are needed: what lies before may be trimmed once it is archived.

A start reads the journal from the record that its newest snapshot includes last; where that one cannot be used, from that of one of the
two before it. What it reads of the input lies beyond the newest one's cursor in each case.
Holds: a snapshot counts only if it is of this very topic and its object is whole. Never: writes.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator

import orjson

from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.journal import SnapshotPointer
from trainhouse.events.wire.topics import ADMISSION, DECISIONS, DIRECTORY, REGISTRY, TUNING
from trainhouse.scheduler.core.protocol.snapshot_choice import KEPT
from trainhouse.scheduler.stream.history.journal_replay import newest_first
from trainhouse.scheduler.stream.interfaces import SnapshotStore


def needed_by_recovery(kafka: KafkaSettings, store: SnapshotStore) -> dict[tuple[str, int], int]:
    """The first needed offset by topic and partition; what is not in it is needed from its beginning. Blocks.

    Raises BusUnavailableError, and what the store raises. Control is not in it: the brokers let it expire by its age.
    """
    found: dict[tuple[str, int], int] = {}
    for journal in (DECISIONS, DIRECTORY, REGISTRY, TUNING):
        for pointer, blob in whole_snapshots(newest_first(kafka, journal), store):
            found[journal, pointer.partition] = pointer.offset
            if journal == DIRECTORY:
                found.setdefault((ADMISSION, pointer.partition), int(orjson.loads(blob)["cursor"]) + 1)
    return found


def whole_snapshots(pointers: Iterable[SnapshotPointer], store: SnapshotStore) -> Iterator[tuple[SnapshotPointer, bytes]]:
    """Of each partition the first KEPT of these whose objects are whole, with their bytes, in order. Raises what the store raises."""
    count = Counter[int]()
    for pointer in pointers:
        if count[pointer.partition] == KEPT:
            continue
        blob = store.get(pointer.object_key)
        if blob is not None and hashlib.sha256(blob).hexdigest() == pointer.sha256:
            count[pointer.partition] += 1
            yield pointer, blob
