"""`status`, `cancel` and `rerun`: jobs as they are now, and what a person may ask of them.

Holds: an unknown job is told with its nearest names.
"""

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from trainhouse.cli.exits import CliError, Exit
from trainhouse.cli.options import DataDir, Json, Limit, Pool, Project, Since, State, Team, Until, User

if TYPE_CHECKING:
    from trainhouse.client import TrainhouseClient
    from trainhouse.events import JobStatus

WATCH_S = 2.0


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("status")(status)
    app.command("cancel")(cancel)
    app.command("rerun")(rerun)


def status(
    job: Annotated[Optional[str], typer.Argument(help="Job id; none: list jobs.", show_default=False)] = None,  # noqa: UP045
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
    """Jobs and their states, newest first; or one job in full.

    trainhouse status                                    the newest jobs

    trainhouse status --state RUNNING --team vision      what a team runs now

    trainhouse status --since 2h --json | jq .state      for programs

    trainhouse status gpt-1k7x3m9qp2f8d --watch          follow; exits with the job's code
    """
    from trainhouse.cli.filters import job_filter
    from trainhouse.client import TrainhouseClient

    client = TrainhouseClient.from_settings()
    if job is not None:
        _one(client, job, watch=watch, json=json)
        return
    while True:
        keep = job_filter(
            time.time_ns() // 1_000_000, user=user, team=team, project=project, pool=pool, state=state, since=since, until=until
        )
        found = sorted(
            (s for s in client.statuses().values() if keep.keeps(row_of(s))), key=lambda s: -(s.submitted_at_ms or s.updated_at_ms)
        )
        if watch and sys.stdout.isatty():
            sys.stdout.write("\x1b[2J\x1b[H")
        _list(found[:limit], json=json)
        if not watch:
            return
        sys.stdout.flush()
        time.sleep(WATCH_S)


def cancel(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...", help="Job ids.", show_default=False)],
    reason: Annotated[str, typer.Option(help="Kept in the job's story.")] = "cancelled by its user",
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Until they ended.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Asks that jobs end: SIGTERM, a grace time, then SIGKILL. Works at any moment, also just after `submit`.

    trainhouse cancel gpt-1k7x3m9qp2f8d --reason "wrong learning rate"
    """
    from trainhouse.client import TrainhouseClient

    client = TrainhouseClient.from_settings()
    known = client.statuses()
    for job in jobs:
        found = known.get(job)
        if found is None:
            raise unknown(job, known)
        if found.state.final:
            raise CliError(f"{job} has {found.state} already; there is nothing to cancel", Exit.USAGE)
    for job in jobs:
        client.cancel(job, reason)
        sys.stderr.write(f"asked {job} to end\n")
    if wait:
        for job in jobs:
            sys.stdout.write(f"{job} {client.wait(job).state}\n")


def rerun(
    job: Annotated[str, typer.Argument(help="Job id.", show_default=False)],
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Follow the new job; exit with its code.")] = False,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Submits a job again: same code, environment, data, seed and gang; a new id.

    trainhouse rerun gpt-1k7x3m9qp2f8d --wait
    """
    from trainhouse.cli.submit import send
    from trainhouse.client import TrainhouseClient
    from trainhouse.client.story import spec_of_job

    client = TrainhouseClient.from_settings()
    spec = spec_of_job(client.kafka, job)
    if spec is None:
        raise unknown(job, client.statuses())
    labelled = spec.model_copy(update={"labels": {**spec.labels, "rerun-of": job}})
    client, submitted = send([labelled], None, None, json=json)
    if wait:
        from trainhouse.cli.follow import follow_all

        raise typer.Exit(follow_all(client, submitted, None, json=json))


def unknown(job: str, known: Any) -> CliError:
    """The error for a job that nobody has seen."""
    import difflib

    near = difflib.get_close_matches(job, list(known), n=3, cutoff=0.5) or [k for k in known if k.startswith(job)][:3]
    hint = f"did you mean {' or '.join(near)}?" if near else "`trainhouse status` lists them"
    return CliError(f"there is no job {job!r}; {hint}", Exit.NOT_FOUND)


def _one(client: "TrainhouseClient", job: str, *, watch: bool, json: bool) -> None:
    known = client.statuses()
    found = known.get(job)
    if found is None:
        raise unknown(job, known)
    if watch:
        from trainhouse.cli.follow import follow_all
        from trainhouse.client import Submitted
        from trainhouse.events import JobId

        raise typer.Exit(follow_all(client, [Submitted(JobId(job), "", None)], None, json=json))
    if json:
        from trainhouse.cli.output import json_lines

        json_lines([found.model_dump(mode="json")])
        return
    for name, value in details(found):
        typer.echo(f"{name:<12}{value}")


def row_of(status: "JobStatus") -> dict[str, Any]:
    """A status as a flat row, as `--json` prints it."""
    return status.model_dump(mode="json")


def _list(found: "list[JobStatus]", *, json: bool) -> None:
    from trainhouse.cli import output

    if json:
        output.json_lines(row_of(s) for s in found)
        return
    if not found:
        output.remark("no jobs; submit one with `trainhouse submit -- python train.py`")
        return
    columns = ("job", "state", "user", "project", "ranks", "step", "loss", "steps/s", "elapsed", "submitted", "reason")
    rows = (
        (
            s.job_id or s.submission_id,
            str(s.state),
            s.user,
            s.project,
            s.world_size or None,
            s.step if not s.total_steps else f"{s.step or 0}/{s.total_steps}",
            s.loss,
            s.steps_per_s,
            output.duration(s.elapsed_s),
            output.clock(s.submitted_at_ms or s.updated_at_ms),
            s.reason,
        )
        for s in found
    )
    output.table(columns, rows, right=("ranks", "step", "loss", "steps/s", "elapsed"))


def details(status: "JobStatus") -> list[tuple[str, str]]:
    """One job as (name, text), without what is not known."""
    from trainhouse.cli.output import clock, duration

    checkpoint = status.last_checkpoint
    nodes = ", ".join(f"{p.node_id} (ranks {p.ranks.start}–{p.ranks.stop - 1})" for p in status.allocation)
    found = [
        ("job", str(status.job_id or "")),
        ("state", str(status.state)),
        ("reason", status.reason),
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
