"""A scheduling policy: the whole of what may be chosen about who gets which devices, as data.

Holds: a policy that validates is complete and can be obeyed: its quota tree has no cycle, its numbers are in range. What needs a fleet to
be judged (a device type that no node has, a topology level that no node tells) is judged by the scheduler, before the policy counts.
Never: reads a file (`scheduler.policies` does).
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from trainhouse.events.model.base import Model
from trainhouse.events.model.bounds import MOST_ITEMS
from trainhouse.events.model.failure_policy import Failures
from trainhouse.events.model.spec import Label

MAX_TEAMS = 10_000
MAX_DEPTH = 16
"""Levels of teams, one below the other."""

Devices = Annotated[dict[Label, Annotated[int, Field(ge=0, le=10_000_000)]], Field(max_length=MOST_ITEMS)]
"""Numbers of devices by type; "any" speaks of all types together."""


class Order(StrEnum):
    """Order of waiting jobs. Ties: the order of submission.

    SHORTEST: least expected run time; REMAINING: the same, and preemption ranks running gangs by it too. FAIR: the team with the
    least share of what is fair for it, then priority. SCORE: see Score.
    """

    SUBMIT = "submit"
    SHORTEST = "shortest"
    REMAINING = "remaining"
    FAIR = "fair"
    SCORE = "score"


class Blocking(StrEnum):
    """Effect of the first job that does not fit on those behind it: stops them, nothing, or holds a start time that they may not delay."""

    STRICT = "strict"
    SKIP = "skip"
    BACKFILL = "backfill"


class RunTimes(StrEnum):
    """Source of a job's expected run time. TRUE is the trace's own, for simulation only."""

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


class Victims(StrEnum):
    """Whom preemption stops first of those whom it may stop: who loses least, or (what many schedulers do) who started last."""

    LEAST_LOST = "least-lost"
    MOST_RECENT = "most-recent"


class Score(Model):
    """score = (100 - priority) + wait bonus - over-share penalty; the highest is served first.

    Wait bonus: `wait_bonus_per_h` for each hour of waiting, at most `wait_bonus_max`. With `wait_in_run_times` it is that for each of
    its own expected (remaining) run times that a job waited, as if it had waited `wait_head_start_h` when it came, and the bonus bends
    towards the most: x points become most * x / (most + x). So short jobs come first, and long ones surely. Penalty:
    `over_share_weight` x (the team's share of its fair share - 1), never negative, at most `over_share_max`.
    """

    wait_bonus_per_h: float = Field(1.0, ge=0, le=1000)
    wait_bonus_max: float = Field(50.0, ge=0, le=10_000)
    wait_in_run_times: bool = False
    wait_head_start_h: float = Field(0.0, ge=0, le=1000)
    over_share_weight: float = Field(10.0, ge=0, le=1000)
    over_share_max: float = Field(50.0, ge=0, le=10_000)


class FairShare(Model):
    """Dominant-resource fairness. What a team holds now and what it held lately both count.

    `history` is the part of the second, whose weight halves every `half_life_h`.
    """

    half_life_h: float = Field(24.0, gt=0, le=24 * 365)
    history: float = Field(0.5, ge=0, le=1)


class Team(Model):
    """One team of the quota tree, itself and all teams below it.

    `guaranteed` devices are its own; what it does not use it lends, if `lends`; beyond them it may borrow idle devices, up to `limit` in
    all (absent: without bound). Without `guaranteed` it has what the teams below it have together.
    """

    name: Label
    parent: Label | None = None
    weight: float = Field(1.0, gt=0, le=1_000_000)
    guaranteed: Devices = Field(default_factory=dict)
    limit: Devices = Field(default_factory=dict)
    lends: bool = True

    @model_validator(mode="after")
    def _can_be_used(self) -> "Team":
        for device_type, count in sorted(self.guaranteed.items()):
            limit = self.limit.get(device_type)
            if limit is not None and count > limit:
                raise ValueError(f"team {self.name} is guaranteed {count} {device_type} and limited to {limit}; raise the limit")
        return self


class Topology(Model):
    """`prefer`: the topology level (such as "rack") in one domain of which a gang goes if it can, where its own spec prefers none."""

    prefer: Label | None = None


class Backfill(Model):
    """`reservations`: how many of the first jobs that do not fit hold a start time."""

    reservations: int = Field(1, ge=1, le=64)


class Preemption(Model):
    """Preemption: eligible victims and preemptors, and the price.

    A job gets `min_run_s` undisturbed from each start. A victim saves first, within `checkpoint_deadline_s`. A preemptor must lead a
    victim's score by `margin` (order REMAINING: have the shorter remaining run time); a team's own guaranteed devices are taken back from
    borrowers whatever the scores (`reclaim`). `restart_cost_s`: what a restart costs each device of a victim.

    Under order SCORE priorities alone lead, unless `by_score_every_s` is above 0: then, at most once in so many seconds, whole scores do
    (a running gang's counts what it waited before its start and what it is expected to run still), but never against a higher priority.
    """

    enabled: bool = False
    reclaim: bool = True
    margin: float = Field(10.0, ge=0, le=1000)
    min_run_s: float = Field(600.0, ge=0, le=7 * 86_400)
    checkpoint_deadline_s: float = Field(120.0, ge=0, le=3600)
    restart_cost_s: float = Field(60.0, ge=0, le=86_400)
    max_victims: int = Field(64, ge=1, le=10_000)
    by_score_every_s: float = Field(0.0, ge=0, le=86_400)
    victims: Victims = Victims.LEAST_LOST


class Elastic(Model):
    """Gangs with min..max: grow into devices that nobody waits for, shrink before anybody is preempted."""

    enabled: bool = True
    grow_after_s: float = Field(300.0, ge=0, le=86_400)


class Defragmentation(Model):
    """Moves of running jobs that let a waiting gang start: only when its gain exceeds what the moves cost, at most so many an hour.

    They are looked for once in `look_every_s`: they are few, and looking for them is dear.
    """

    enabled: bool = False
    max_moves_per_h: int = Field(10, ge=1, le=10_000)
    min_gain: float = Field(2.0, ge=1, le=1000)
    look_every_s: int = Field(300, ge=1, le=86_400)


class Price(Model):
    """Price of one device's hour. `spot`: on a node with the label spot=true; absent: the same."""

    reserved: float = Field(ge=0, le=1_000_000)
    spot: float | None = Field(None, ge=0, le=1_000_000)


class Prices(Model):
    """Prices of device time, by device type; "any" speaks of every type that is not named. For the view `cost`: decides nothing."""

    currency: str = Field("USD", max_length=3, pattern="^[A-Z]{3}$", description="ISO 4217")
    devices: dict[Label, Price] = Field(min_length=1, max_length=1000)


class Isolation(StrEnum):
    """Nodes that run jobs. REQUIRED: those alone that confine each job whole, by their registration."""

    ANY = "any"
    REQUIRED = "required"


class UnlistedTeams(StrEnum):
    """Treatment of jobs of a team that `teams` does not list.

    UNLIMITED (the default): it has no guarantee, and borrows what is idle without bound. REFUSED: its jobs are rejected until a policy
    lists it; those that wait already go on waiting, and what runs goes on.
    """

    UNLIMITED = "unlimited"
    REFUSED = "refused"


def _is_unlimited(value: object) -> bool:
    return value == UnlistedTeams.UNLIMITED


class SchedulingPolicy(Model):
    """The whole policy of a pool."""

    name: Label = "default"
    order: Order = Order.SCORE
    blocking: Blocking = Blocking.BACKFILL
    run_times: RunTimes = RunTimes.HISTORY
    packing: Packing = Packing.TOPOLOGY
    score: Score = Score()
    fair_share: FairShare = FairShare()
    topology: Topology = Topology()
    teams: tuple[Team, ...] = Field((), max_length=MAX_TEAMS)
    unlisted_teams: UnlistedTeams = Field(UnlistedTeams.UNLIMITED, exclude_if=_is_unlimited)
    backfill: Backfill = Backfill()
    preemption: Preemption = Preemption()
    elastic: Elastic = Elastic()
    defragmentation: Defragmentation = Defragmentation()
    failures: Failures = Failures()
    prices: Prices | None = None
    isolation: Isolation = Isolation.ANY

    @field_validator("run_times", mode="before")
    @classmethod
    def _true_as_yaml_reads_it(cls, value: object) -> object:
        return RunTimes.TRUE if value is True else value

    @model_validator(mode="after")
    def _a_tree(self) -> "SchedulingPolicy":
        at: dict[str, int] = {}
        for index, team in enumerate(self.teams):
            if team.name in at:
                raise _team_error(index, "name", f"{team.name} is named twice; keep one of them")
            at[team.name] = index
        for index, team in enumerate(self.teams):
            if team.parent is not None and team.parent not in at:
                text = f"the parent {team.parent} of {team.name} is no team of this policy; add it, or leave the parent out"
                raise _team_error(index, "parent", text)
        for index in range(len(self.teams)):
            self._check_way_up(index, at)
        return self

    def _check_way_up(self, index: int, at: dict[str, int]) -> None:
        """From a team to the top: each team once, and not too many."""
        path: dict[str, None] = {}
        name: str | None = self.teams[index].name
        while name is not None:
            if name in path:
                names = list(path)
                chain = " -> ".join((*names[names.index(name) :], name))
                raise _team_error(at[name], "parent", f"{chain} is a cycle; a team cannot be below itself")
            path[name] = None
            name = self.teams[at[name]].parent
        if len(path) > MAX_DEPTH:
            text = f"{self.teams[index].name} is {len(path)} levels deep, at most {MAX_DEPTH} are allowed; make the tree flatter"
            raise _team_error(index, "parent", text)


def _team_error(index: int, field: str, text: str) -> PydanticCustomError:
    """An error that says which team it is about, for who shows lines of a file."""
    return PydanticCustomError("policy_team", "teams: {text}", {"text": text, "index": index, "field": field})
