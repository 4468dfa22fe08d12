"""Segments and bundles of one log in the object store.

Holds: a segment is put under the next number if nothing is there: of two gateways one wins, and the other reads what won. Segments stay,
so that a gateway that was stopped for long finds its number taken; a bundle only makes a first read quick. All functions block.
Never: takes a hole in the chain for its end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from trainhouse.checkpointing.chain.chunks import in_threads
from trainhouse.checkpointing.errors import DamagedError
from trainhouse.checkpointing.stores.object_store import ObjectStore, get_or_none
from trainhouse.gateway.optuna.journal_log import BUNDLED, Append, bundle_key, decode, encode, log_prefix, segment_key, segments_prefix

THREADS: Final = 8
Segment = Sequence[Append]


@dataclass(frozen=True)
class StoredSegments:
    """One log's objects."""

    objects: ObjectStore
    project: str
    name: str

    def load(self) -> tuple[list[Segment], int]:
        """All segments that are there, and how many of them are in bundles. Raises DamagedError where one is missing."""
        stats = self.objects.list(f"{log_prefix(self.project, self.name)}bundles/")
        bundles = self._dense([stat.key for stat in stats], partial(bundle_key, self.project, self.name), 0)
        found = [segment for stored in in_threads(self._read, bundles, THREADS) for segment in stored]
        if len(found) != len(bundles) * BUNDLED:
            raise DamagedError(f"{self.objects.uri(log_prefix(self.project, self.name))}: a bundle has not {BUNDLED} segments")
        after = segment_key(self.project, self.name, len(found) - 1) if found else ""
        keys = [stat.key for stat in self.objects.list(segments_prefix(self.project, self.name), after)]
        keys = self._dense(keys, partial(segment_key, self.project, self.name), len(found))
        return [*found, *(segment for stored in in_threads(self._read, keys, THREADS) for segment in stored)], len(found)

    def after(self, number: int) -> list[Segment]:
        """Segments from a number on, up to the end of the chain."""
        found = list[Segment]()
        while (content := get_or_none(self.objects, key := segment_key(self.project, self.name, number + len(found)))) is not None:
            found += decode(content, self.objects.uri(key))
        return found

    def put(self, number: int, appends: Segment) -> bool:
        """Makes these the segment of a number. False: another one has it."""
        return self.objects.put_if_absent(segment_key(self.project, self.name, number), encode([appends]))

    def put_bundle(self, number: int, content: bytes) -> None:
        """Stores a bundle; one that is there is the same."""
        self.objects.put_if_absent(bundle_key(self.project, self.name, number), content)

    def _read(self, key: str) -> list[list[Append]]:
        return decode(self.objects.get(key), self.objects.uri(key))

    def _dense(self, keys: list[str], key_of: partial[str], first: int) -> list[str]:
        """The keys, where they are those of the numbers from the first one on. Raises DamagedError."""
        for number, key in enumerate(keys, first):
            if key != key_of(number):
                raise DamagedError(f"{self.objects.uri(key_of(number))} is missing, though {key} is there: put it back from a copy")
        return keys
