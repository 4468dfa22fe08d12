"""Whether an archive is the chain that was written: no object changed, removed, added or put elsewhere.

Holds: each object names the seal of the one before it, so that whoever changes one must write all behind it anew; what the topic still
holds is compared record by record, and a seal that was noted earlier must still be in the chain: both find a chain that was written anew.
Never: changes anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trainhouse.events.archive.errors import ChainBrokenError
from trainhouse.events.archive.log import PartitionLog
from trainhouse.events.archive.partition import PartitionArchive
from trainhouse.events.archive.segments import GENESIS
from trainhouse.events.archive.trimming import compare
from trainhouse.events.model.errors import RecordsGoneError


@dataclass(frozen=True, slots=True)
class Proved:
    """A chain that is whole. `seal` is that of its last object: note it where nobody who can write to the store can; `first_ms` and
    `last_ms` are times of its records, None where it has none."""

    first: int
    end: int
    objects: int
    records: int
    seal: str
    compared: int
    first_ms: int | None
    last_ms: int | None


def verify(archive: PartitionArchive, log: PartitionLog | None = None, noted: Iterable[str] = ()) -> Proved:
    """Proves a partition's chain, and compares it with what the topic still holds. `noted`: seals that must be in it. Blocks.

    Raises ArchiveCorruptError, or ChainBrokenError, which name the first object that is not as it was written.
    """
    missing, seal, at, chained = set(noted), GENESIS, 0, False
    objects = records = first = 0
    times: list[int] = []
    for key, segment, own in archive.segments():
        if objects == 0:
            first = at = segment.first
        if segment.first != at:
            raise ChainBrokenError(f"{archive.key(at)} is missing: the object before it ends there, and the next one is {key}")
        if (segment.previous or chained) and segment.previous != seal:
            what = "the chain begins earlier: objects before it are missing" if objects == 0 else "the object before it, or it, was changed"
            raise ChainBrokenError(f"{key} does not name the seal of the object before it: {what}")
        times += [r.timestamp_ms for r in (*segment.records[:1], *segment.records[-1:])]
        missing.discard(own)
        seal, at, chained = own, segment.end, chained or bool(segment.previous)
        objects, records = objects + 1, records + len(segment.records)
    if missing:
        raise ChainBrokenError(f"the archive of {archive.name} has no object of the noted seal {min(missing)}: it was written anew, or cut")
    if log is not None and (low := log.bounds()[0]) > at:
        raise ChainBrokenError(f"the archive of {archive.name} ends at {at}, and the topic begins at {low}: {archive.key(at)} is missing")
    same = compared(archive, log, first, at) if log is not None and objects else 0
    return Proved(first, at, objects, records, seal, same, min(times, default=None), max(times, default=None))


def compared(archive: PartitionArchive, log: PartitionLog, first: int, end: int) -> int:
    """Compares the offsets of [first, end) that archive and topic both hold; returns their number. Blocks. Raises ArchiveCorruptError."""
    while True:
        low, high = log.bounds()
        start = max(low, first)
        if end > high:
            raise ChainBrokenError(
                f"the archive of {archive.name} ends at {end}, and the topic at {high}: it has what was never written there"
            )
        if start >= end:
            return 0
        try:
            compare(log, archive, start, end)
        except RecordsGoneError:
            continue  # they expired meanwhile
        return end - start
