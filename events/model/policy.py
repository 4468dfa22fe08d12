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
from trainhouse.events.model.labels import Label

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
    """Order of eligible victims: those that lose least first, or (as many schedulers do) those that started last."""

    LEAST_LOST = "least-lost"
    MOST_RECENT = "most-recent"


class Score(Model):
    """score = (100 - priority) + wait bonus - over-share penalty; the highest is served first.

    Wait bonus: `wait_bonus_per_h` for each hour of waiting, at most `wait_bonus_max`. With `wait_in_run_times` it is that for each of
    its own expected (remaining) run times that a job waited, as if it had waited `wait_head_start_h` when it came, and the bonus bends
    towards the most: x points become most * x / (most + x). So short jobs come first, and long ones surely. Penalty:
    `over_share_weight` x (the team's share of its fair share - 1), never negative, at most `over_share_max`.
    """

    wait_bonus_per_h: float = Field(1.0, ge=0, le=1000, description="points for each hour of waiting")
    wait_bonus_max: float = Field(50.0, ge=0, le=10_000, description="most points for waiting")
    wait_in_run_times: bool = Field(False, description="whether waiting is counted in the job's own expected run times instead of hours")
    wait_head_start_h: float = Field(
        0.0, ge=0, le=1000, description="hours that a job counts as having waited when it comes, with `wait_in_run_times`"
    )
    over_share_weight: float = Field(
        10.0, ge=0, le=1000, description="points lost for each whole fair share that the team holds beyond its own"
    )
    over_share_max: float = Field(50.0, ge=0, le=10_000, description="most points lost")


class FairShare(Model):
    """Dominant-resource fairness. What a team holds now and what it held lately both count.

    `history` is the part of the second, whose weight halves every `half_life_h`.
    """

    half_life_h: float = Field(24.0, gt=0, le=24 * 365, description="hours after which past use weighs half as much")
    history: float = Field(0.5, ge=0, le=1, description="part of past use in a team's share; the rest is what it holds now")


class Team(Model):
    """One team of the quota tree, itself and all teams below it.

    `guaranteed` devices are its own; what it does not use it lends, if `lends`; beyond them it may borrow idle devices, up to `limit` in
    all (absent: without bound). Without `guaranteed` it has what the teams below it have together.
    """

    name: Label = Field(description="name of the team, as specs give it")
    parent: Label | None = Field(None, description="team above it in the tree")
    weight: float = Field(1.0, gt=0, le=1_000_000, description="its part of what is shared, beside teams with the same parent")
    guaranteed: Devices = Field(
        default_factory=dict, description="devices of its own, by type; default: what the teams below it have together"
    )
    limit: Devices = Field(
        default_factory=dict, description="most devices that it may hold, borrowed ones included, by type; default: no bound"
    )
    lends: bool = Field(True, description="whether others may borrow what it does not use")

    @model_validator(mode="after")
    def _can_be_used(self) -> "Team":
        for device_type, count in sorted(self.guaranteed.items()):
            limit = self.limit.get(device_type)
            if limit is not None and count > limit:
                raise ValueError(f"team {self.name} is guaranteed {count} {device_type} and limited to {limit}; raise the limit")
        return self


class Topology(Model):
    """Placement by topology domains."""

    prefer: Label | None = Field(
        None, description="topology level, such as rack, of which one domain holds a gang if it can, where its spec prefers none"
    )


class Backfill(Model):
    """Reservations for jobs that do not fit, for the blocking `backfill`."""

    reservations: int = Field(
        1, ge=1, le=64, description="how many of the first jobs that do not fit hold a start time, which backfill may not delay"
    )


class Preemption(Model):
    """Preemption: eligible victims and preemptors, and the price.

    A job gets `min_run_s` undisturbed from each start. A victim saves first, within `checkpoint_deadline_s`. A preemptor must lead a
    victim's score by `margin` (order REMAINING: have the shorter remaining run time); a team's own guaranteed devices are taken back from
    borrowers whatever the scores (`reclaim`). `restart_cost_s`: what a restart costs each device of a victim.

    Under order SCORE priorities alone lead, unless `by_score_every_s` is above 0: then, at most once in so many seconds, whole scores do
    (a running gang's counts what it waited before its start and what it is expected to run still), but never against a higher priority.
    """

    enabled: bool = Field(False, description="whether gangs are stopped so that others can start")
    reclaim: bool = Field(True, description="whether a team takes its guaranteed devices back from borrowers, whatever the scores")
    margin: float = Field(10.0, ge=0, le=1000, description="points by which a preemptor must lead a victim's score")
    min_run_s: float = Field(600.0, ge=0, le=7 * 86_400, description="seconds that a job runs undisturbed after each start")
    checkpoint_deadline_s: float = Field(120.0, ge=0, le=3600, description="seconds in which a victim must have saved")
    restart_cost_s: float = Field(
        60.0, ge=0, le=86_400, description="seconds that a restart costs each device of a victim, in the comparison of victims"
    )
    max_victims: int = Field(64, ge=1, le=10_000, description="most victims for one job")
    by_score_every_s: float = Field(0.0, ge=0, le=86_400, description="seconds between preemptions by whole scores; 0: by priorities alone")
    victims: Victims = Field(Victims.LEAST_LOST, description="which of the eligible gangs are stopped first")


class Elastic(Model):
    """Gangs with min..max: grow into devices that nobody waits for, shrink before anybody is preempted."""

    enabled: bool = Field(True, description="whether elastic gangs grow and shrink")
    grow_after_s: float = Field(300.0, ge=0, le=86_400, description="seconds after its start before a gang grows into idle devices")


class Defragmentation(Model):
    """Moves of running jobs that let a waiting gang start: only when its gain exceeds what the moves cost, at most so many an hour.

    They are looked for once in `look_every_s`: they are few, and looking for them is dear.
    """

    enabled: bool = Field(False, description="whether running jobs are moved so that a waiting gang can start")
    max_moves_per_h: int = Field(10, ge=1, le=10_000, description="most moves in an hour")
    min_gain: float = Field(2.0, ge=1, le=1000, description="gain of the waiting gang, as a multiple of what the moves cost")
    look_every_s: int = Field(300, ge=1, le=86_400, description="seconds from one search to the next")


class Price(Model):
    """Price of one device's hour."""

    reserved: float = Field(ge=0, le=1_000_000, description="price of a device's hour")
    spot: float | None = Field(
        None, ge=0, le=1_000_000, description="price of its hour on a node with the label spot=true; default: the same"
    )


class Prices(Model):
    """Prices of device time, by device type; "any" speaks of every type that is not named. For the view `cost`, and for studies' budgets in
    money; no job is scheduled by them."""

    currency: str = Field("USD", max_length=3, pattern="^[A-Z]{3}$", description="code of the currency by ISO 4217")
    devices: dict[Label, Price] = Field(
        min_length=1, max_length=1000, description='price by device type; "any": every type that is not named'
    )


class Isolation(StrEnum):
    """Nodes that may run jobs. REQUIRED: only those whose registration says that they confine each job completely."""

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
    """Scheduling policy of a pool; each field has a default."""

    name: Label = Field("default", description="name of the policy, shown beside decisions")
    order: Order = Field(Order.SCORE, description="order in which waiting jobs are considered")
    blocking: Blocking = Field(Blocking.BACKFILL, description="effect of a job that does not fit on those behind it")
    run_times: RunTimes = Field(RunTimes.HISTORY, description="source of expected run times")
    packing: Packing = Field(Packing.TOPOLOGY, description="choice of nodes for a gang")
    score: Score = Field(Score(), description="points of waiting and of use, for the order `score`")
    fair_share: FairShare = Field(FairShare(), description="how a team's share is measured")
    topology: Topology = Field(Topology(), description="preferred topology level")
    teams: tuple[Team, ...] = Field((), max_length=MAX_TEAMS, description="tree of teams with their quotas")
    unlisted_teams: UnlistedTeams = Field(
        UnlistedTeams.UNLIMITED, exclude_if=_is_unlimited, description="treatment of teams that `teams` does not list"
    )
    backfill: Backfill = Field(Backfill(), description="reservations of jobs that do not fit")
    preemption: Preemption = Field(Preemption(), description="whether and which gangs are stopped for others")
    elastic: Elastic = Field(Elastic(), description="growth and shrinkage of elastic gangs")
    defragmentation: Defragmentation = Field(Defragmentation(), description="moves of running jobs")
    failures: Failures = Field(Failures(), description="detection, recovery and blame")
    prices: Prices | None = Field(None, description="prices of device time, for the view `cost` and budgets of studies")
    isolation: Isolation = Field(Isolation.ANY, description="which nodes may run jobs, by how they confine them")

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
