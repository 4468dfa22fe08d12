"""A notice: this node goes away at a known time.

Holds: plain data. All moments follow from when it was heard and when the node goes, so that a repeat changes none of them.
"""

from dataclasses import dataclass

# The scheduler can ask every rank of a gang, an agent its own only: the scheduler gets so long, half of what is left at most.
PATIENCE_MS = 10_000
# SIGTERM comes so long before the end, SIGKILL so long: then there is time left to tell how it went. Of a short notice, shares of it.
TERM_BEFORE_MS, KILL_BEFORE_MS = 3_000, 1_000
TERM_SHARE, KILL_SHARE = 4, 12


@dataclass(frozen=True, slots=True)
class Notice:
    """Termination notice, received at `at_ms` from `source`; the node goes at `deadline_ms`."""

    source: str
    reason: str
    at_ms: int
    deadline_ms: int

    @property
    def left_ms(self) -> int:
        """Time that was left when the notice was read."""
        return max(0, self.deadline_ms - self.at_ms)

    @property
    def ask_ms(self) -> int:
        """From when on the agent asks its ranks by itself."""
        return self.at_ms + min(PATIENCE_MS, self.left_ms // 2)

    @property
    def stop_ms(self) -> int:
        """Time of the SIGTERM for attempts that are still here."""
        return self.at_ms + self.left_ms - min(TERM_BEFORE_MS, self.left_ms // TERM_SHARE)

    @property
    def kill_ms(self) -> int:
        """Time by which no attempt may be here."""
        return self.at_ms + self.left_ms - min(KILL_BEFORE_MS, self.left_ms // KILL_SHARE)

    def __str__(self) -> str:
        return f"its node goes away ({self.source}" + (f": {self.reason})" if self.reason else ")")
