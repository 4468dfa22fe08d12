"""Ports of the journal's shell: a log, a store for snapshots, a clock.

Holds: `append` returns once the entry is in the log for good; when it raises LogUnavailableError, the entry may or may not be there.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from trainhouse.events import Event
from trainhouse.scheduler.core.protocol.publication import Outgoing

S_contra = TypeVar("S_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a topic's partition. `timestamp_ms` is the log's append time where the topic is set so."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()

    @classmethod
    def of(cls, record: Any) -> "Entry":
        """The entry that a client's record is."""
        return cls(record.partition, record.offset, record.timestamp, record.key, record.value, tuple(record.headers))


@dataclass(frozen=True, slots=True)
class Appended:
    """Position of an append, and its time by the log's clock."""

    offset: int
    timestamp_ms: int


class Tail(Protocol):
    """A reader of some partitions of one topic, from given positions on, in order within each partition."""

    async def take(self, max_wait_s: float) -> list[Entry]:
        """Returns entries at once, or none after `max_wait_s`. Raises BrokenInvariant when the log no longer holds the position."""

    async def position(self, partition: int) -> int:
        """Up to where it has read. An entry of the log may be a control record (the end of a transaction): that is passed, never taken."""

    async def close(self) -> None:
        """Gives its connections back."""


class Publisher(Protocol):
    """Sends effects in order. With a transactional id each batch is visible as a whole, and only while it is not fenced."""

    async def send(self, batch: Sequence[Outgoing], mark: int = 0) -> None:
        """Returns when all is acked (committed). Raises Fenced, or LogUnavailableError: then it must be closed and never used again.

        With a transactional id, `mark` (a seq, larger than any before; 0: none) is committed with the batch or not at all.
        """

    async def mark(self) -> int:
        """The mark of the last batch that was committed under this id, by whichever publisher; 0 when none was. Raises
        LogUnavailableError."""

    async def close(self) -> None:
        """Gives its connections back; an open transaction is aborted."""


class Log(Protocol):
    """The brokers."""

    async def append(self, topic: str, partition: int, value: bytes) -> Appended:
        """One entry. Raises LogUnavailableError (outcome unknown) or RecordTooLarge (not appended)."""

    async def open_tail(self, topic: str, positions: Mapping[int, int]) -> Tail:
        """A reader from the given offset of each partition on."""

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset that is still there and the next one to be written. Raises LogUnavailableError."""

    async def ends(self, topic: str, partitions: Collection[int]) -> dict[int, int]:
        """The next offset to be written of each, by one question: for who asks again and again. Raises LogUnavailableError."""

    async def partitions(self, topic: str) -> list[int]:
        """The partition numbers of a topic. Raises LogUnavailableError."""

    async def existing(self, topics: Collection[str]) -> set[str]:
        """Returns those of these topics that exist, by the brokers' present answer. Raises LogUnavailableError."""

    async def topic_id(self, topic: str) -> str:
        """The id that a topic keeps until it is deleted; another one of the same name has another id. Raises LogUnavailableError."""

    async def open_publisher(self, transactional_id: str | None, marks: str = "") -> Publisher:
        """With an id: fences every earlier publisher of that id. `marks` is the topic that its marks speak of. Raises
        LogUnavailableError."""

    async def send(self, topic: str, key: bytes, value: bytes | None) -> None:
        """One keyed record outside the journal (snapshot pointers, explanations); None is a tombstone. Raises LogUnavailableError."""

    async def newest(self, topic: str, prefix: bytes) -> dict[bytes, bytes]:
        """The newest value of each key with this prefix in a compacted topic, deleted ones left out. Raises LogUnavailableError."""

    async def whole(self, topic: str) -> list[bytes | None]:
        """The values of all records of a small topic, read to its end; none where there is no such topic. Raises LogUnavailableError."""

    async def close(self) -> None:
        """Gives all connections back."""


class LiveStatuses(Protocol[S_contra]):
    """Progress of one partition's jobs that needs no journal record: reports in, statuses out (see `core/handlers/live_progress`)."""

    @property
    def due(self) -> bool:
        """Whether a status waits to be published."""

    @property
    def unrecorded(self) -> bool:
        """Whether anything was read of them since the last record: one is owed soon, so that others see that this owner still decides."""

    @property
    def unread(self) -> bool:
        """Whether another process decided since `read_from_end`: what was to be read next may be older than what it published."""

    def read_from_end(self) -> None:
        """They are read from the topic's present end on."""

    def note_read(self) -> None:
        """Something was read of them, whatever it was."""

    def offer_inputs(self, state: S_contra, inputs: Sequence[Event], now_ms: int) -> None:
        """Takes what of a batch's inputs are such reports."""

    def marks(self, state: S_contra, now_ms: int) -> Sequence[Event]:
        """Returns the marks for the next record that ends with a tick."""

    def behind(self, state: S_contra, decisions: Sequence[Event]) -> Sequence[Event]:
        """Returns the marks that a record with these decisions, on this state, must hold."""

    def own_record(self, now_ms: int, decisions: Sequence[Event]) -> None:
        """A record of this process counted."""

    def foreign_record(self) -> None:
        """A record of another one counted, or it is not known which did."""

    def resend(self) -> None:
        """Makes the statuses of the last `outgoing` due again: they may not be published."""

    def outgoing(self, state: S_contra, partition: int, seq: int, now_ms: int, most: int) -> list[Outgoing]:
        """The statuses that are due, at most so many, while all effects up to `seq`, the newest record, are out or with them."""


class SnapshotStore(Protocol):
    """Store of snapshots: an object store. All methods block, and run in a thread."""

    def put(self, key: str, data: bytes) -> None:
        """Stores an object, replacing it if it is there."""

    def get(self, key: str) -> bytes | None:
        """The object, None when there is none."""

    def keys(self, prefix: str, start_after: str = "") -> Iterator[str]:
        """Keys that begin with `prefix`, in order, after `start_after`."""

    def delete(self, key: str) -> None:
        """Removes an object; one that is not there is fine."""


class JournalArchive(Protocol):
    """Archive of the journals' records that the log no longer holds. Blocks, and runs in a thread."""

    def archived(self, journal: str, partition: int, start: int = 0) -> tuple[Iterator[Entry], int]:
        """A partition's archived entries from an offset on, and the offset at which the log goes on."""


class Clock(Protocol):
    """Two clocks: of the day, and a steady one."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""

    def steady_s(self) -> float:
        """Seconds of a clock that never goes back."""
