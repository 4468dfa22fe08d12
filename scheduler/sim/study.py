"""A study: one trace on one fleet under several policies, and what is written of it.

Holds: policies run one after the other, each alone, so that wall times can be compared; the folder is written as they end.
Never: prints.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from trainhouse.events.model.policy import RunTimes, SchedulingPolicy
from trainhouse.scheduler.core.queue.policy_check import check_against
from trainhouse.scheduler.policies import PolicyError, load, read_text, refusal
from trainhouse.scheduler.sim.fleet_file import Fleet
from trainhouse.scheduler.sim.loop import simulate
from trainhouse.scheduler.sim.parquet import JobsFile
from trainhouse.scheduler.sim.summary import Summary, summarize
from trainhouse.scheduler.sim.types import ANY_TYPE, Fault, Options, SimResult, TraceJob

Progress = Callable[[str, int, int], None]
"""(policy, jobs that ended, jobs)."""


@dataclass(frozen=True, slots=True)
class Study:
    """Input of a simulation. `about`: for titles and the summary file."""

    jobs: Sequence[TraceJob]
    fleet: Fleet
    policies: dict[str, SchedulingPolicy]
    faults: Sequence[Fault] = ()
    run_times: RunTimes | None = None
    options: Options = field(default_factory=Options)
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The trace and the fleet in a few words."""
        return f"{len(self.jobs):,} jobs of {self.about.get('trace', 'a trace')} on {self.fleet.name}"


@dataclass(slots=True)
class Outcome:
    """One policy's numbers, and its result without segments."""

    summary: Summary
    result: SimResult


def named_policies(sources: Sequence[str], fleet: Fleet) -> dict[str, SchedulingPolicy]:
    """Policies by name or path, each under a name of its own: its own name, its file's, or that with a number.

    Raises PolicyError (also for what the fleet does not have), OSError.
    """
    found: dict[str, SchedulingPolicy] = {}
    types = {n.gpu_type or ANY_TYPE for n in fleet.nodes}
    levels = {level for n in fleet.nodes for level, name in (("switch", n.switch), ("rack", n.rack), ("pod", n.pod)) if name}
    for source in sources:
        policy = load(source)
        text, file = read_text(source)
        faults = check_against(policy, types, levels)
        if faults:
            raise refusal(file, text, faults)
        tries = (policy.name, Path(source).stem, *(f"{policy.name}-{n}" for n in range(2, len(sources) + 2)))
        found[next(name for name in tries if name not in found)] = policy
    return found


def run(study: Study, out: Path | None = None, plots: bool = True, progress: Progress | None = None) -> list[Outcome]:
    """Simulates every policy; writes into `out` (made if need be). Raises OSError, PlotsMissingError (before anything is simulated)."""
    if out is None:
        return [_one(study, name, None, progress) for name in study.policies]
    if plots:
        _need_plots()
    out.mkdir(parents=True, exist_ok=True)
    outcomes = []
    with JobsFile(out / "jobs.parquet") as file:
        for name in study.policies:
            outcome = _one(study, name, out if plots else None, progress)
            file.write(name, outcome.result.rows)
            outcomes.append(outcome)
    write_summary(study, outcomes, out)
    if plots:
        _compare(study, outcomes, out)
    return outcomes


def write_summary(study: Study, outcomes: Sequence[Outcome], out: Path) -> Path:
    """`summary.json`: what was simulated, and the numbers of each policy under its name."""
    path = out / "summary.json"
    found = {"about": study.about, "policies": {o.summary.policy: o.summary.as_json() for o in outcomes}}
    path.write_bytes(orjson.dumps(found, option=orjson.OPT_INDENT_2) + b"\n")
    return path


def _one(study: Study, name: str, charts: Path | None, progress: Progress | None) -> Outcome:
    """One policy, its Gantt chart drawn at once: its bars are not kept while others run."""
    report = None if progress is None else (lambda done, jobs: progress(name, done, jobs))
    result = simulate(
        study.jobs,
        study.fleet.nodes,
        study.policies[name],
        faults=study.faults,
        run_times=study.run_times,
        options=replace(study.options, segments=charts is not None),
        progress=report,
    )
    result.policy = name
    if charts is not None:
        from trainhouse.scheduler.sim.gantt import gantt

        gantt(result, study.fleet.nodes, charts, study.title)
        result.segments = []
    return Outcome(summarize(result), result)


def _compare(study: Study, outcomes: Sequence[Outcome], out: Path) -> None:
    from trainhouse.scheduler.sim import plots

    results = [o.result for o in outcomes]
    plots.utilization(results, out, study.title)
    plots.queue(results, out, study.title)
    plots.waits_by_size([o.summary for o in outcomes], out, study.title)


def _need_plots() -> None:
    from trainhouse.scheduler.sim.drawing import figure

    figure(1, 1)


__all__ = ["Outcome", "PolicyError", "Progress", "Study", "named_policies", "run", "write_summary"]
