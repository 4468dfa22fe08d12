"""Share of a recent window that a rank spent waiting, from totals that only grow.

Holds: a few samples at most, about a sixth of the window apart, however often heartbeats come. A clock or total that went back begins anew.
"""

from dataclasses import dataclass, field
from typing import Final

PIECES: Final = 6
MAX_SAMPLES: Final = PIECES + 3


@dataclass(slots=True)
class Totals:
    """Samples of (time by the node's clock, seconds of waiting for data, seconds of being held up by saves)."""

    samples: list[tuple[int, float, float]] = field(default_factory=list)

    def add(self, at_ms: int, data_wait_s: float, save_stall_s: float, window_s: float) -> None:
        """One heartbeat. Keeps the newest sample that is older than the window, and those after it."""
        kept = self.samples
        if kept and (at_ms < kept[-1][0] or data_wait_s < kept[-1][1] or save_stall_s < kept[-1][2]):
            kept.clear()
        if kept and (at_ms - kept[-1][0]) * PIECES < 1000 * window_s:
            return
        kept.append((at_ms, data_wait_s, save_stall_s))
        while len(kept) > 1 and (at_ms - kept[1][0] >= 1000 * window_s or len(kept) > MAX_SAMPLES):
            del kept[0]

    def shares(self, at_ms: int, data_wait_s: float, save_stall_s: float, window_s: float) -> tuple[float, float, int] | None:
        """Shares of data wait and save stall since the sample that is a window old, and its time; None before there is one."""
        old = next((s for s in reversed(self.samples) if at_ms - s[0] >= 1000 * window_s), None)
        if old is None:
            return None
        spent_s = (at_ms - old[0]) / 1000
        return _share(data_wait_s - old[1], spent_s), _share(save_stall_s - old[2], spent_s), old[0]


def _share(waited_s: float, spent_s: float) -> float:
    return min(1.0, max(0.0, waited_s / spent_s))
