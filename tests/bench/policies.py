"""Our policy against those that others use, on every shared trace, with true run times and with run times learned on the way.

Each simulation is one line with its peers beside it in the same run, then a table and what was aimed at. Jobs without a tenant are one
tenant's. Lost device-seconds are restarts and work that was not saved; a restart takes 60 s and counts in completion times.

`worst tenant`: the largest mean wait, and the largest mean bounded slowdown, of any tenant (those with fewer than 10 jobs apart: a mean of
two jobs says nothing of a policy). `worst_share_ratio`: finish-time fairness (Mahajan et al., "Themis", NSDI 2020): a tenant's mean
completion time over the one that it would have alone, first in first out, on an equal part of the fleet; the largest of all tenants.

Faults are those of another cluster (400 servers) on the fleet's nodes. The trace has no priorities, so each job then has that of a row of
`openb_tasks`, in order. Saving takes 30 s, for which `priority-most-recent` leaves no time. What nodes that fail take with them (and the
restarts after that) is told apart: `lost_to_faults_gpu_s`; no policy avoids most of it.

A simulation that takes more than `LIMIT_S` of processor time is given up: its line says so, and an aim that needs it is not judged.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.bench import report
from trainhouse.events.model.policy import RunTimes
from trainhouse.scheduler.policies import load
from trainhouse.scheduler.sim.faults_file import read_faults
from trainhouse.scheduler.sim.fleet_file import read_fleet
from trainhouse.scheduler.sim.loop import simulate
from trainhouse.scheduler.sim.summary import Group, Summary, group, mean, summarize
from trainhouse.scheduler.sim.trace import Selection, read_trace
from trainhouse.scheduler.sim.types import Fault, JobRow, Options, SimNode, TraceJob

TRACES = Path(os.environ.get("TRAINHOUSE_TRACES", Path(__file__).parents[3] / "shared" / "traces"))
WINDOW = Selection(2_332_800, 7_603_200)
POLICIES = (
    *("strict-consolidate", "strict-consolidate-shortest", "fifo", "shortest-first"),
    *("backfill", "fair", "trainhouse", "shortest-remaining"),
)
SAME_EITHER_WAY = ("strict-consolidate", "fifo")
"""Policies to which run times mean nothing: simulated once."""
FEW_JOBS = 10
SERVERS = 400
SAVE_S = 30
LIMIT_S = float(os.environ.get("TRAINHOUSE_BENCH_LIMIT_S", "900"))
"""Processor time for one simulation."""


class TooLong(Exception):
    """A simulation went beyond the limit."""


@dataclass(frozen=True)
class Case:
    """A trace on its fleet."""

    name: str
    jobs: Sequence[TraceJob]
    nodes: Sequence[SimNode]
    options: Options = field(default_factory=lambda: Options(segments=False))
    faults: Sequence[Fault] = ()


@dataclass(frozen=True)
class Row:
    """One simulation. `cpu_s` is processor time: the machine may be busy with other work."""

    case: str
    policy: str
    run_times: str
    summary: Summary
    worst_wait: tuple[str, float]
    worst_slowdown: tuple[str, float]
    share_ratio: tuple[str, float]
    cpu_s: float


@contextmanager
def limited(limit_s: float) -> Iterator[None]:
    """TooLong once the block has taken so much processor time. In the main thread only."""

    def stop(*_: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def play(case: Case, policy: str, run_times: RunTimes, alone: dict[str, float]) -> Row | None:
    """One policy on one trace, printed; None: it took too long."""
    began = time.process_time()
    try:
        with limited(LIMIT_S):
            result = simulate(case.jobs, case.nodes, load(policy), faults=case.faults, run_times=run_times, options=case.options)
    except TooLong:
        report.line("policies", trace=case.name, policy=policy, run_times=run_times.value, given_up_after_cpu_s=LIMIT_S)
        return None
    cpu_s = time.process_time() - began
    summary = summarize(result)
    tenants = {name: t for name, t in summary.fairness.tenants.items() if t.jobs >= FEW_JOBS}
    row = Row(
        case.name,
        policy,
        run_times.value,
        summary,
        _worst({name: t.mean_wait_s for name, t in tenants.items()}),
        _worst({name: t.mean_slowdown for name, t in tenants.items()}),
        _worst({name: t.mean_jct_s / alone[name] for name, t in tenants.items() if alone.get(name)}),
        cpu_s,
    )
    _print(row)
    return row


def _worst(of: dict[str, float]) -> tuple[str, float]:
    return max(of.items(), key=lambda t: t[1], default=("", 0.0))


def _print(row: Row) -> None:
    s, times, big = row.summary, row.summary.times, row.summary.big_gangs
    report.line(
        "policies",
        trace=row.case,
        policy=row.policy,
        run_times=row.run_times,
        jobs=s.jobs,
        refused=s.refused,
        unfinished=s.unfinished,
        mean_jct_s=round(times.mean_jct_s),
        p50_jct_s=times.p50_jct_s,
        p95_jct_s=round(times.p95_jct_s),
        p99_jct_s=round(times.p99_jct_s),
        mean_wait_s=times.mean_wait_s,
        p50_wait_s=times.p50_wait_s,
        p95_wait_s=round(times.p95_wait_s),
        p99_wait_s=round(times.p99_wait_s),
        gangs_of_8_p99_wait_s=round(big.p99_wait_s),
        makespan_s=s.makespan_s,
        utilization=s.utilization,
        worst_tenant_wait_s=dict([row.worst_wait]),
        worst_tenant_slowdown=dict([row.worst_slowdown]),
        worst_share_ratio=dict([row.share_ratio]),
        jain_slowdown=s.fairness.jain_slowdown,
        preemptions=s.preemptions,
        lost_gpu_s=s.lost_gpu_s,
        lost_to_faults_gpu_s=s.lost_to_faults_gpu_s,
        wall_s=s.wall_s,
        cpu_s=row.cpu_s,
    )


def alone_on_a_part(case: Case) -> dict[str, float]:
    """Each tenant's mean completion time by itself, first in first out, on every n-th node of n tenants; 0 where it could not run all."""
    tenants = sorted({j.tenant for j in case.jobs})
    found: dict[str, float] = {}
    for at, tenant in enumerate(tenants):
        jobs = [j for j in case.jobs if j.tenant == tenant]
        nodes = case.nodes[at :: len(tenants)] if case.options.one_pool else case.nodes
        rows: list[JobRow] = simulate(jobs, nodes, load("fifo"), options=case.options).rows
        ended: Group = group([r for r in rows if r.end_s is not None])
        found[tenant] = ended.mean_jct_s if ended.jobs == len(jobs) else 0.0
    return found


def philly() -> Case:
    """October and November."""
    return Case("philly", read_trace(TRACES / "philly.csv.gz", WINDOW).jobs, read_fleet("80x8").nodes)


def venus() -> Case:
    """Two pools; a job stays in its own."""
    options = Options(one_pool=False, segments=False)
    nodes = read_fleet(str(TRACES / "helios_venus_nodes.csv")).nodes
    return Case("helios_venus_sept", read_trace(TRACES / "helios_venus_sept.csv.gz").jobs, nodes, options)


def openb() -> Case:
    """Device types, shares, cpus and memory, on every 64th node of each kind: on every 32nd nobody ever waits."""
    jobs = [replace(j, tenant=str(j.priority)) for j in read_trace(TRACES / "openb_tasks.csv.gz").jobs]
    kinds: dict[tuple[str, int], list[SimNode]] = {}
    for node in read_fleet(str(TRACES / "openb_nodes.csv.gz")).nodes:
        kinds.setdefault((node.gpu_type, node.gpus), []).append(node)
    return Case("openb_tasks", jobs, [node for kind in sorted(kinds) for node in kinds[kind][::64]])


def under_faults(of: Case) -> Case:
    """The same with faults, priorities and a price for saving."""
    classes = [j.priority for j in read_trace(TRACES / "openb_tasks.csv.gz").jobs]
    jobs = [replace(j, priority=classes[i % len(classes)]) for i, j in enumerate(of.jobs)]
    faults = read_faults(TRACES / "infinitehbd_faults.csv.gz", of.nodes, SERVERS, of.jobs[0].submit_s).faults
    return replace(of, name=f"{of.name}_faults", jobs=jobs, faults=faults, options=replace(of.options, save_s=SAVE_S))


def run() -> None:
    """Prints every simulation, a table on standard error, and the aims with what came of them."""
    played: list[Row | None] = []
    traces = [venus(), openb(), philly()]
    for case in traces:
        alone = alone_on_a_part(case)
        for policy in POLICIES:
            for run_times in (RunTimes.TRUE, RunTimes.HISTORY):
                if run_times is RunTimes.TRUE or policy not in SAME_EITHER_WAY:
                    played.append(play(case, policy, run_times, alone))
    faulty = under_faults(traces[-1])
    for policy in ("priority-most-recent", "trainhouse"):
        played.append(play(faulty, policy, RunTimes.HISTORY, {}))
    rows = [row for row in played if row is not None]
    table(rows)
    aims(rows)


COLUMNS = "trace policy run_times mean_jct p99_jct mean_wait p99_wait big_p99 worst_wait worst_slow share util preempt lost_gpu_s cpu_s"


def table(rows: Sequence[Row]) -> None:
    """All of it, one line each."""
    cells = [COLUMNS.split()]
    for r in rows:
        s, t = r.summary, r.summary.times
        numbers = (t.mean_jct_s, t.p99_jct_s, t.mean_wait_s, t.p99_wait_s, s.big_gangs.p99_wait_s, r.worst_wait[1])
        small = (f"{r.worst_slowdown[1]:.1f}", f"{r.share_ratio[1]:.2f}", f"{s.utilization:.3f}")
        rest = (f"{s.preemptions:,}", f"{s.lost_gpu_s:,}", f"{r.cpu_s:.1f}")
        cells.append([r.case, r.policy, r.run_times, *(f"{n:,.0f}" for n in numbers), *small, *rest])
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    for line in cells:
        left = [c.ljust(w) for c, w in zip(line[:3], widths, strict=False)]
        print("  ".join([*left, *(c.rjust(w) for c, w in zip(line[3:], widths[3:], strict=True))]), file=sys.stderr, flush=True)


Read = Callable[[Row], float]
AGAINST_PEERS: tuple[tuple[str, str, Read], ...] = (
    ("p99 wait of gangs >= 8", "backfill", lambda r: r.summary.big_gangs.p99_wait_s),
    ("worst tenant's wait", "fair", lambda r: r.worst_wait[1]),
    ("worst tenant's slowdown", "fair", lambda r: r.worst_slowdown[1]),
)


def aims(rows: Sequence[Row]) -> None:
    """What was aimed at on Philly, met or not."""
    at = {(r.case, r.policy, r.run_times): r for r in rows}

    def of(policy: str, run_times: str, read: Read, case: str = "philly") -> float | None:
        row = at.get((case, policy, run_times))
        return None if row is None else read(row)

    for run_times, most in (("true", 13_254.79), ("history", 15_000.0)):
        _aim(f"mean JCT, run times {run_times}", of("trainhouse", run_times, lambda r: r.summary.times.mean_jct_s), most)
        for what, peer, read in AGAINST_PEERS:
            _aim(f"{what}, below {peer}, {run_times}", of("trainhouse", run_times, read), of(peer, run_times, read))
    ours, theirs = (of(p, "history", lambda r: r.summary.lost_gpu_s, "philly_faults") for p in ("trainhouse", "priority-most-recent"))
    _aim("lost device-seconds under faults, a tenth of priority + most recent", ours, None if theirs is None else theirs / 10)
    slow = [r.cpu_s for r in rows if r.policy in ("trainhouse", "shortest-remaining") and r.case == "philly"]
    _aim("processor seconds with preemption, mean of Philly", mean(slow) if slow else None, 60)


def _aim(what: str, ours: float | None, most: float | None) -> None:
    """Met, missed, or (None) not measured, because a simulation was given up."""
    report.line("policies_aim", aim=what, ours=ours, most=most, met=None if ours is None or most is None else ours < most)
