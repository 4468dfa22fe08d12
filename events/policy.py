"""A scheduling policy: the whole of what may be chosen about who gets which devices, as data.

Holds: a policy that validates is complete and can be obeyed: its quota tree has no cycle, its numbers are in range. What needs a fleet to
be judged (a device type that no node has, a topology level that no node tells) is judged by the scheduler, before the policy counts.
Never: reads a file (`scheduler.policies` does).
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, model_validator

from trainhouse.events.base import Model
from trainhouse.events.spec import Label

MAX_TEAMS = 10_000


class Order(StrEnum):
    """Which waiting job comes first. Ties: the order of submission."""

    SUBMIT = "submit"
    SHORTEST = "shortest"
    REMAINING = "remaining"
    FAIR = "fair"
    SCORE = "score"


class Blocking(StrEnum):
    """What the first job that does not fit does to those behind it: stops them, nothing, or holds a start time that they may not delay."""

    STRICT = "strict"
    SKIP = "skip"
    BACKFILL = "backfill"


class RunTimes(StrEnum):
    """Where the expected run time of a job comes from. TRUE is the trace's own, for simulation only."""

    TRUE = "true"
    LIMITS = "limits"
    HISTORY = "history"


class Packing(StrEnum):
    """On which nodes a gang goes.

    TOPOLOGY: fewest topology domains, then fewest nodes, balanced. STRICT_CONSOLIDATE: whole nodes and one remainder, or nothing (a rule
    that published simulators share). BEST_FIT: the fullest node with room. FRAGMENTATION: where the fewest devices become useless for the
    jobs that are usual here (fragmentation gradient descent).
    """

    TOPOLOGY = "topology"
    STRICT_CONSOLIDATE = "strict-consolidate"
    BEST_FIT = "best-fit"
    FRAGMENTATION = "fragmentation"


class Score(Model):
    """score = (100 - priority) + wait bonus - over-share penalty; the highest is served first.

    Wait bonus: `wait_bonus_per_h` for each hour of waiting, at most `wait_bonus_max`; with `wait_in_run_times` an hour counts as
    the waiting time divided by the expected run time. Penalty: `over_share_weight` x (the team's share of its fair share - 1), never
    negative, at most `over_share_max`.
    """

    wait_bonus_per_h: float = Field(1.0, ge=0, le=1000)
    wait_bonus_max: float = Field(50.0, ge=0, le=10_000)
    wait_in_run_times: bool = False
    over_share_weight: float = Field(10.0, ge=0, le=1000)
    over_share_max: float = Field(50.0, ge=0, le=10_000)


class FairShare(Model):
    """Dominant-resource fairness. What a team holds now and what it held lately both count.

    `history` is the part of the second, whose weight halves every `half_life_h`.
    """

    half_life_h: float = Field(24.0, gt=0, le=24 * 365)
    history: float = Field(0.5, ge=0, le=1)


class Team(Model):
    """One node of the quota tree. `guaranteed` devices by type are its own; what it does not use it lends, if `lends`; beyond them it may

    borrow idle devices up to `limit` in all (absent: without bound). Type "any" speaks of all devices together.
    """

    name: Label
    parent: Label | None = None
    weight: float = Field(1.0, gt=0, le=1_000_000)
    guaranteed: dict[Label, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    limit: dict[Label, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    lends: bool = True


class Backfill(Model):
    """`reservations`: how many of the first jobs that do not fit hold a start time."""

    reservations: int = Field(1, ge=1, le=64)


class Preemption(Model):
    """Who may be stopped for whom, and at what price.

    A job gets `min_run_s` undisturbed from each start. A victim saves first, within `checkpoint_deadline_s`. A preemptor must lead a
    victim's score by `margin`; a team's own guaranteed devices are taken back from borrowers whatever the scores (`reclaim`).
    `restart_cost_s`: what a restart costs each device of a victim.
    """

    enabled: bool = False
    reclaim: bool = True
    margin: float = Field(10.0, ge=0, le=1000)
    min_run_s: float = Field(600.0, ge=0, le=7 * 86_400)
    checkpoint_deadline_s: float = Field(120.0, ge=0, le=3600)
    restart_cost_s: float = Field(60.0, ge=0, le=86_400)
    max_victims: int = Field(64, ge=1, le=10_000)


class Elastic(Model):
    """Gangs with min..max: grow into devices that nobody waits for, shrink before anybody is preempted."""

    enabled: bool = True
    grow_after_s: float = Field(300.0, ge=0, le=86_400)


class Defragmentation(Model):
    """Moves of running jobs that let a waiting gang start: only when its gain exceeds what the moves cost, at most so many an hour."""

    enabled: bool = False
    max_moves_per_h: int = Field(10, ge=1, le=10_000)
    min_gain: float = Field(2.0, ge=1, le=1000)


class SchedulingPolicy(Model):
    """The whole policy of a pool."""

    name: Label = "default"
    order: Order = Order.SCORE
    blocking: Blocking = Blocking.BACKFILL
    run_times: RunTimes = RunTimes.HISTORY
    packing: Packing = Packing.TOPOLOGY
    score: Score = Score()
    fair_share: FairShare = FairShare()
    teams: tuple[Team, ...] = Field((), max_length=MAX_TEAMS)
    backfill: Backfill = Backfill()
    preemption: Preemption = Preemption()
    elastic: Elastic = Elastic()
    defragmentation: Defragmentation = Defragmentation()

    @model_validator(mode="after")
    def _a_tree(self) -> "SchedulingPolicy":
        parents = {t.name: t.parent for t in self.teams}
        if len(parents) != len(self.teams):
            names = [t.name for t in self.teams]
            raise ValueError(f"teams: {next(n for n in names if names.count(n) > 1)} is named twice; keep one of them")
        for name, parent in parents.items():
            if parent is not None and parent not in parents:
                raise ValueError(f"teams: the parent {parent} of {name} is no team of this policy; add it, or leave the parent out")
            seen = [name]
            while parent is not None:
                if parent in seen:
                    raise ValueError(f"teams: {' -> '.join((*seen, parent))} is a cycle; a team cannot be below itself")
                seen.append(parent)
                parent = parents[parent]
        return self
