"""A simulation in numbers: waiting and completion times, by tenant and by gang size, and how even they are.

Holds: times are of jobs that ended; those that were refused or had not ended are counted beside. Percentiles are interpolated linearly
between the two nearest ranks (numpy's default method, and that of the published simulators whose figures ours must repeat).
Never: rounds; reads a file.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trainhouse.scheduler.sim.types import JobRow, SimResult

SIZES = ((1, 1), (2, 2), (3, 4), (5, 8), (9, 16), (17, 32), (33, 64), (65, 1 << 30))
"""Classes of gang sizes, both ends included."""
BIG_GPUS = 8
SHORT_S = 10
"""Slowdown counts a shorter job as this long (bounded slowdown, Feitelson et al. 1997), so that trifles do not rule the mean."""


@dataclass(frozen=True, slots=True)
class Group:
    """Jobs that ended: how many, the device time that they needed, completion (jct) and waiting times, bounded slowdown."""

    jobs: int
    gpu_s: int
    mean_jct_s: float
    p50_jct_s: float
    p95_jct_s: float
    p99_jct_s: float
    mean_wait_s: float
    p50_wait_s: float
    p95_wait_s: float
    p99_wait_s: float
    mean_slowdown: float


@dataclass(frozen=True, slots=True)
class Fairness:
    """Fairness between tenants. `jain_slowdown`: Jain's index of their mean slowdowns (1: all alike; 1/n: one has it all).

    The worst tenants are those with the largest mean wait and the largest mean slowdown.
    """

    jain_slowdown: float
    worst_wait_tenant: str
    worst_wait_s: float
    worst_slowdown_tenant: str
    worst_slowdown: float
    tenants: dict[str, Group]


@dataclass(frozen=True, slots=True)
class Summary:
    """One policy. `jobs`: all of the trace; `unfinished`: neither ended nor refused. `utilization`: of the devices in service."""

    policy: str
    jobs: int
    finished: int
    refused: int
    unfinished: int
    times: Group
    makespan_s: int
    utilization: float
    preemptions: int
    moves: int
    resizes: int
    lost_gpu_s: int
    lost_to_faults_gpu_s: int
    wall_s: float
    cycles: int
    fairness: Fairness
    big_gangs: Group
    by_size: dict[str, Group]

    def as_json(self) -> dict[str, Any]:
        """Flat, with the times of all jobs beside the rest."""
        found = asdict(self)
        times = found.pop("times")
        del times["jobs"]
        big = found.pop("big_gangs")
        return {"policy": found.pop("policy"), **found, **times, f"gangs_of_{BIG_GPUS}_or_more": big}


def summarize(result: SimResult) -> Summary:
    """The numbers of one simulation."""
    ended = [r for r in result.rows if r.end_s is not None]
    refused = sum(1 for r in result.rows if r.refused)
    return Summary(
        policy=result.policy,
        jobs=len(result.rows),
        finished=len(ended),
        refused=refused,
        unfinished=len(result.rows) - len(ended) - refused,
        times=group(ended),
        makespan_s=result.makespan_s,
        utilization=result.utilization,
        preemptions=result.preemptions,
        moves=result.moves,
        resizes=result.resizes,
        lost_gpu_s=result.lost_gpu_s,
        lost_to_faults_gpu_s=result.lost_to_faults_gpu_s,
        wall_s=result.wall_s,
        cycles=result.cycles,
        fairness=fairness(ended),
        big_gangs=group([r for r in ended if r.gpus >= BIG_GPUS]),
        by_size={name: group(rows) for name, rows in by_size(ended).items()},
    )


def group(rows: Sequence[JobRow]) -> Group:
    """The numbers of some jobs that ended; all 0 for none."""
    waits = sorted(r.wait_s for r in rows)
    jcts = sorted(r.jct_s or 0 for r in rows)
    return Group(
        jobs=len(rows),
        gpu_s=sum(r.duration_s * r.gpus for r in rows),
        mean_jct_s=mean(jcts),
        p50_jct_s=percentile(jcts, 50),
        p95_jct_s=percentile(jcts, 95),
        p99_jct_s=percentile(jcts, 99),
        mean_wait_s=mean(waits),
        p50_wait_s=percentile(waits, 50),
        p95_wait_s=percentile(waits, 95),
        p99_wait_s=percentile(waits, 99),
        mean_slowdown=mean([slowdown(r) for r in rows]),
    )


def fairness(rows: Sequence[JobRow]) -> Fairness:
    """Returns the fairness between the tenants of these jobs, which ended."""
    of: dict[str, list[JobRow]] = {}
    for row in rows:
        of.setdefault(row.tenant, []).append(row)
    tenants = {name: group(of[name]) for name in sorted(of)}
    waits = max(tenants.items(), key=lambda t: t[1].mean_wait_s, default=("", group(())))
    slow = max(tenants.items(), key=lambda t: t[1].mean_slowdown, default=("", group(())))
    jain = jain_index([t.mean_slowdown for t in tenants.values()])
    return Fairness(jain, waits[0], waits[1].mean_wait_s, slow[0], slow[1].mean_slowdown, tenants)


def by_size(rows: Iterable[JobRow]) -> dict[str, list[JobRow]]:
    """Jobs by the class of their gang's size, small classes first; only those that have jobs."""
    found: dict[str, list[JobRow]] = {size_name(low, high): [] for low, high in SIZES}
    for row in rows:
        low, high = next(s for s in SIZES if s[0] <= row.gpus <= s[1])
        found[size_name(low, high)].append(row)
    return {name: of for name, of in found.items() if of}


def size_name(low: int, high: int) -> str:
    """A class for people: `1`, `5-8`, `65+`."""
    return str(low) if low == high else f"{low}+" if high == SIZES[-1][1] else f"{low}-{high}"


def slowdown(row: JobRow) -> float:
    """Returns the bounded slowdown of a job: completion time over run time, the latter at least SHORT_S; at least 1."""
    return max(1.0, (row.jct_s or 0) / max(row.duration_s, SHORT_S))


def mean(values: Sequence[float]) -> float:
    """0 for none."""
    return sum(values) / len(values) if values else 0.0


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Of values in order, between the two nearest ranks linearly; 0 for none."""
    if not ordered:
        return 0.0
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def jain_index(values: Sequence[float]) -> float:
    """(sum x)^2 / (n sum x^2), of Jain, Chiu and Hawe 1984; 1 for none."""
    squares = sum(v * v for v in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0
