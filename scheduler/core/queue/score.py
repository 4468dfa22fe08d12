"""The score of a waiting job: (100 - priority) + wait bonus - over-share penalty. The highest is served first.

Holds: whole numbers (millionths of a point), so that no rounding decides; each term is visible.
Never: looks at devices.
"""

from dataclasses import dataclass

from trainhouse.events.model.policy import SchedulingPolicy
from trainhouse.events.model.policy import Score as ScoreRule
from trainhouse.scheduler.core.queue.entries import Waiting
from trainhouse.scheduler.core.queue.pool_lanes import UNKNOWN_RUN_MS, grade_ms
from trainhouse.scheduler.core.queue.pool_usage import PoolUsage

POINT = 1_000_000
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Score:
    """A score with its terms, in millionths of a point. `share` and `fair_share` are what the penalty follows from."""

    priority_term: int
    wait_bonus: int
    over_share_penalty: int
    share: float = 0.0
    fair_share: float = 1.0

    @property
    def total(self) -> int:
        return self.priority_term + self.wait_bonus - self.over_share_penalty

    def text(self) -> str:
        """For example: 63.5 = 50 (100 - priority) + 20 (wait) - 6.5 (over share)."""
        terms = (self.total, self.priority_term, self.wait_bonus, self.over_share_penalty)
        total, priority, wait, penalty = (f"{t / POINT:.6f}".rstrip("0").rstrip(".") for t in terms)
        return f"{total} = {priority} (100 - priority) + {wait} (wait) - {penalty} (over share)"


class WaitRule:
    """The wait bonus of a policy, in whole numbers: the same for every machine, and quick for each lane of each cycle.

    In run times it is a response ratio (Brinch Hansen, "An Analysis of Response Ratio Scheduling", IFIP 1971): what was waited over what
    is still to run, bent so that it never reaches its most: no bonus is worth more than so much of a priority, and none ties with another.

    Waiting is all time since the submission without devices: what a preempted job waited before counts on.
    """

    __slots__ = ("head_start_ms", "in_run_times", "most", "per_h")

    def __init__(self, rule: ScoreRule) -> None:
        self.per_h = round(rule.wait_bonus_per_h * POINT)
        self.most = round(rule.wait_bonus_max * POINT)
        self.in_run_times = rule.wait_in_run_times
        self.head_start_ms = round(rule.wait_head_start_h * HOUR_MS)

    def bonus(self, job: Waiting, now_ms: int) -> int:
        """Millionths of a point for waiting. In run times: those of the classes of lanes, so that a lane stays in order."""
        return self.bonus_in(grade_ms(job.run_ms) if self.in_run_times else 0, job, now_ms)

    def bonus_in(self, grade: int, job: Waiting, now_ms: int) -> int:
        """The same for a job of a lane with this class of run times (0: none)."""
        waited = now_ms - job.submitted_ms - job.ran_ms
        if self.in_run_times:
            return self.ratio(waited, HOUR_MS if grade == UNKNOWN_RUN_MS or not grade else grade)
        bonus = max(0, waited) * self.per_h // HOUR_MS
        return bonus if bonus < self.most else self.most

    def ratio(self, waited_ms: int, run_ms: int) -> int:
        """Millionths of a point for having waited so long for so much run time."""
        points = (max(0, waited_ms) + self.head_start_ms) * self.per_h
        return self.most * points // (self.most * run_ms + points) if points else 0


def over_share_penalty(share: float, fair: float, rule: ScoreRule) -> int:
    """Millionths of a point for using more than is fair."""
    over = min(share / fair - 1.0, 1e6)
    if over <= 0.0:
        return 0
    return min(round(rule.over_share_max * POINT), int(over * rule.over_share_weight * POINT))


def score(job: Waiting, policy: SchedulingPolicy, usage: PoolUsage, fair: float, now_ms: int) -> Score:
    """The score of a job now. `fair`: its team's entry of `usage.fair_shares(teams that wait)`."""
    share = usage.share(job.team, now_ms)
    penalty = over_share_penalty(share, fair, policy.score)
    return Score((100 - job.priority) * POINT, WaitRule(policy.score).bonus(job, now_ms), penalty, share, fair)
