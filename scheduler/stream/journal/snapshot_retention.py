"""Retention of snapshots: after a new one, deletes what lies before the newest three of its partition.

Holds: a pointer is deleted before its object; one pass is bounded; a failure is a log line, and the next pass deletes what was left.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Any

import structlog

from trainhouse.events.wire.journal import pointer_prefix
from trainhouse.events.wire.topics import SNAPSHOTS
from trainhouse.scheduler.core.protocol.snapshot_choice import (
    KEPT,
    MOST_LISTED,
    Pointers,
    folder,
    pointers_of,
    segment_orphans,
    segment_surplus,
    segments_folder,
    surplus,
)
from trainhouse.scheduler.stream.interfaces import Log, SnapshotStore
from trainhouse.scheduler.stream.journal.snapshot_blob import segments_named

# Newest pointers among which the kept ones are sought.
LOOKED_AT = KEPT + 7
PASS_TIMEOUT_S = 120.0
log_ = structlog.get_logger(__name__)


class Retention:
    """Retention of one journal's snapshots. `offload` runs the store's blocking calls."""

    def __init__(self, log: Log, store: SnapshotStore, journal: str, offload: Callable[..., Awaitable[Any]]) -> None:
        self._log = log
        self._store = store
        self._journal = journal
        self._offload = offload

    async def prune(self, partition: int, segments: frozenset[str] = frozenset()) -> None:
        """One pass. `segments`: those that the newest snapshot names. Never raises."""
        try:
            async with asyncio.timeout(PASS_TIMEOUT_S):
                await self._prune(partition, segments)
        except Exception as error:  # whatever the log or the store raises: what is left costs space alone
            log_.warning(
                "old snapshots not deleted; the next pass tries again", journal=self._journal, partition=partition, error=repr(error)
            )

    async def _prune(self, partition: int, segments: frozenset[str]) -> None:
        prefix, topic_id = folder(self._journal, partition), await self._log.topic_id(self._journal)
        pointers = pointers_of(await self._log.newest(SNAPSHOTS, pointer_prefix(self._journal, partition)), self._journal, partition)
        newest = pointers.newest_first(topic_id)[:LOOKED_AT]
        if len(newest) < KEPT:
            return
        present, listed = [await self._offload(self._keys, prefix, after) for after in (f"{prefix}{newest[-1].seq:016d}", "")]
        old = surplus(pointers, topic_id, present, listed, prefix)
        for key in old.pointers:
            await self._log.send(SNAPSHOTS, key, None)
        for name in old.objects:
            await self._offload(self._store.delete, name)
        if old.objects:
            log_.info("old snapshots deleted", journal=self._journal, partition=partition, objects=len(old.objects))
        if segments:
            remaining = Pointers({k: p for k, p in pointers.readable.items() if k not in old.pointers}, frozenset())
            await self._offload(self._prune_segments, partition, topic_id, segments, remaining)

    def _prune_segments(self, partition: int, topic_id: str, newest: frozenset[str], remaining: Pointers) -> None:
        """Deletes segments that no remaining snapshot names. Blocks; asks what the others name only where there may be any."""
        prefix = segments_folder(self._journal, partition)
        orphans = segment_orphans(self._store.keys(prefix), newest, topic_id, prefix)
        if not orphans:
            return
        blobs = (self._store.get(pointer.object_key) for pointer in remaining.newest_first(topic_id))
        named = frozenset(key for blob in blobs if blob is not None for key in segments_named(blob))
        for key in segment_surplus(orphans, named):
            self._store.delete(key)
            log_.info("segment deleted that no snapshot names", key=key)

    def _keys(self, prefix: str, after: str) -> list[str]:
        return list(islice(self._store.keys(prefix, after), MOST_LISTED))
