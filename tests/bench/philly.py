"""Philly, October and November (68,510 jobs, 80 nodes of 8 devices, one pool), without preemption, with true and with learned run times.

The policies that stop gangs take minutes: `policies` has them.

The peers are three published simulators of the strict rule; ours obeys the same rule, so the figures must be theirs to the digit.
The traces are read where `TRAINHOUSE_TRACES` says, or beside the checkout.
"""

import os
from pathlib import Path
from typing import Any

from tests.bench import report
from trainhouse.events.model.policy import RunTimes, SchedulingPolicy
from trainhouse.scheduler.policies import load
from trainhouse.scheduler.sim.fleet_file import read_fleet
from trainhouse.scheduler.sim.loop import simulate
from trainhouse.scheduler.sim.summary import summarize
from trainhouse.scheduler.sim.trace import Selection, read_trace
from trainhouse.scheduler.sim.types import Options, SimNode, TraceJob

TRACES = Path(os.environ.get("TRAINHOUSE_TRACES", Path(__file__).parents[3] / "shared" / "traces"))
WINDOW = Selection(2_332_800, 7_603_200)
PEERS = {
    "strict-consolidate": "31,082.10 s mean JCT, 19,601.70 mean wait, 147,636 p99 wait, 6,469,551 makespan; in 26-286 s of wall time",
    "strict-consolidate-shortest": "13,254.79 s mean JCT, 1,774.38 mean wait, 26,304 p99 wait; in 5-284 s of wall time",
    "backfill": "EASY with true run times: 15,585 s mean JCT",
}
WITHOUT_PREEMPTION = ("strict-consolidate", "strict-consolidate-shortest", "fifo", "backfill", "shortest-first", "fair")
AIM_S = 5
SHOWN = (
    "mean_jct_s",
    "mean_wait_s",
    "p50_wait_s",
    "p95_wait_s",
    "p99_wait_s",
    "makespan_s",
    "utilization",
    "preemptions",
    "lost_gpu_s",
    "wall_s",
)


def figures(jobs: list[TraceJob], nodes: list[SimNode], policy: SchedulingPolicy, run_times: RunTimes) -> dict[str, Any]:
    """One simulation, as the fields of a line. Means keep their digits (as text), because they are compared to the digit."""
    summary = summarize(simulate(jobs, nodes, policy, run_times=run_times, options=Options(segments=False)))
    flat = summary.as_json()
    shown = {key: flat[key] for key in SHOWN if key in flat}
    exact = {key: f"{shown[key]:,.2f}" for key in ("mean_jct_s", "mean_wait_s")} | {"p99_wait_s": f"{shown['p99_wait_s']:,.0f}"}
    fairness = {key: value for key, value in flat["fairness"].items() if key != "tenants"}
    return shown | exact | {"makespan_s": summary.makespan_s, "fairness": fairness}


def run() -> None:
    """Prints one line per policy and source of run times."""
    if not TRACES.is_dir():
        raise FileNotFoundError(f"no traces at {TRACES}; set TRAINHOUSE_TRACES to their folder")
    jobs = read_trace(TRACES / "philly.csv.gz", WINDOW).jobs
    nodes = list(read_fleet("80x8").nodes)
    for name in WITHOUT_PREEMPTION:
        for run_times in (RunTimes.TRUE, RunTimes.HISTORY):
            if name.startswith("strict") and run_times is RunTimes.HISTORY:
                continue
            found = figures(jobs, nodes, load(name), run_times)
            report.line(
                "philly", policy=name, run_times=run_times.value, jobs=len(jobs), **found, aim_wall_s=AIM_S, peer=PEERS.get(name, "")
            )
