"""`simulate`: the scheduler on a recorded or public trace, under one policy or several, in virtual time."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import Json

if TYPE_CHECKING:
    from trainhouse.scheduler.sim.study import Progress, Study
    from trainhouse.scheduler.sim.summary import Summary

COLUMNS = (
    *("policy", "jobs", "mean JCT s", "mean wait s", "p50", "p95", "p99", "makespan s", "used", "preempted"),
    *("lost GPU h", "worst tenant", "its wait s", "wall s"),
)
MAX_REFUSALS = 5


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("simulate")(simulate)


def simulate(
    trace: Annotated[Path, typer.Option("--trace", help="Jobs as CSV, plain or gzip.", show_default=False)],
    nodes: Annotated[str, typer.Option("--nodes", help="80x8, 16x8:V100,64x8:A100, or a CSV of nodes or pools.", show_default=False)],
    policy: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--policy", help="Name or file; may be repeated, to compare. Default: trainhouse.", show_default=False),
    ] = None,
    from_s: Annotated[Optional[int], typer.Option("--from", min=0, help="Only jobs submitted from this second on.")] = None,  # noqa: UP045
    to_s: Annotated[Optional[int], typer.Option("--to", min=0, help="Only jobs submitted before this second.")] = None,  # noqa: UP045
    tenant: Annotated[Optional[str], typer.Option("--tenant", help="Only jobs of this tenant.")] = None,  # noqa: UP045
    faults: Annotated[Optional[Path], typer.Option("--faults", help="Faults of nodes as CSV.")] = None,  # noqa: UP045
    fault_servers: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--fault-servers", min=1, help="Of how many servers the faults tell, those that never failed included."),
    ] = None,
    fault_shift: Annotated[int, typer.Option("--fault-shift", help="Seconds to add to the times of faults.")] = 0,
    run_times: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--run-times", help="What the policy knows of run times: true, limits or history. Default: as it says."),
    ] = None,
    pools: Annotated[str, typer.Option("--pools", help="one: all nodes for all; tenant: each tenant on nodes of its pool.")] = "one",
    gpus_per_node: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--gpus-per-node", min=1, max=1024, help="For a file of nodes that does not say."),
    ] = None,
    checkpoint_s: Annotated[int, typer.Option("--checkpoint-every", min=1, help="Seconds between checkpoints of a job.")] = 1800,
    restart_s: Annotated[int, typer.Option("--restart-cost", min=0, help="Seconds that a restart takes.")] = 60,
    out: Annotated[Optional[Path], typer.Option("--out", help="Folder for summary.json, jobs.parquet and plots.")] = None,  # noqa: UP045
    plots: Annotated[bool, typer.Option("--plots/--no-plots", help="Draw them into --out.")] = True,
    json: Json = False,
) -> None:
    """Run a trace through the scheduler in virtual time, and print how jobs fared under each policy.

    \b
    trainhouse simulate --trace philly.csv.gz --nodes 80x8 --policy fifo \\
        --policy backfill --policy trainhouse
    trainhouse simulate --trace philly.csv.gz --nodes 80x8 --from 2332800 \\
        --to 7603200 --out study/
    trainhouse simulate --trace jobs.csv --nodes nodes.csv --pools tenant \\
        --policy mine.yaml --json
    trainhouse simulate --trace jobs.csv --nodes 80x8 --faults faults.csv \\
        --fault-servers 400
    """
    from trainhouse.cli.shared import output
    from trainhouse.scheduler.sim.study import run

    options = {"checkpoint_s": checkpoint_s, "restart_s": restart_s, "one_pool": _one_pool(pools)}
    chosen = {"from_s": from_s, "to_s": to_s, "tenant": tenant}
    named = {"trace": trace, "nodes": nodes, "faults": faults}
    with _file_errors():
        study = _study(named, chosen, policy or ["trainhouse"], run_times, options, gpus_per_node, (fault_servers, fault_shift))
        for note in study.about["notes"]:
            output.remark(note)
        with bars(study.policies, len(study.jobs)) as progress:
            outcomes = run(study, out, plots, progress)
    for outcome in outcomes:
        _print_refused(outcome.summary.policy, [r.refused for r in outcome.result.rows if r.refused])
    if json:
        output.json_lines(o.summary.as_json() for o in outcomes)
    else:
        output.table(COLUMNS, [cells(o.summary) for o in outcomes], right=[c for c in COLUMNS if c not in ("policy", "worst tenant")])
    if out is not None:
        output.remark(f"wrote {out}/summary.json, jobs.parquet{' and plots' if plots else ''}")


def cells(summary: "Summary") -> tuple[str, ...]:
    """A line of the table."""
    times, fair = summary.times, summary.fairness
    jobs = f"{summary.jobs:,}" if summary.finished == summary.jobs else f"{summary.finished:,} of {summary.jobs:,}"
    waits = (times.mean_jct_s, times.mean_wait_s, times.p50_wait_s)
    return (
        *(summary.policy, jobs),
        *(f"{value:,.2f}" for value in waits),
        *(f"{value:,.0f}" for value in (times.p95_wait_s, times.p99_wait_s, summary.makespan_s)),
        *(f"{100 * summary.utilization:.1f} %", f"{summary.preemptions:,}", f"{summary.lost_gpu_s / 3600:,.1f}"),
        *(fair.worst_wait_tenant or "-", f"{fair.worst_wait_s:,.0f}", f"{summary.wall_s:.1f}"),
    )


def _study(
    named: dict[str, Any],
    chosen: dict[str, Any],
    policies: list[str],
    run_times: str | None,
    options: dict[str, Any],
    gpus_per_node: int | None,
    mapping: tuple[int | None, int],
) -> "Study":
    """Reads all files. Raises FileError, PolicyError, OSError."""
    from trainhouse.events.model.policy import RunTimes
    from trainhouse.scheduler.sim.faults_file import Faults, read_faults
    from trainhouse.scheduler.sim.fleet_file import read_fleet
    from trainhouse.scheduler.sim.study import Study, named_policies
    from trainhouse.scheduler.sim.trace import Selection, read_trace
    from trainhouse.scheduler.sim.types import Options

    if run_times is not None and run_times not in list(RunTimes):
        raise CliError(f"--run-times {run_times}: choose one of {', '.join(RunTimes)}", Exit.USAGE)
    fleet = read_fleet(named["nodes"], gpus_per_node)
    wanted = named_policies(policies, fleet)
    found = read_trace(named["trace"], Selection(**chosen))
    faults = read_faults(named["faults"], fleet.nodes, *mapping) if named["faults"] else Faults(())
    about = {
        **{name: Path(given).name for name, given in named.items() if given is not None},
        **{name: value for name, value in chosen.items() if value is not None},
        "run_times": run_times or "as the policy says",
        **options,
        "notes": [*found.notes, *fleet.notes, *faults.notes],
    }
    known = RunTimes(run_times) if run_times else None
    return Study(found.jobs, fleet, wanted, faults.faults, known, Options(**options), about)


def _one_pool(pools: str) -> bool:
    if pools not in ("one", "tenant"):
        raise CliError(f"--pools {pools}: choose one (all nodes for all) or tenant (each tenant on nodes of its pool)", Exit.USAGE)
    return pools == "one"


@contextmanager
def _file_errors() -> Iterator[None]:
    """Errors of files as sentences."""
    from trainhouse.scheduler.policies import PolicyError
    from trainhouse.scheduler.sim.drawing import PlotsMissingError
    from trainhouse.scheduler.sim.table import FileError

    try:
        yield
    except (FileError, PolicyError) as error:
        raise CliError(str(error), Exit.USAGE) from error
    except PlotsMissingError as error:
        raise CliError(str(error), Exit.CONFIG) from error
    except OSError as error:
        raise CliError(f"{error.filename or 'a file'}: {error.strerror or error}", Exit.NOT_FOUND) from error


@contextmanager
def bars(names: Iterable[str], jobs: int) -> "Iterator[Progress | None]":
    """A bar for each run on standard error; none where that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        tasks = {name: shown.add_task(name, total=jobs, start=False) for name in names}

        def advance(name: str, done: int, total: int) -> None:
            shown.start_task(tasks[name])
            shown.update(tasks[name], completed=done, total=total)

        yield advance


def _print_refused(policy: str, reasons: list[str]) -> None:
    """Prints the number of jobs that can never run, and why."""
    from collections import Counter

    from trainhouse.cli.shared import output

    counted = Counter(reasons).most_common()
    for reason, count in counted[:MAX_REFUSALS]:
        output.remark(f"{policy}: refused {count:,} job{'' if count == 1 else 's'}: {reason}")
    if len(counted) > MAX_REFUSALS:
        output.remark(
            f"{policy}: refused {sum(n for _, n in counted[MAX_REFUSALS:]):,} more for {len(counted) - MAX_REFUSALS} other reasons"
        )
