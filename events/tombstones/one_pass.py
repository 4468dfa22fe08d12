"""One pass over the compacted topics: reads them, and writes the tombstones that are due.

Holds: exact whoever else writes: tombstones land in a transaction that is still open; then all that was appended since the reading is
looked at, committed or not, and only if no record of those keys came between is the transaction committed. Killed or paused anywhere,
nothing happened; run twice at once, the later one shuts the earlier one out. Repeating it changes nothing.
Never: reads a clock; trusts one clock alone: what is old is old by the given one and by the newest record's append time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, Protocol

from trainhouse.events.archive.segments import LogRecord
from trainhouse.events.tombstones.rule import (
    ANSWERS,
    MOST_A_PARTITION,
    OF_JOBS,
    Due,
    JobsThatGoOn,
    answer_ended,
    may_end,
    overtaken,
    status_ended,
)
from trainhouse.events.wire.topics import STATUS, TRACES

A_TRANSACTION: Final = 1_000
EVER: Final = 2**62
# A copy of a status on a project's topic lies in the same transaction as the status.
COPIES_WITHIN_MS: Final = 3_600_000


class Topics(Protocol):
    """The brokers. All methods block, and raise BusUnavailableError."""

    def status_topics(self) -> list[str]:
        """The topics of projects' statuses that there are."""

    def partitions(self, topic: str) -> list[int]:
        """The partition numbers of a topic."""

    def records(self, topic: str, partition: int, start: int = 0) -> Iterator[LogRecord]:
        """The committed records from an offset up to the end as of the call, tombstones included."""

    def appended_since(self, topic: str, partition: int, start: int, end: int) -> Iterator[LogRecord]:
        """All records of these offsets that are in the log, those of open and aborted transactions too."""

    def shut_out_others(self) -> None:
        """From now on no pass that began before can write."""

    def begin(self, topic: str, partition: int, keys: Sequence[bytes]) -> Mapping[bytes, int]:
        """Opens a transaction and sends a tombstone a key; returns where each landed. Raises SupersededPassError when another pass
        began."""

    def commit(self) -> None:
        """Makes the open transaction count. Raises SupersededPassError."""

    def abort(self) -> None:
        """Gives the open transaction up. Raises SupersededPassError."""


@dataclass(frozen=True, slots=True)
class Buried:
    """Result for one topic: keys that ended, tombstones that were written, keys left alone since something came between."""

    topic: str
    ended: int
    written: int
    left: int


@dataclass(frozen=True, slots=True)
class Looked:
    """Result of a scan: the due keys, partition by partition."""

    due: tuple[Due, ...]

    @property
    def keys(self) -> int:
        return sum(len(d.keys) for d in self.due)


def look(topics: Topics, now_ms: int, retention_ms: int, stored_to: Callable[[str, int], int]) -> Looked:
    """Reads all topics. `stored_to`: the first offset of a partition that SQL does not hold. Blocks.

    Topics kept by job are read before the statuses: a job that the statuses say is finished by then was so, or not yet there.
    """
    cutoff_ms = now_ms - retention_ms

    def read(topic: str, ended: Callable[[LogRecord], bool], stored: Callable[[str, int], int]) -> list[Due]:
        parts = [Due(topic, p, cutoff_ms, stored(topic, p), ended, MOST_A_PARTITION) for p in topics.partitions(topic)]
        for due in parts:
            _read(topics, due, due.take)
        return parts

    found = [due for topic in ANSWERS for due in read(topic, answer_ended, stored_to)]
    of_jobs = [due for topic in OF_JOBS for due in read(topic, may_end, _ever if topic == TRACES else stored_to)]
    going_on = JobsThatGoOn(frozenset(key for due in of_jobs for key in due.keys), cutoff_ms)
    statuses = [Due(STATUS, p, cutoff_ms, stored_to(STATUS, p), status_ended, MOST_A_PARTITION) for p in topics.partitions(STATUS)]
    for due in statuses:
        _read(topics, due, due.take, going_on.take)
    for due in of_jobs:
        due.leave(going_on.found)
    copies = [due for topic in topics.status_topics() for due in read(topic, status_ended, _ever)]
    unstored_ms = min((due.unstored_ms for due in statuses if due.unstored_ms is not None), default=EVER)
    for due in copies:
        due.leave_later_than(unstored_ms - COPIES_WITHIN_MS)
    found += [*of_jobs, *statuses, *copies]
    # Where nothing is appended, topics do not grow either: no clock has to be believed.
    newest_ms = max((due.newest_ms for due in found), default=0)
    for due in found:
        due.leave_later_than(newest_ms - retention_ms)
    return Looked(tuple(found))


def _read(topics: Topics, due: Due, *takers: Callable[[LogRecord], None]) -> None:
    """All of a partition; again from where the room was full of keys that later tombstones freed."""
    start: int | None = 0
    while start is not None:
        for record in topics.records(due.topic, due.partition, start):
            for take in takers:
                take(record)
        start = due.read_on_from()


def bury(topics: Topics, looked: Looked) -> list[Buried]:
    """Writes the tombstones; a row a topic. Blocks. Raises SupersededPassError when another pass began, BusUnavailableError."""
    rows: dict[str, Buried] = {}
    topics.shut_out_others()
    for due in looked.due:
        row = rows.setdefault(due.topic, Buried(due.topic, 0, 0, 0))
        keys, written = iter(list(due.keys)), 0
        while some := list(islice(keys, A_TRANSACTION)):
            written += _write(topics, due, some)
        left = len(due.keys) - written
        rows[due.topic] = replace(row, ended=row.ended + len(due.keys), written=row.written + written, left=row.left + left)
    return list(rows.values())


def _write(topics: Topics, due: Due, keys: list[bytes]) -> int:
    """One transaction, and another one for the rest if something came between; returns how many tombstones count."""
    while keys:
        landed = topics.begin(due.topic, due.partition, keys)
        between = topics.appended_since(due.topic, due.partition, due.read_to, max(landed.values()))
        came = overtaken(due, landed, between)
        if not came:
            topics.commit()
            return len(keys)
        topics.abort()
        keys = [key for key in keys if key not in came]
    return 0


def _ever(topic: str, partition: int) -> int:
    return EVER
