"""`status` and `checkpoints`: jobs as they are now, and what they saved.

Holds: an unknown job is told with its nearest names.
"""

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from trainhouse.cli.shared import complete
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import DataDir, JobArgument, Json, Limit, Pool, Project, Since, State, Team, Until, User

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainhouse.client import TrainhouseClient
    from trainhouse.events import JobStatus

# The list is asked for again when something changed, but not more often than that; and now and then anyway.
WATCH_S, ANYWAY_S = 1.0, 15.0
MAX_HINTED = 1000


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("status")(status)
    app.command("checkpoints")(checkpoints)


def status(
    job: Annotated[Optional[str], typer.Argument(help="Job id; none: list jobs.", show_default=False, autocompletion=complete.jobs)] = None,  # noqa: UP045
    watch: Annotated[bool, typer.Option("--watch", help="Follow the job; without a job: refresh the list.")] = False,
    user: User = None,
    team: Team = None,
    project: Project = None,
    pool: Pool = None,
    state: State = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 50,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """List jobs and their states, newest first; or show one job in full.

    \b
    trainhouse status                                    the newest jobs
    trainhouse status --state RUNNING --team vision      what a team runs now
    trainhouse status --since 2h --json | jq .state      for programs
    trainhouse status gpt-1k7x3m9qp2f8d --json | jq .mfu share of the devices' peak; null where it is not known
    trainhouse status gpt-1k7x3m9qp2f8d --watch          follow; exits with the job's code
    """
    from trainhouse.cli.jobs import job_table
    from trainhouse.cli.shared import output
    from trainhouse.cli.shared.filters import job_filter
    from trainhouse.client import TrainhouseClient

    client = TrainhouseClient.from_settings()
    if job is not None:
        _one(client, job, watch=watch, json=json)
        return
    for _ in _moments(client) if watch else (None,):
        now_ms = time.time_ns() // 1_000_000
        keep = job_filter(now_ms, user=user, team=team, project=project, pool=pool, state=state, since=since, until=until)
        rows = client.jobs(keep, limit)
        if watch and sys.stdout.isatty():
            sys.stdout.write("\x1b[2J\x1b[H")
        if json:
            output.json_lines(rows)
        else:
            job_table.show(rows)
        sys.stdout.flush()


def checkpoints(job: JobArgument, json: Json = False, data_dir: DataDir = None) -> None:
    """List the checkpoints of a job, oldest first: a restart begins from the newest good one; PRUNED ones were removed by retention.

    \b
    trainhouse checkpoints gpt-1k7x3m9qp2f8d
    trainhouse submit --from gpt-1k7x3m9qp2f8d -- python train.py
    trainhouse checkpoint tag gpt-1k7x3m9qp2f8d@41 paper
    """
    from trainhouse.cli.shared import output
    from trainhouse.client import TrainhouseClient

    client = TrainhouseClient.from_settings()
    rows = client.checkpoints(job)
    if json:
        output.json_lines(rows)
    elif rows:
        right = ("commit", "step", "attempt", "MiB", "new MiB", "upload")
        columns = ("commit", "step", "attempt", "state", "MiB", "new MiB", "upload", "completed", "uri")
        output.table(columns, map(_checkpoint, rows), right=right, narrow=(*columns[:2], *columns[3:8]))
    else:
        find(client, job)
        output.remark(f"{job} has saved nothing")


def _checkpoint(row: dict[str, Any]) -> tuple[Any, ...]:
    from trainhouse.cli.shared.output import clock, duration

    sizes = (round(row["bytes_total"] / 2**20, 2), round(row["bytes_new"] / 2**20, 2))
    about = (row["commit"], row["step"], row["attempt"], row["state"])
    return (*about, *sizes, duration(row["upload_s"]), clock(row["completed_at_ms"]), row["uri"])


def _moments(client: "TrainhouseClient") -> "Iterator[None]":
    """Yields when the list is worth asking for again: at once, and when some job changed. Blocks between."""
    yield None
    shown_at, changed = time.monotonic(), False
    for status in client.watch_all():
        changed = changed or status is not None
        if time.monotonic() >= shown_at + (WATCH_S if changed else ANYWAY_S):
            yield None
            shown_at, changed = time.monotonic(), False


def find(client: "TrainhouseClient", job: str) -> "JobStatus":
    """The job's status. Raises CliError with the nearest names."""
    from trainhouse.client import UnknownJobError

    try:
        return client.status(job)
    except UnknownJobError:
        raise unknown(job, known_ids(client)) from None


def known_ids(client: "TrainhouseClient") -> list[str]:
    """Ids of the newest jobs, for a hint."""
    return [str(row["job_id"]) for row in client.jobs(limit=MAX_HINTED)]


def unknown(job: str, known: Any) -> CliError:
    """The error for a job that nobody has seen."""
    import difflib

    near = difflib.get_close_matches(job, list(known), n=3, cutoff=0.5) or [k for k in known if k.startswith(job)][:3]
    hint = f"did you mean {' or '.join(near)}?" if near else "`trainhouse status` lists them"
    return CliError(f"there is no job {job!r}; {hint}", Exit.NOT_FOUND)


def _one(client: "TrainhouseClient", job: str, *, watch: bool, json: bool) -> None:
    found = find(client, job)
    if watch:
        from trainhouse.cli.jobs.follow import follow_all

        raise typer.Exit(follow_all(client, [client.job(job)], None, json=json))
    from trainhouse.cli.jobs.measured_figures import figures_of, lines

    figures = figures_of(client, found)
    if json:
        from trainhouse.cli.shared.output import json_lines

        json_lines([found.model_dump(mode="json") | figures])
        return
    for name, value in (*details(found), *lines(figures)):
        typer.echo(f"{name:<12}{value}")


def details(status: "JobStatus") -> list[tuple[str, str]]:
    """One job as (name, text), without what is not known."""
    from trainhouse.cli.shared.output import clock, duration, one_line

    checkpoint = status.last_checkpoint
    nodes = ", ".join(f"{p.node_id} (ranks {p.ranks.start}–{p.ranks.stop - 1})" for p in status.allocation)
    found = [
        ("job", str(status.job_id or "")),
        ("state", str(status.state)),
        ("reason", one_line(status.reason)),
        ("name", status.name),
        ("of", f"{status.user} · team {status.team} · project {status.project}" if status.user else ""),
        ("pool", f"{status.pool or ''}, priority {status.priority}" if status.pool else ""),
        ("attempt", f"{status.attempt} (restarts: {status.restarts})"),
        ("gang", f"{status.world_size} ranks on {nodes}" if nodes else (f"{status.world_size} ranks" if status.world_size else "")),
        ("step", "" if status.step is None else f"{status.step}" + (f" of {status.total_steps}" if status.total_steps else "")),
        ("loss", "" if status.loss is None else f"{status.loss:.5g}"),
        ("rate", "" if not status.steps_per_s else f"{status.steps_per_s:.2f} steps/s"),
        ("elapsed", duration(status.elapsed_s)),
        ("ETA", "" if status.state.final else duration(status.eta_s)),
        ("checkpoint", f"commit {checkpoint.commit} at step {checkpoint.step}, {checkpoint.uri}" if checkpoint else ""),
        ("submitted", clock(status.submitted_at_ms)),
        ("running", clock(status.running_at_ms)),
        ("finished", clock(status.finished_at_ms)),
    ]
    return [(name, text) for name, text in found if text]
