"""Whether this process decides for a partition now: assigned by the group, or standing in because the journal went silent.

Holds: the journal's rule keeps two deciders safe, so this only has to make progress: somebody decides within `takeover_s`,
and a stand-in steps back as soon as another owner's record counts.
Never: reads a clock; times come in as seconds of any steady clock.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Ownership:
    """The role of one process on one partition."""

    owner: str
    takeover_s: float
    heard_at_s: float
    assigned: bool = False
    standing_in: bool = False

    def on_record(self, owner: str, now_s: float) -> None:
        """A record of `owner` counted."""
        self.heard_at_s = now_s
        if owner != self.owner:
            self.standing_in = False

    def on_assigned(self) -> None:
        """The group gave this process the partition."""
        self.assigned = True

    def on_revoked(self) -> None:
        """The group took it away."""
        self.assigned = False

    def on_fenced(self, now_s: float) -> None:
        """Another publisher took over: step back whatever the group said, until it assigns again or the journal goes silent."""
        self.assigned = self.standing_in = False
        self.heard_at_s = now_s

    def on_given_up(self, now_s: float) -> None:
        """It could not publish for long: another process has its turn, and this one tries again where none takes it."""
        self.on_fenced(now_s)
        self.heard_at_s = now_s + self.takeover_s

    def decides(self, now_s: float) -> bool:
        """Whether to decide now; becomes a stand-in when the journal has been silent for too long."""
        if not self.assigned and not self.standing_in and now_s - self.heard_at_s >= self.takeover_s:
            self.standing_in = True
        return self.assigned or self.standing_in
