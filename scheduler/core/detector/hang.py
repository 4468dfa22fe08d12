"""A gang that makes no step: judged from the ranks of one node.

Holds: a rank has patience, and uses it up while it makes no step and says nothing new: a span of time uses up its share of the limit that
holds then. A step, or another activity, gives all patience back. So does a gap in what is known of it: unobserved time does not
count; a figure that is no number is ignored. A rank with a pulse may be waiting for another one, so its limit is that of the most
patient rank here: while one saves, all may take as long as a save. A rank whose pulse is gone too waits for no other: it is judged by its
own limit. One that never spoke has no session, or hangs before it begins one: it is judged where the policy has a limit for that.
Never: compares clocks of two machines.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import isnan
from typing import Final

from trainhouse.events import RankActivity, RankHeartbeat, RankState
from trainhouse.events.model.failure_policy import Detection

DATA_PATIENCE: Final = 10
"""A rank that waits for its data has so many times the limit of a step, at least that of a start: another attempt would wait too."""
DEAF_SHARE: Final = 0.5
DEAF_LEAST_MS: Final = 1_500
"""A rank is deaf when no pulse came for so much of its time without a step, and for so long; a pulse is due once a second."""
LEAST_LIMIT_S: Final = 0.001
ALL: Final = 1 - 1e-9
"""All patience: shares that add up to one may be a little less in binary fractions."""


@dataclass(slots=True)
class RankWatch:
    """Progress of one rank as observed. `used_alone`, `used`: the share of its timeout that has passed, by its own limit and by the gang's.

    `moved`: it made a step, or reported something new, since it was first seen and since it was last stuck.
    """

    step: int | None = None
    activity: RankActivity | None = None
    activity_since_ms: int | None = None
    pulse_at_ms: int | None = None
    own_s: float = 0.0
    shared_s: float = 0.0
    used_alone: float = 0.0
    used: float = 0.0
    still_ms: int = 0
    deaf_ms: int = 0
    stuck: bool = False
    moved: bool = False

    def spoke(self) -> bool:
        """Whether it ever showed a session."""
        return self.step is not None or self.pulse_at_ms is not None

    def deaf(self) -> bool:
        """Whether not even its pulse came while it made no step: stopped, or in native code that lets no thread run."""
        return self.pulse_at_ms is not None and self.deaf_ms >= max(DEAF_LEAST_MS, DEAF_SHARE * self.still_ms)


def step_limit_s(rank: RankHeartbeat, limits: Detection) -> float:
    """Returns the longest normal duration of a step, in seconds, by the rank's own steps; before there are any, the limit of a start."""
    p99_ms, longest_ms = _number(rank.step_time_p99_ms), _number(rank.longest_step_ms)
    if rank.step is None or p99_ms is None:
        return limits.start_limit_s
    by_rhythm_s = limits.hang_factor * p99_ms / 1000
    by_longest_s = limits.longest_factor * (longest_ms or 0.0) / 1000
    return max(by_rhythm_s, by_longest_s, limits.hang_floor_s, LEAST_LIMIT_S)


def _number(value: float | None) -> float | None:
    return None if value is None or isnan(value) else value


def own_limit_s(rank: RankHeartbeat, limits: Detection) -> float | None:
    """Returns how long a rank may stay in its activity without a step, in seconds; None if it is expected to make none."""
    if rank.state is RankState.EXITED or rank.activity is RankActivity.DONE:
        return None
    if rank.activity is RankActivity.STARTING:
        return limits.start_limit_s
    if rank.activity is RankActivity.SAVING:
        return limits.save_limit_s
    if rank.activity is RankActivity.BUSY:
        announced_s = _number(rank.activity_limit_s)
        return limits.start_limit_s if announced_s is None else max(announced_s, LEAST_LIMIT_S)
    if rank.activity is RankActivity.WAITING_FOR_DATA:
        return max(DATA_PATIENCE * step_limit_s(rank, limits), limits.start_limit_s)
    return step_limit_s(rank, limits)


def patient_limit_s(rank: RankHeartbeat, own_s: float, limits: Detection) -> float:
    """The same for a rank that has a pulse: while it makes steps, it may be waiting for another one."""
    return own_s if rank.pulse_at_ms is None else max(own_s, limits.live_floor_s)


def watch_rank(watch: RankWatch, rank: RankHeartbeat, own_s: float, shared_s: float, at_ms: int, seen_ms: int | None) -> None:
    """Takes in a heartbeat. `shared_s`: the limit of the most patient rank here. `seen_ms`: as in `Sustained.see`."""
    if watch.spoke() and rank.step is None and rank.activity is None and rank.pulse_at_ms is None:
        seen_ms = None  # an agent that has just started, and knows nothing of it yet
    stepped = rank.step is not None and rank.step != watch.step
    turned = rank.activity is not None and (rank.activity, rank.activity_since_ms) != (watch.activity, watch.activity_since_ms)
    known = watch.spoke()
    _update_pulse(watch, rank, at_ms, seen_ms)
    own_before_s, shared_before_s = watch.own_s, watch.shared_s
    watch.own_s, watch.shared_s = own_s, shared_s
    if stepped or turned:
        watch.moved = known
        moved_ms = max((rank.step_at_ms or at_ms) if stepped else 0, (rank.activity_since_ms or at_ms) if turned else 0)
        span_ms = watch.still_ms = _since(moved_ms, at_ms, seen_ms)
        watch.used_alone, watch.used, watch.stuck = span_ms / (1000 * own_s), span_ms / (1000 * shared_s), False
        _remember(watch, rank, turned)
    elif seen_ms is None:
        watch.still_ms, watch.used_alone, watch.used = 0, 0.0, 0.0
    else:
        watch.still_ms += seen_ms
        watch.used_alone += seen_ms / (1000 * max(own_s, own_before_s))
        watch.used += seen_ms / (1000 * max(shared_s, shared_before_s))
    no_live_pulse = watch.pulse_at_ms is None or watch.deaf()
    watch.stuck = watch.stuck or watch.used >= ALL or (watch.used_alone >= ALL and no_live_pulse)
    watch.moved = watch.moved and not watch.stuck


def _remember(watch: RankWatch, rank: RankHeartbeat, turned: bool) -> None:
    watch.step = watch.step if rank.step is None else rank.step
    if turned:
        watch.activity, watch.activity_since_ms = rank.activity, rank.activity_since_ms


def _update_pulse(watch: RankWatch, rank: RankHeartbeat, at_ms: int, seen_ms: int | None) -> None:
    if rank.pulse_at_ms is not None and rank.pulse_at_ms != watch.pulse_at_ms:
        watch.pulse_at_ms, watch.deaf_ms = rank.pulse_at_ms, _since(rank.pulse_at_ms, at_ms, seen_ms)
    else:
        watch.deaf_ms = 0 if seen_ms is None else watch.deaf_ms + seen_ms


def _since(moment_ms: int, at_ms: int, seen_ms: int | None) -> int:
    """Returns the age of a moment by clocks of one machine, in ms; at most the observed age, in case one of the clocks jumped."""
    return min(max(0, at_ms - moment_ms), seen_ms or 0)


def culprits(ranks: Iterable[tuple[int, RankWatch]]) -> tuple[int, ...]:
    """The ranks that others wait for, as far as this node's heartbeats show: those that are deaf, or else silent, or behind; maybe none."""
    known = list(ranks)
    deaf = tuple(n for n, w in known if w.stuck and w.deaf())
    if deaf:
        return deaf
    silent = tuple(n for n, w in known if w.stuck and not w.spoke())
    if silent and len(silent) < len(known):
        return silent
    steps = [w.step for _, w in known if w.step is not None]
    return tuple(n for n, w in known if w.stuck and w.step is not None and w.step < max(steps))
