"""Comparison of a recorded past with another policy: both policies in the simulator, and the simulator's error against the record.

Holds: both runs get the same jobs, nodes and times out of service; what is compared is the same set of jobs in both.
Never: claims more than the simulator knows: `honesty` measures how far the run of the recorded policy is from the record.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from trainhouse.events.model.policy import RunTimes, SchedulingPolicy
from trainhouse.scheduler.sim.journal_trace import Recorded
from trainhouse.scheduler.sim.loop import simulate
from trainhouse.scheduler.sim.summary import Summary, mean, percentile, summarize
from trainhouse.scheduler.sim.types import JobRow, Options, SimResult

Progress = Callable[[str, int, int], None]
RECORDED, NEW = "recorded", "new"


@dataclass(frozen=True, slots=True)
class Honesty:
    """The simulated run of the recorded policy against the record, over the jobs that had ended. Off: simulated minus real, per job."""

    jobs: int
    real_mean_wait_s: float
    simulated_mean_wait_s: float
    real_p95_wait_s: float
    simulated_p95_wait_s: float
    median_wait_off_s: float
    p95_wait_off_s: float
    real_utilization: float
    simulated_utilization: float
    real_lost_gpu_s: float
    simulated_lost_gpu_s: float
    real_preemptions: int
    simulated_preemptions: int


@dataclass(frozen=True, slots=True)
class Change:
    """One figure under both policies. `team` empty: of all."""

    what: str
    team: str
    recorded: float
    new: float

    @property
    def difference(self) -> float:
        return self.new - self.recorded


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The answer."""

    pool: str
    span_s: int
    recorded_policy: str
    new_policy: str
    recorded: Summary
    new: Summary
    changes: tuple[Change, ...]
    honesty: Honesty
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """One object."""
        return {
            "pool": self.pool,
            "span_s": self.span_s,
            "recorded_policy": self.recorded_policy,
            "new_policy": self.new_policy,
            "recorded": self.recorded.as_json(),
            "new": self.new.as_json(),
            "changes": [asdict(c) | {"difference": c.difference} for c in self.changes],
            "honesty": asdict(self.honesty),
            "notes": list(self.notes),
        }


def what_if(past: Recorded, policy: SchedulingPolicy, options: Options | None = None, progress: Progress | None = None) -> WhatIf:
    """Runs the past of a pool under its own policy and under another. Blocks for as long as two simulations take."""
    options = replace(options or Options(), one_pool=False, segments=False)
    notes = list(past.notes)
    if policy.run_times is RunTimes.TRUE:
        notes.append("the new policy takes run times from the record itself: no real scheduler knows them")
    runs = {name: _run(past, chosen, name, options, progress) for name, chosen in ((RECORDED, past.policy), (NEW, policy))}
    both = [_ended(runs[name], past.carried) for name in (RECORDED, NEW)]
    same = both[0].keys() & both[1].keys()
    if len(same) < max(len(b) for b in both):
        notes.append(f"{max(len(b) for b in both) - len(same):,} jobs end under one of the policies only: they are not compared")
    summaries = {name: summarize(_only(runs[name], same)) for name in runs}
    return WhatIf(
        pool=past.pool,
        span_s=past.span_s,
        recorded_policy=past.policy.name,
        new_policy=policy.name,
        recorded=summaries[RECORDED],
        new=summaries[NEW],
        changes=tuple(changes(summaries[RECORDED], summaries[NEW])),
        honesty=honesty(past, runs[RECORDED]),
        notes=tuple(notes),
    )


def changes(old: Summary, new: Summary) -> list[Change]:
    """The figures that a person compares, of all and of each team."""
    found = [Change(what, "", a, b) for what, a, b in zip(_FIGURES, _figures(old), _figures(new), strict=True)]
    for team, before in old.fairness.tenants.items():
        after = new.fairness.tenants[team]
        for what in ("mean_wait_s", "p50_wait_s", "p95_wait_s", "mean_jct_s", "mean_slowdown"):
            found.append(Change(what, team, getattr(before, what), getattr(after, what)))
    return found


_FIGURES = (
    *("mean_wait_s", "p50_wait_s", "p95_wait_s", "p99_wait_s", "mean_jct_s", "makespan_s", "utilization"),
    *("lost_gpu_h", "preemptions", "jain_slowdown", "worst_team_wait_s", "worst_team_slowdown"),
)


def _figures(summary: Summary) -> tuple[float, ...]:
    times, fair = summary.times, summary.fairness
    waits = (times.mean_wait_s, times.p50_wait_s, times.p95_wait_s, times.p99_wait_s, times.mean_jct_s)
    lost = (summary.lost_gpu_s / 3600, float(summary.preemptions))
    return (*waits, float(summary.makespan_s), summary.utilization, *lost, fair.jain_slowdown, fair.worst_wait_s, fair.worst_slowdown)


def honesty(past: Recorded, simulated: SimResult) -> Honesty:
    """Returns the simulator's error against the record. Utilization: of the time that was recorded."""
    rows = _ended(simulated, frozenset())
    pairs = [(r, rows[r.job_id]) for r in past.real if r.job_id in rows]
    real, ours = sorted(r.wait_s for r, _ in pairs), sorted(s.wait_s for _, s in pairs)
    off = sorted(abs(s.wait_s - r.wait_s) for r, s in pairs)
    return Honesty(
        jobs=len(pairs),
        real_mean_wait_s=mean(real),
        simulated_mean_wait_s=mean(ours),
        real_p95_wait_s=percentile(real, 95),
        simulated_p95_wait_s=percentile(ours, 95),
        median_wait_off_s=percentile(off, 50),
        p95_wait_off_s=percentile(off, 95),
        real_utilization=past.busy_gpu_s / past.open_gpu_s if past.open_gpu_s else 0.0,
        simulated_utilization=_utilization(simulated, past.span_s),
        real_lost_gpu_s=past.lost_gpu_s,
        simulated_lost_gpu_s=simulated.lost_gpu_s,
        real_preemptions=past.preemptions,
        simulated_preemptions=simulated.preemptions,
    )


def _run(past: Recorded, policy: SchedulingPolicy, name: str, options: Options, progress: Progress | None) -> SimResult:
    report = None if progress is None else (lambda done, jobs: progress(name, done, jobs))
    return simulate(past.jobs, past.nodes, policy, faults=past.faults, options=options, progress=report)


def _ended(result: SimResult, without: frozenset[str]) -> dict[str, JobRow]:
    return {r.job_id: r for r in result.rows if r.end_s is not None and r.job_id not in without}


def _only(result: SimResult, jobs: set[str]) -> SimResult:
    return replace(result, rows=[r for r in result.rows if r.job_id in jobs])


def _utilization(result: SimResult, span_s: int) -> float:
    """Of the time that was recorded: the simulated one ends when its last job does."""
    points: Sequence[Any] = [p for p in result.timeline if p.from_s < span_s]
    inside = [(p, min(p.to_s, span_s) - p.from_s) for p in points]
    served = sum(p.devices * width for p, width in inside)
    # Before its first job and after its last the simulated fleet is idle, and in service all the same.
    if points:
        served += min(result.first_s, span_s) * points[0].devices + max(0, span_s - result.last_s) * points[-1].devices
    return float(sum(p.busy * width for p, width in inside) / served) if served else 0.0
