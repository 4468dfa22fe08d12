"""Progress of an update of the control plane: the running programs, the level of each partition, and the level that may be finished.

Holds: pure. The level that may be finished is what every program that runs reads and writes; one that reports none holds it back.
Never: writes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trainhouse.events.model.announcements import GONE_AFTER_MS
from trainhouse.events.wire.topics import DECISIONS, DIRECTORY, REGISTRY

if TYPE_CHECKING:
    from trainhouse.events.model.upgrade import ProgramRunning

KNOWN_LEVELS: Final = {DIRECTORY: 17, DECISIONS: 22, REGISTRY: 3}
"""The level that this program knows of each journal: the fold_version of its machine, without a machine."""


@dataclass(frozen=True, slots=True)
class PartitionLevel:
    """A partition of a journal: its level (0: it has no record yet), and who wrote its newest record, when by the brokers' clock."""

    partition: int
    level: int
    owner: str = ""
    appended_ms: int = 0


@dataclass(frozen=True, slots=True)
class JournalUpgrade:
    """One journal. `known`: the level that this program knows. `now_ms`: the newest append time that was seen."""

    journal: str
    known: int
    partitions: Sequence[PartitionLevel]
    programs: "Sequence[ProgramRunning]"
    now_ms: int

    @property
    def level(self) -> int:
        """The lowest level of its partitions; 0 while none has a record."""
        return min((p.level for p in self.partitions if p.level), default=0)

    @property
    def highest(self) -> int:
        """The highest level of its partitions."""
        return max((p.level for p in self.partitions), default=0)

    @property
    def reachable(self) -> int:
        """The level that every program that runs reads and writes; of this program where none runs."""
        return min((p.fold_version for p in self.programs), default=self.known)

    @property
    def newest(self) -> int:
        """The level of the newest program."""
        return max((p.fold_version for p in self.programs), default=self.known)

    @property
    def silent(self) -> list[str]:
        """Processes that wrote lately and do not announce what they run: they are of a version before there were levels."""
        names = {p.process for p in self.programs}
        late = {p.owner for p in self.partitions if p.owner and self.now_ms - p.appended_ms < GONE_AFTER_MS}
        return sorted(late - names)

    @property
    def behind(self) -> "list[ProgramRunning]":
        """Programs that keep the level from going to that of the newest."""
        return [p for p in self.programs if p.fold_version < self.newest]

    @property
    def can_finish(self) -> bool:
        """Whether there is a level to go to, and nothing that runs would be left behind."""
        return not self.silent and bool(self.level) and self.reachable > self.level and self.reachable >= self.highest

    def state(self) -> str:
        """One sentence for a person."""
        if not self.level:
            return "it has no record yet: it begins at the level of the program that writes the first one"
        if self.silent:
            return (
                f"{self.silent[0]} does not announce what it runs, so it is of an older version: update or stop it, then finish the update"
            )
        if self.can_finish:
            return f"all that runs reads and writes level {self.reachable}: the update can be finished, and until then undone"
        if self.behind:
            first = self.behind[0]
            return f"an update is under way: {first.process} runs level {first.fold_version}; update or stop it, then finish the update"
        return "nothing is to be finished"
