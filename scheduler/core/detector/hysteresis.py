"""Something that is so, or is not so, and for how long it was seen to be.

Holds: only time between two heartbeats that follow one another counts; unobserved time does not count.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Sustained:
    """`held_ms`: how long it was seen to be as it is now. `since_ms`: when that began, by the node's clock."""

    bad: bool = False
    held_ms: int = 0
    since_ms: int = 0

    def see(self, bad: bool, at_ms: int, seen_ms: int | None) -> None:
        """One heartbeat more. `seen_ms`: time since the one before; None if there was a gap."""
        if bad is not self.bad:
            self.bad, self.held_ms, self.since_ms = bad, 0, at_ms
        elif seen_ms is not None:
            self.held_ms += seen_ms

    def verdict(self, after_s: float) -> bool | None:
        """True: bad for long enough. False: well for long enough. None: neither."""
        return self.bad if self.held_ms >= 1000 * after_s else None
