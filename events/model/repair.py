"""Repairs of journals: records that count as empty because no reader could fold them.

Holds: a repair names the record by offset and by the hash of its bytes, so it holds for that record alone, in the topic and in its archive.
Never: undone. What follows an emptied record was decided from the state without it.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from pydantic import Field

from trainhouse.events.model.base import Event
from trainhouse.events.model.bounds import Count, DueMs, SmallCount, TimestampMs
from trainhouse.events.model.errors import InvalidEvent
from trainhouse.events.model.ids import PoolName
from trainhouse.events.wire.codec import HEADERS, decode
from trainhouse.events.wire.journal import record_hash

MAX_TEXT_CHARS = 2048


class JournalRepaired(Event, type="trainhouse.journal.repaired.v1"):
    """The record at `offset` with this hash counts as empty for every reader: its decisions never were, its inputs are decided again.

    `error` is why it could not be folded, `reason` what the person who asked for the repair gave, `decide_version` and `fold_version`
    those of the program that could not.
    """

    journal: str = Field(max_length=128)
    partition: SmallCount
    offset: Count
    record_hash: str = Field(max_length=64, pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the record's bytes")
    seq: Count | None = Field(None, description="null where the bytes are no record at all: then no seq is taken")
    error: str = Field(max_length=MAX_TEXT_CHARS)
    reason: str = Field(min_length=1, max_length=MAX_TEXT_CHARS)
    user: str = Field(min_length=1, max_length=128)
    at_ms: TimestampMs

    def subject(self) -> str:
        return f"{self.journal}-{self.partition}"

    @property
    def key(self) -> bytes:
        """The record's key in the compacted topic of repairs."""
        return f"{self.journal}/{self.partition}/{self.offset}/{self.record_hash}".encode()


class HaltFault(StrEnum):
    """Why a partition of a journal does not do its work."""

    STOPPED = "STOPPED"
    PLACEMENT_FROZEN = "PLACEMENT_FROZEN"


class PartitionHalted(Event, type="trainhouse.partition.halted.v1"):
    """A partition of a journal decides nothing (STOPPED), or places nothing (PLACEMENT_FROZEN). Repeated each minute while it holds.

    All other partitions go on. `pools` are those that wait for it, as far as they are known.
    """

    journal: str = Field(max_length=128)
    partition: SmallCount
    fault: HaltFault
    pools: tuple[PoolName, ...] = Field((), max_length=1000)
    reason: str = Field(max_length=MAX_TEXT_CHARS)
    at_ms: DueMs

    def subject(self) -> str:
        return self.source

    @property
    def source(self) -> str:
        """The partition as one word, for tables and alerts."""
        return f"{self.journal}-{self.partition}"


def is_emptied(value: bytes | None, emptied: frozenset[str]) -> bool:
    """Whether these bytes are a record that counts as empty. Hashes nothing where no journal was ever repaired."""
    return bool(emptied) and value is not None and record_hash(value) in emptied


class Repairs(frozenset[str]):
    """The hashes of a journal's records that count as empty. `places`: the partition of each, and the seq that it takes, if any."""

    places: Mapping[str, tuple[int, int | None]]

    @classmethod
    def of(cls, places: Mapping[str, tuple[int, int | None]]) -> "Repairs":
        found = cls(places)
        found.places = dict(places)
        return found

    def behind(self, partition: int, seq: int, known: frozenset[str]) -> bool:
        """Whether a state up to `seq` has folded a record of the partition that counts as empty. `known`: the repairs that it rests on."""
        return any(of == partition and taken is not None and taken <= seq for hash_ in self - known for of, taken in (self.places[hash_],))


NO_REPAIRS = Repairs.of({})


def emptied_by(repairs: Iterable[bytes | None], journal: str) -> Repairs:
    """A journal's records that count as empty, from the values of the topic of repairs."""
    found: dict[str, tuple[int, int | None]] = {}
    for value in repairs:
        try:
            event = decode(value, HEADERS).event
        except InvalidEvent:
            continue
        if isinstance(event, JournalRepaired) and event.journal == journal:
            found[event.record_hash] = event.partition, event.seq
    return Repairs.of(found)
