"""A job as the cycle sees it: waiting, running, with a start time held for it, or with devices that others are leaving for it.

Holds: frozen, replaced as a whole; times are milliseconds of the journal's clock (of virtual time in a simulation).
"""

from dataclasses import dataclass
from enum import StrEnum

from trainhouse.scheduler.core.cluster.shape import Placement, Shape, ranks_of


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job without devices. `run_ms`: its expected remaining run time on the whole gang; None where nothing is known.

    `number` is its place in the order of submission, and stays through retries. `kin` names what its run time is like (for history).
    It goes to the nodes of `prefer` if it can, and keeps off those of `shun` if it can (bit masks).
    `project`: its bounds apply; empty: none do.
    """

    job_id: str
    number: int
    team: str
    priority: int
    shape: Shape
    submitted_ms: int
    since_ms: int
    not_before_ms: int = 0
    run_ms: int | None = None
    ran_ms: int = 0
    preemptible: bool = True
    kin: tuple[str, ...] = ()
    prefer: int = 0
    shun: int = 0
    project: str = ""


@dataclass(frozen=True, slots=True)
class Running:
    """A job with devices. `ends_ms`: expected. What stopping it now would lose began at `saved_ms` (its last checkpoint, or its start).

    `leaving_ms`: it was asked to leave, and its devices come free by then; None: it stays. `finishing`: some of its ranks are done; then it
    is not made to begin again at another size. `done`: all are, it has no devices any more, and is none of those that run, whatever bounds
    their number. `ran_ms`: run time of earlier attempts.
    """

    job: Waiting
    placement: Placement
    started_ms: int
    ends_ms: int | None
    saved_ms: int
    leaving_ms: int | None = None
    finishing: bool = False
    done: bool = False

    @property
    def ranks(self) -> int:
        return ranks_of(self.placement)


@dataclass(frozen=True, slots=True)
class Reservation:
    """A start time held for a waiting job: it needs `nodes` (bit mask) from `start_ms` on. Backfill must leave both alone."""

    job_id: str
    start_ms: int
    nodes: int
    made_ms: int


@dataclass(frozen=True, slots=True)
class Claim:
    """Devices that a waiting job starts on as soon as all are free: others were asked to leave for it. No other job gets them."""

    job_id: str
    placement: Placement
    victims: tuple[str, ...]
    made_ms: int


class Eviction(StrEnum):
    """Reason for which a running gang is asked to leave its devices."""

    PREEMPTED = "PREEMPTED"
    RECLAIMED = "RECLAIMED"
    MOVED = "MOVED"
    RESIZED = "RESIZED"
    DRAINED = "DRAINED"


@dataclass(frozen=True, slots=True)
class Start:
    """Gives a waiting job its devices now."""

    job_id: str
    placement: Placement


@dataclass(frozen=True, slots=True)
class Evict:
    """Asks a running gang to save and leave by `deadline_ms`. `for_job`: who gets the devices; `ranks`: its own next size, if resized."""

    job_id: str
    why: Eviction
    deadline_ms: int
    for_job: str = ""
    ranks: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Hold:
    """Notes a claim. It comes in the same cycle as the evictions that it needs, before them."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class Unhold:
    """A claim is over without a start: its job is gone, or its devices are (a node was lost)."""

    job_id: str


@dataclass(frozen=True, slots=True)
class Reserve:
    """Holds a start time, or replaces the one that was held."""

    reservation: Reservation


@dataclass(frozen=True, slots=True)
class Unreserve:
    """A start time is held no more: the job starts, is gone, or others come first now."""

    job_id: str


Action = Start | Evict | Hold | Unhold | Reserve | Unreserve
