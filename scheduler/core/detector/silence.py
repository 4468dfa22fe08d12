"""Silence of a node: suspected when that is unusual for it, lost at a hard limit.

Holds: limits are those of its pool's policy, in heartbeats of its own rhythm. A node that is usually punctual is suspected at
`suspected_beats`; one whose heartbeats come irregularly only when phi says that this silence is unusual even for it.
Never: measures time; silence comes in as milliseconds of listening.
"""

from enum import StrEnum
from math import isnan
from typing import Final

from trainhouse.events.model.failure_policy import Detection
from trainhouse.scheduler.core.detector.heartbeat_stats import Rhythm

MIN_INTERVAL_S: Final = 0.2
MAX_INTERVAL_S: Final = 60.0
UNUSUAL_PHI: Final = 8.0
"""A chance of 1 in 10^8."""


class Liveness(StrEnum):
    """Last verdict of the detector on a node's heartbeats."""

    ALIVE = "ALIVE"
    SUSPECTED = "SUSPECTED"
    LOST = "LOST"


def bounded_interval_s(interval_s: float) -> float:
    """The promised interval of heartbeats, within what makes sense; one that is no number is a long one."""
    return MAX_INTERVAL_S if isnan(interval_s) else min(max(interval_s, MIN_INTERVAL_S), MAX_INTERVAL_S)


def standing_after(silent_ms: int, rhythm: Rhythm, interval_s: float, before: Liveness, limits: Detection) -> Liveness:
    """Returns a node's liveness after a silence; silence never improves it."""
    beat_ms = rhythm.mean_ms(1000 * interval_s)
    if before is Liveness.LOST or silent_ms >= limits.lost_beats * beat_ms:
        return Liveness.LOST
    if before is Liveness.SUSPECTED or silent_ms < limits.suspected_beats * beat_ms:
        return before
    return Liveness.SUSPECTED if rhythm.phi(silent_ms, 1000 * interval_s) >= UNUSUAL_PHI else before


def first_look_ms(interval_s: float, limits: Detection) -> int:
    """No silence shorter than this changes anything: a node that is not silent for so long need not be looked at."""
    return int(1000 * interval_s * min(limits.suspected_beats, limits.lost_beats))
