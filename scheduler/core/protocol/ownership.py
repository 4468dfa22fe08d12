"""Whether this process decides for a partition now: assigned by the group, or standing in because nothing is decided there.

Holds: the journal's rule keeps two deciders safe, so this only has to make progress: where something is owed (inputs wait, a timer has run
out, effects are not out), a process decides within `takeover_s`. Where nothing is, an owner appends a record every `quiet_s`, and a journal
that lacks it for `takeover_s` more gets a stand-in. A stand-in steps back as soon as another owner's record counts.
Never: reads a clock; times come in as seconds of any steady clock.
"""

from dataclasses import dataclass
from typing import Final

QUIET_S: Final = 120.0
"""An idle owner appends a record so often: with a held start that is put off now and again, fewer than one a minute in all."""


@dataclass(slots=True)
class Ownership:
    """The role of one process on one partition. `owed_since_s`: since when this process has seen that something is owed there."""

    owner: str
    takeover_s: float
    last_record_at_s: float
    assigned: bool = False
    standing_in: bool = False
    quiet_s: float = QUIET_S
    owed_since_s: float | None = None

    def on_record(self, owner: str, now_s: float) -> None:
        """A record of `owner` counted."""
        self.last_record_at_s = now_s
        if owner != self.owner:
            self.standing_in = False

    def on_owed(self, owed: bool, since_s: float) -> None:
        """Whether something is owed; if so, since then at the earliest."""
        if not owed:
            self.owed_since_s = None
        elif self.owed_since_s is None:
            self.owed_since_s = since_s

    def on_assigned(self) -> None:
        """The group gave this process the partition."""
        self.assigned = True

    def on_revoked(self) -> None:
        """The group took it away."""
        self.assigned = False

    def on_fenced(self, now_s: float) -> None:
        """Another publisher took over: step back whatever the group said, until it assigns again or the journal goes silent."""
        self.assigned = self.standing_in = False
        self.last_record_at_s = now_s

    def on_given_up(self, now_s: float) -> None:
        """It could not publish for long: another process has its turn, and this one tries again where none takes it."""
        self.on_fenced(now_s)
        self.last_record_at_s = now_s + self.takeover_s

    def quiet(self, now_s: float) -> bool:
        """Whether an idle owner's next record is due."""
        return now_s - self.last_record_at_s >= self.quiet_s

    def decides(self, now_s: float) -> bool:
        """Whether to decide now; becomes a stand-in when the partition was left alone for too long."""
        if not self.assigned and not self.standing_in and self._left_alone(now_s):
            self.standing_in = True
        return self.assigned or self.standing_in

    def _left_alone(self, now_s: float) -> bool:
        silent_s = now_s - self.last_record_at_s
        if silent_s >= self.quiet_s + self.takeover_s:
            return True
        return self.owed_since_s is not None and min(silent_s, now_s - self.owed_since_s) >= self.takeover_s
