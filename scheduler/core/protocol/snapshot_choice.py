"""Choice among the snapshots of one partition: the order in which recovery tries them, and what retention deletes.

Holds: pure; the order is that of seq, whatever the order in which pointers were written; the newest `KEPT` snapshots of the topic whose
objects are present stay, and so does every object that a remaining pointer names, and every segment that a remaining snapshot names.
Never: chooses an object outside the partition's own folder.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from trainhouse.events.wire.journal import InvalidRecordError, SnapshotPointer, pointer_prefix
from trainhouse.scheduler.core.protocol.settled import Segment

KEPT: Final = 3
# Bounds of one pass of retention: what it looks at, and what it deletes.
MOST_LISTED: Final = 1_000
MOST_DELETED: Final = 100
_SEGMENT = re.compile(r"(\d{8})\.(?P<topic>.+)\.[0-9a-f]{64}\.segment")
_NAME = re.compile(r"(\d{16})(?:\.(?P<topic>.+)\.[0-9a-f]+)?\.json")


def folder(journal: str, partition: int) -> str:
    """The prefix of the objects of a partition's snapshots."""
    return f"snapshots/{journal}/{partition}/"


def object_key(journal: str, partition: int, seq: int, topic_id: str, sha256: str) -> str:
    """The name of a snapshot's object. It names its content, so that a late writer replaces no other object."""
    return f"{folder(journal, partition)}{seq:016d}.{topic_id}.{sha256[:16]}.json"


def segments_folder(journal: str, partition: int) -> str:
    """The prefix of the segments that a partition's snapshots share."""
    return f"snapshots/{journal}/{partition}.segments/"


def segment_key(journal: str, partition: int, topic_id: str, segment: Segment) -> str:
    """The name of a segment's object: its number and its content, so that each is stored once, and never replaced by another."""
    return f"{segments_folder(journal, partition)}{segment.number:08d}.{topic_id}.{segment.sha256}.segment"


@dataclass(frozen=True, slots=True)
class Pointers:
    """The pointers to a partition's snapshots, by key; `unreadable`: keys of records that are no pointer to one."""

    readable: Mapping[bytes, SnapshotPointer]
    unreadable: frozenset[bytes]

    def newest_first(self, topic_id: str) -> list[SnapshotPointer]:
        """Returns the pointers of the topic with this id; of equal seqs, in a stable order."""
        own = {p.object_key: p for p in self.readable.values() if p.topic_id == topic_id}
        return sorted(own.values(), key=lambda p: (p.seq, p.object_key), reverse=True)

    def foreign(self, topic_id: str) -> list[SnapshotPointer]:
        """Returns the pointers of former topics of the same name."""
        return [p for p in self.readable.values() if p.topic_id != topic_id]


def pointers_of(found: Mapping[bytes, bytes], journal: str, partition: int) -> Pointers:
    """Reads the records of a partition, by key."""
    prefix = pointer_prefix(journal, partition)
    readable, unreadable = dict[bytes, SnapshotPointer](), set[bytes]()
    for key, value in found.items():
        if key != prefix and not key.startswith(prefix + b"/"):
            continue
        try:
            pointer = SnapshotPointer.decode(value)
        except InvalidRecordError:
            unreadable.add(key)
            continue
        if (pointer.journal, pointer.partition) == (journal, partition):
            readable[key] = pointer
        else:
            unreadable.add(key)
    return Pointers(readable, frozenset(unreadable))


@dataclass(frozen=True, slots=True)
class Surplus:
    """Deletions of one pass: first the pointers, then the objects, so that no pointer names an object that is gone."""

    pointers: tuple[bytes, ...] = ()
    objects: tuple[str, ...] = ()


def surplus(pointers: Pointers, topic_id: str, present: Collection[str], listed: Iterable[str], prefix: str) -> Surplus:
    """Returns what lies before the newest KEPT snapshots; nothing while there are fewer.

    `present`: the objects among the newest; `listed`: the first objects of the folder `prefix`, in order.
    """
    kept = [p for p in pointers.newest_first(topic_id) if p.object_key in present][:KEPT]
    if len(kept) < KEPT:
        return Surplus()
    floor = kept[-1].seq
    old = {key: p for key, p in pointers.readable.items() if p.topic_id != topic_id or p.seq < floor}
    needed = {p.object_key for key, p in pointers.readable.items() if key not in old}
    named = {p.object_key for p in old.values()}
    orphans = (name for name in listed if _is_older(name.removeprefix(prefix), floor, topic_id))
    objects = [name for name in dict.fromkeys((*sorted(named), *orphans)) if name.startswith(prefix) and name not in needed]
    return Surplus((*sorted(old), *sorted(pointers.unreadable))[:MOST_DELETED], tuple(objects[:MOST_DELETED]))


def _is_older(name: str, floor: int, topic_id: str) -> bool:
    found = _NAME.fullmatch(name)
    return found is not None and int(found[1]) < floor and found["topic"] in (None, topic_id)


def segment_orphans(listed: Iterable[str], named: Collection[str], topic_id: str, prefix: str) -> list[str]:
    """Segments of the topic that the newest snapshot (it names `named`) passed by: of a history that counts no more.

    One beyond those that it names stays: a snapshot that names it may be under way.
    """
    beyond = len(named)
    found = ((_SEGMENT.fullmatch(key.removeprefix(prefix)), key) for key in listed if key not in named)
    return [key for name, key in found if name is not None and name["topic"] == topic_id and int(name[1]) < beyond]


def segment_surplus(orphans: Iterable[str], named_by_others: Collection[str]) -> tuple[str, ...]:
    """Returns those of the orphans that no other remaining snapshot names; bounded."""
    return tuple(key for key in orphans if key not in named_by_others)[:MOST_DELETED]
