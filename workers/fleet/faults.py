"""Faults of an emulated fleet: rates by option, exact moments and conditions by script.

Holds: node faults are `die` (the machine), `notice` (the machine, announced), `silent` (the network), `restart` (the agent), `device` (a
rank of the node fails on its device), `hang` (a rank of the node is stopped, and its gang waits); `crash` (a rank) and `slow` (a start)
belong to attempts and are drawn by their fence, so that a repeat draws the same.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from trainhouse.workers.fleet.errors import InvalidPlanError
from trainhouse.workers.fleet.seeded_random import draw, pick

RANK_FAULTS = ("device", "hang")
NODE_FAULTS = ("die", "notice", "silent", "restart", *RANK_FAULTS)
DEFAULT_FOR_S = {"die": 120.0, "notice": 120.0, "silent": 30.0, "restart": 3.0, "slow": 30.0, "device": 0.0, "hang": 0.0}
HELP = (
    "die=2/h:120s,notice=2/h:120s,silent=4/h:30s,restart=10/h:3s,device=3/h,hang=1/h,crash=1%,slow=2%:30s "
    "(rates are of the whole fleet; `die=1/h:never` stays away)"
)
NEVER = "never"
AWAY = ("die", "notice")
LOST = "lost"
SILENT = ("die", "silent")
DEADLINE_S = 30.0  # the shortest notice that a cloud gives of a machine that it takes back


@dataclass(frozen=True)
class NodeFault:
    """One fault of one node. `for_s` None: for ever. A notice comes `deadline_s` before the machine goes.

    `busy_ms`: it comes in place of `at_ms` as soon as a gang has trained on the node for so long without a pause, so that it hits one
    however slow the scheduler is; `node` None (only then): on the first node of which this is true. `until_lost` (in place of `for_s`):
    the node is back as soon as the detector's verdict is that it is lost, however late that comes.
    """

    at_ms: int
    node: int | None
    kind: str
    for_s: float | None
    deadline_s: float = DEADLINE_S
    busy_ms: int | None = None
    until_lost: bool = False

    def struck(self, trained_ms: Mapping[int, int]) -> int | None:
        """The node on which a fault with `busy_ms` strikes now, if any. `trained_ms`: for how long a gang has trained on a node, the
        longest where there are several; nodes that are in trouble are left out."""
        long_enough = [node for node, ms in trained_ms.items() if self.busy_ms is not None and ms >= self.busy_ms]
        return min((node for node in long_enough if self.node is None or node == self.node), default=None)


@dataclass(frozen=True)
class Rate:
    """Faults of one kind: so many an hour over the whole fleet."""

    kind: str
    per_hour: float
    for_s: float | None


@dataclass(frozen=True)
class FaultPlan:
    """Faults by chance. Shares are of attempts, 0 to 1."""

    rates: tuple[Rate, ...] = ()
    crash_share: float = 0.0
    slow_share: float = 0.0
    slow_s: float = field(default=DEFAULT_FOR_S["slow"])

    def crashes(self, seed: int, job_id: str, epoch: int) -> bool:
        """Returns whether a rank of this attempt crashes."""
        return draw(seed, "crash", job_id, epoch) < self.crash_share

    def slow_start_s(self, seed: int, job_id: str, epoch: int, node_id: str) -> float:
        """Returns the delay of this node's start of its ranks of this attempt, seconds."""
        return self.slow_s if draw(seed, "slow", job_id, epoch, node_id) < self.slow_share else 0.0

    def next_of(self, rate: Rate, seed: int, number: int, after_ms: int, nodes: int) -> NodeFault:
        """The fault of a kind that follows the one before it (a Poisson process), on any of `nodes`."""
        wait_s = -math.log(1 - draw(seed, "when", rate.kind, number)) * 3600 / rate.per_hour
        return NodeFault(after_ms + max(1, round(wait_s * 1000)), pick(seed, nodes, "whom", rate.kind, number), rate.kind, rate.for_s)


def parse_faults(text: str) -> FaultPlan:
    """Reads what `HELP` shows; empty: none. Raises InvalidPlanError."""
    plan = FaultPlan()
    for piece in filter(None, (p.strip() for p in text.split(","))):
        kind, equals, value = piece.partition("=")
        try:
            if not equals:
                raise ValueError("there is no '='")
            plan = _with(plan, kind.strip(), value.strip())
        except ValueError as error:
            raise InvalidPlanError(f"faults: {piece!r}: {error}; write {HELP}") from error
    return plan


def _with(plan: FaultPlan, kind: str, value: str) -> FaultPlan:
    how_often, _, how_long = value.partition(":")
    if kind in NODE_FAULTS:
        if not how_often.endswith("/h"):
            raise ValueError(f"{how_often!r} is no rate")
        per_hour = float(how_often[:-2])
        if not 0 < per_hour < 1e9:
            raise ValueError(f"{per_hour:g} an hour is no rate")
        return replace(plan, rates=(*plan.rates, Rate(kind, per_hour, for_s(kind, how_long or None))))
    if kind == "crash":
        return replace(plan, crash_share=_share(how_often))
    if kind == "slow":
        slow_s = for_s(kind, how_long or None)
        if slow_s is None:
            raise ValueError("a slow start ends at some time")
        return replace(plan, slow_share=_share(how_often), slow_s=slow_s)
    raise ValueError(f"there is no fault {kind!r}; there are {', '.join((*NODE_FAULTS, 'crash', 'slow'))}")


def for_s(kind: str, text: str | float | None) -> float | None:
    """Returns the length of a fault, seconds: as written, or the kind's default; None for ever (a machine only). Raises ValueError."""
    if text is None:
        return DEFAULT_FOR_S[kind]
    if text == NEVER:
        if kind not in AWAY:
            raise ValueError(f"only a machine stays away for ever; give {kind} a number of seconds")
        return None
    value = float(str(text).removesuffix("s"))
    if not 0 <= value < 1e9:
        raise ValueError(f"{text!r} is no length in seconds")
    return value


def _share(text: str) -> float:
    if not text.endswith("%"):
        raise ValueError(f"{text!r} is no share in percent")
    value = float(text[:-1]) / 100
    if not 0 <= value <= 1:
        raise ValueError(f"{text!r} is not between 0 % and 100 %")
    return value
