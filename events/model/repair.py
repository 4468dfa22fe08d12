"""Repairs of journals: records that count as empty because no reader could fold them.

Holds: a repair names the record by offset and by the hash of its bytes, so it holds for that record alone, in the topic and in its archive.
Never: undone. What follows an emptied record was decided from the state without it.
"""

from enum import StrEnum

from pydantic import Field

from trainhouse.events.model.base import Event
from trainhouse.events.model.bounds import Count, DueMs, SmallCount, TimestampMs
from trainhouse.events.model.ids import PoolName

MAX_TEXT_CHARS = 2048


class JournalRepaired(Event, type="trainhouse.journal.repaired.v1"):
    """The record at `offset` with this hash counts as empty for every reader: its decisions never were, its inputs are decided again.

    `error` is why it could not be folded, `reason` what the person who asked for the repair gave, `decide_version` and `fold_version`
    those of the program that could not.
    """

    journal: str = Field(max_length=128, description="topic of the journal")
    partition: SmallCount = Field(description="its partition")
    offset: Count = Field(description="offset of the record that was emptied")
    record_hash: str = Field(max_length=64, pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the record's bytes")
    seq: Count | None = Field(None, description="null where the bytes are no record at all: then no seq is taken")
    error: str = Field(max_length=MAX_TEXT_CHARS, description="why it could not be read")
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
    """Reason that a partition of a journal does not do its work."""

    STOPPED = "STOPPED"
    PLACEMENT_FROZEN = "PLACEMENT_FROZEN"


class PartitionHalted(Event, type="trainhouse.partition.halted.v1"):
    """A partition of a journal decides nothing (STOPPED), or places nothing (PLACEMENT_FROZEN). Repeated each minute while it holds.

    All other partitions go on. `pools` are those that wait for it, as far as they are known.
    """

    journal: str = Field(max_length=128, description="topic of the journal")
    partition: SmallCount = Field(description="its partition")
    fault: HaltFault = Field(description="why it is halted")
    pools: tuple[PoolName, ...] = Field((), max_length=1000, description="pools that are not scheduled meanwhile")
    reason: str = Field(max_length=MAX_TEXT_CHARS)
    at_ms: DueMs

    def subject(self) -> str:
        return self.source

    @property
    def source(self) -> str:
        """The partition as one word, for tables and alerts."""
        return f"{self.journal}-{self.partition}"
