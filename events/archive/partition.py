"""The archive of one topic partition: objects named by the offset at which each begins.

    archive/TOPIC/ID OF THE TOPIC/PARTITION/FIRST OFFSET.jsonl.gz

Holds: an object is written once and never changed, and only by a writer that saw the object before it (each begins where the one before
ends, and names its seal); so however many writers there are and wherever they die, the objects are one chain without a hole, and each
offset is in one of them. Where the archive ends is what its last object says. A topic that was made anew has another id, and an archive of
its own.
Never: deletes.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Protocol

from trainhouse.events.archive.errors import ArchiveCorruptError
from trainhouse.events.archive.segments import GENESIS, LogRecord, Segment, decode, seal_of

PREFIX = "archive/"
_FIRST = re.compile(r"(\d{20})\.jsonl\.gz")


class ArchiveStore(Protocol):
    """Object store of archives. All methods block; errors are the store's."""

    def put_if_absent(self, key: str, body: bytes) -> bool:
        """Returns whether this content is now under the key. False: another content is, and stays."""

    def get(self, key: str) -> bytes | None:
        """The object, None when there is none."""

    def keys(self, prefix: str, start_after: str = "") -> Iterator[str]:
        """Keys that begin with `prefix`, in order, after `start_after`."""


class PartitionArchive:
    """The archive of one partition of the topic with this id."""

    def __init__(self, store: ArchiveStore, topic: str, topic_id: str, partition: int) -> None:
        self._store = store
        self._topic_id = topic_id
        self._newest = ""
        self._end = 0
        self._seal = GENESIS
        self.topic = topic
        self.partition = partition

    @cached_property
    def _prefix(self) -> str:
        """Blocks where the id may begin or end with `/` or have two of them together, as one in six or so stacks has in a topic.

        A store that folds empty parts of a key, as SeaweedFS does, lists nothing under those: such an archive never came beyond its first
        object. So its id is written as URLs have it, unless the store has an archive under the id itself.
        """
        plain, safe = (f"{PREFIX}{self.topic}/{i}/{self.partition}/" for i in (self._topic_id, self._topic_id.replace("/", "_")))
        return plain if "//" not in plain or next(iter(self._store.keys(plain)), None) is not None else safe

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.topic}-{self.partition}"

    def key(self, first: int) -> str:
        """The name of the object that begins at an offset."""
        return f"{self._prefix}{first:020d}.jsonl.gz"

    def end(self) -> int:
        """The first offset that is not archived. Blocks; reads the last object. Raises ArchiveCorruptError."""
        for first in self._firsts(self._newest):
            self._newest = self.key(first)
        if self._newest:
            segment, self._seal = self.sealed(self._newest)
            self._end = segment.end
        return self._end

    def add(self, first: int, records: Sequence[LogRecord]) -> bool:
        """Writes the next object: `first` is where the archive ends. False: another writer went on from there already. Blocks."""
        if self._end != first:
            self.end()
        segment = Segment(self.topic, self.partition, first, records[-1].offset + 1, tuple(records), self._seal)
        body = segment.encode()
        if not self._store.put_if_absent(self.key(first), body):
            return False
        self._newest, self._end, self._seal = self.key(first), segment.end, seal_of(body)
        return True

    def segments(self) -> Iterator[tuple[str, Segment, str]]:
        """Every object in order: its name, what it holds, its seal. Blocks. Raises ArchiveCorruptError."""
        for key in self.names():
            yield key, *self.sealed(key)

    def names(self) -> Iterator[str]:
        """The name of every object in order. Blocks."""
        return map(self.key, self._firsts(""))

    def read(self, start: int, end: int) -> Iterator[LogRecord]:
        """The records of [start, end), an object at a time. Blocks. Raises ArchiveCorruptError, which names what is missing or damaged."""
        at, missing = start, f"no object under {self._prefix} begins there or before"
        for first in self._from(start):
            if at >= end or first > at:
                break
            segment = self._segment(self.key(first))
            yield from (r for r in segment.records if at <= r.offset < end)
            at, missing = max(at, segment.end), f"{self.key(segment.end)} is missing"
        if at < end:
            raise ArchiveCorruptError(
                f"the archive of {self.name} lacks the offsets from {at} on: {missing}; put a copy of it in its place"
            )

    def _from(self, start: int) -> Iterator[int]:
        """First offsets of the objects, from the one on that covers `start`."""
        before: int | None = None
        for first in self._firsts(""):
            if first > start and before is not None:
                yield before
            if first > start:
                yield first
            before = first if first <= start else None
        if before is not None:
            yield before

    def _firsts(self, after: str) -> Iterator[int]:
        for key in self._store.keys(self._prefix, after):
            if found := _FIRST.fullmatch(key.removeprefix(self._prefix)):
                yield int(found[1])

    def _segment(self, key: str) -> Segment:
        return self.sealed(key)[0]

    def sealed(self, key: str) -> tuple[Segment, str]:
        """Returns the segment of an object, and its seal. Blocks. Raises ArchiveCorruptError."""
        content = self._store.get(key)
        if content is None:
            raise ArchiveCorruptError(f"the archive's object {key} is missing: put a copy of it in its place")
        segment = decode(key, content)
        if (segment.topic, segment.partition, self.key(segment.first)) != (self.topic, self.partition, key):
            raise ArchiveCorruptError(
                f"the archive's object {key} is {segment.topic}-{segment.partition} from {segment.first} on, not what its name says"
            )
        return segment, seal_of(content)
