"""Updates of the control plane: which programs run, and the level that the writers of a journal keep to.

Holds: a partition's level is the greatest fold_version of its records. A newer program decides, and writes records and snapshots, as a
program of that level reads them, until an operator finishes the update; from then on the program of before cannot take part any more.
Never: lowered. Going back is possible before, not after.
"""

from typing import Final

from pydantic import Field

from trainhouse.events.model.announcements import ANNOUNCED_EVERY_MS as ANNOUNCED_EVERY_MS
from trainhouse.events.model.announcements import GONE_AFTER_MS as GONE_AFTER_MS
from trainhouse.events.model.base import Event
from trainhouse.events.model.bounds import SmallCount, TimestampMs

MAX_TEXT_CHARS: Final = 2048


class ProgramRunning(Event, type="trainhouse.upgrade.program-running.v1"):
    """A process that follows a journal, and what it reads and writes at most. Repeated each minute while it runs."""

    journal: str = Field(max_length=128, description="topic of the journal that it may own")
    process: str = Field(min_length=1, max_length=512, description="name of this start of the process")
    release: str = Field("", max_length=128, description="version of the package")
    decide_version: SmallCount = Field(description="version of decisions that it makes")
    fold_version: SmallCount = Field(description="the highest level that it reads and writes")
    lowest_level: SmallCount = Field(description="the lowest level that it writes")
    at_ms: TimestampMs

    def subject(self) -> str:
        return self.process

    @property
    def key(self) -> bytes:
        """The record's key in the compacted topic."""
        return f"running/{self.journal}/{self.process}".encode()


class UpgradeFinished(Event, type="trainhouse.upgrade.finished.v1"):
    """Every partition of the journal goes to this level: its owner writes a LevelRaised."""

    journal: str = Field(max_length=128, description="topic of the journal")
    level: SmallCount = Field(description="level that decisions may have from here on")
    reason: str = Field(min_length=1, max_length=MAX_TEXT_CHARS)
    user: str = Field(min_length=1, max_length=128)
    at_ms: TimestampMs

    def subject(self) -> str:
        return self.journal

    @property
    def key(self) -> bytes:
        """The record's key in the compacted topic."""
        return f"finished/{self.journal}/{self.level}".encode()


class LevelRaised(Event, type="trainhouse.upgrade.level-raised.v1"):
    """From this record on the partition's writers keep to `level`, which is the record's fold_version. Who asked for it, and why."""

    level: SmallCount = Field(description="level of decisions from here on")
    reason: str = Field(max_length=MAX_TEXT_CHARS)
    user: str = Field(max_length=128)
    asked_at_ms: TimestampMs = Field(description="time of the request, in milliseconds since 1970")
