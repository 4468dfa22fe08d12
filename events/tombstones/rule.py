"""Rule for tombstones: the keys of a compacted topic that get one.

A status ends when it is final, an answer under an event's id with its time; what else is kept by job ends with the job's status.
Holds: pure. Only the newest record of a key counts, only one that the broker appended before the cutoff and that SQL holds already. Of two
records of a key the one with the larger offset is the newer one, tombstones included. Bounded: of more keys, the next pass takes the rest.
Never: gives up a job that is not finished; judges a record that this version cannot read.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from trainhouse.events.archive.segments import LogRecord
from trainhouse.events.model.errors import InvalidEvent
from trainhouse.events.model.job import JobRejected, JobStatus
from trainhouse.events.model.pool import ChangeRefused
from trainhouse.events.wire.codec import decode
from trainhouse.events.wire.topics import EXPLANATIONS, POLICIES, RESERVATIONS, TRACES

MOST_A_PARTITION: Final = 50_000
OF_JOBS: Final = (EXPLANATIONS, RESERVATIONS, TRACES)
"""Keyed by job, and of no use without its status."""
ANSWERS: Final = (POLICIES,)
"""Also keyed by the event ids of refused requests."""


def status_ended(record: LogRecord) -> bool:
    """Whether nothing newer comes under the key of a status: its job is finished, or it is the answer to one event."""
    try:
        event = decode(record.value, record.headers).event
    except InvalidEvent:
        return False
    if isinstance(event, JobStatus):
        return event.state.final or record.key != str(event.job_id).encode()
    return isinstance(event, JobRejected)


def answer_ended(record: LogRecord) -> bool:
    """Whether it is the refusal of one request."""
    try:
        return isinstance(decode(record.value, record.headers).event, ChangeRefused)
    except InvalidEvent:
        return False


def may_end(record: LogRecord) -> bool:
    """Whether it may: the status of its job has the word."""
    return True


@dataclass(slots=True)
class Due:
    """The keys of one partition of a topic that get a tombstone, with the append time of their newest record.

    `read_to`: the offset behind the last record that was looked at. `passed_over`: where the first record is that there was no room for.
    """

    topic: str
    partition: int
    cutoff_ms: int
    stored_to: int
    ended: Callable[[LogRecord], bool]
    most: int = MOST_A_PARTITION
    keys: dict[bytes, int] = field(default_factory=dict)
    read_to: int = 0
    newest_ms: int = 0
    unstored_ms: int | None = None
    passed_over: int | None = None

    def read_on_from(self) -> int | None:
        """From where to read once more, now that keys turned out to have a tombstone already; None: that would find no more."""
        start, self.passed_over = self.passed_over, None
        return start if len(self.keys) < self.most else None

    def take(self, record: LogRecord) -> None:
        """One record more; the newest one of its key until another comes."""
        self.read_to = max(self.read_to, record.offset + 1)
        self.newest_ms = max(self.newest_ms, record.timestamp_ms)
        stored = record.offset < self.stored_to
        if not stored and self.unstored_ms is None:
            self.unstored_ms = record.timestamp_ms
        if record.key is None:
            return
        self.keys.pop(record.key, None)
        old = 0 < record.timestamp_ms <= self.cutoff_ms
        if record.value is None or not old or not stored or not self.ended(record):
            return
        if len(self.keys) < self.most:
            self.keys[record.key] = record.timestamp_ms
        elif self.passed_over is None:
            self.passed_over = record.offset

    def leave_later_than(self, time_ms: int) -> None:
        """Lets go of keys whose newest record was appended after `time_ms`."""
        self.keys = {key: at_ms for key, at_ms in self.keys.items() if at_ms <= time_ms}

    def leave(self, keys: Collection[bytes]) -> None:
        """Lets go of these keys."""
        for key in keys:
            self.keys.pop(key, None)


@dataclass(slots=True)
class JobsThatGoOn:
    """Of these jobs those whose newest status is not one that ended long ago: what else there is of them stays."""

    asked: frozenset[bytes]
    cutoff_ms: int
    found: set[bytes] = field(default_factory=set)

    def take(self, record: LogRecord) -> None:
        """One record of the status topic more, in the order of its partition."""
        if record.key not in self.asked:
            return
        if record.value is None or (record.timestamp_ms <= self.cutoff_ms and status_ended(record)):
            self.found.discard(record.key)
        else:
            self.found.add(record.key)


def overtaken(due: Due, landed: Mapping[bytes, int], between: Iterable[LogRecord]) -> set[bytes]:
    """The keys whose tombstone, which landed at an offset, is behind a record that was not looked at.

    `between`: all records from `due.read_to` on, committed or not. A tombstone between says the same.
    """
    found = set()
    for record in between:
        if record.key is not None and record.value is not None and due.read_to <= record.offset < landed.get(record.key, 0):
            found.add(record.key)
    return found
