"""Whether a part of an archive, by the times of its records, is the chain that was written.

Holds: the part reaches from the first object that has a record of the time to the last one. Each of them names the one before it within the
part, and the one behind the part, where it can be read, names the last. Records stand in the order in which the brokers took them, so those
of a time may be anywhere: every object is looked at, and one outside the part that cannot be read is counted: it may have held some.
Never: changes anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from trainhouse.events.archive.chain import Proved, compared
from trainhouse.events.archive.errors import ArchiveCorruptError, ChainBrokenError
from trainhouse.events.archive.log import PartitionLog
from trainhouse.events.archive.partition import PartitionArchive


@dataclass(frozen=True, slots=True)
class Part:
    """Result of the proof; `proved` is None if no record is of the time. `first_ms`, `last_ms`: time range of the archive, None if it is
    empty; `unread`: objects outside the part that cannot be read."""

    proved: Proved | None
    first_ms: int | None
    last_ms: int | None
    unread: int


@dataclass(frozen=True, slots=True)
class _Seen:
    """An object without its records. `times`: those of all of them, and of those within the time: least, most."""

    key: str
    first: int
    end: int
    previous: str
    seal: str
    all_ms: tuple[int, ...]
    within: int
    within_ms: tuple[int, ...]


def verify_part(archive: PartitionArchive, from_ms: int, to_ms: int, log: PartitionLog | None = None, noted: Iterable[str] = ()) -> Part:
    """Proves what a partition's archive has of [from_ms, to_ms), and compares it with what the topic still holds. Blocks.

    `noted`: seals that must be in the archive. Raises ArchiveCorruptError, or ChainBrokenError, which name the first object that is not
    as it was.
    """
    seen = [_look(archive, key, from_ms, to_ms) for key in archive.names()]
    sound = [one for one in seen if isinstance(one, _Seen)]
    if missing := set(noted) - {one.seal for one in sound}:
        raise ChainBrokenError(f"the archive of {archive.name} has no object of the noted seal {min(missing)}: it was written anew, or cut")
    times = [ms for one in sound for ms in one.all_ms]
    inside = [n for n, one in enumerate(seen) if isinstance(one, _Seen) and one.within]
    if not inside:
        return Part(None, min(times, default=None), max(times, default=None), len(seen) - len(sound))
    part: list[_Seen] = []
    for one in seen[inside[0] : inside[-1] + 1]:
        if isinstance(one, ArchiveCorruptError):
            raise one
        part.append(one)
    behind = seen[inside[-1] + 1] if inside[-1] + 1 < len(seen) else None
    follows = [behind] if isinstance(behind, _Seen) and behind.first == part[-1].end else []
    _linked(archive, [*part, *follows])
    if behind is None and log is not None and (low := log.bounds()[0]) > part[-1].end:
        raise ChainBrokenError(
            f"the archive of {archive.name} ends at {part[-1].end}, and the topic begins at {low}: {archive.key(part[-1].end)} is missing"
        )
    same = compared(archive, log, part[0].first, part[-1].end) if log is not None else 0
    of_time = [ms for one in part for ms in one.within_ms]
    records = sum(one.within for one in part)
    proved = Proved(part[0].first, part[-1].end, len(part), records, part[-1].seal, same, min(of_time), max(of_time))
    return Part(proved, min(times), max(times), len(seen) - len(sound))


def _look(archive: PartitionArchive, key: str, from_ms: int, to_ms: int) -> _Seen | ArchiveCorruptError:
    try:
        segment, seal = archive.sealed(key)
    except ArchiveCorruptError as error:
        return error
    times = [record.timestamp_ms for record in segment.records]
    within = [ms for ms in times if from_ms <= ms < to_ms]
    return _Seen(key, segment.first, segment.end, segment.previous, seal, _ends(times), len(within), _ends(within))


def _ends(times: list[int]) -> tuple[int, ...]:
    return (min(times), max(times)) if times else ()


def _linked(archive: PartitionArchive, part: list[_Seen]) -> None:
    chained = bool(part[0].previous)
    for before, one in pairwise(part):
        if one.first != before.end:
            raise ChainBrokenError(f"{archive.key(before.end)} is missing: the object before it ends there, and the next one is {one.key}")
        if (one.previous or chained) and one.previous != before.seal:
            raise ChainBrokenError(f"{one.key} does not name the seal of the object before it: {before.key}, or it, was changed")
        chained = chained or bool(one.previous)
