"""`status` and `checkpoints`: jobs as they are now, and what they saved.

Holds: an unknown job is told with its nearest names.
"""

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from trainhouse.cli.shared import complete
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import DataDir, JobArgument, Json, Limit, Pool, Project, Since, State, Tag, Team, Until, User
from trainhouse.client.errors import UnknownJobError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trainhouse.client import JobFilter, TrainhouseClient
    from trainhouse.client.quick.quick_reads import QuickReads
    from trainhouse.events import JobStatus

# The list is asked for again when something changed, but not more often than that; and now and then anyway.
WATCH_S, ANYWAY_S = 1.0, 15.0
MAX_HINTED = 1000
SLOW_UPLOAD_S, PAUSE_S, PAUSE_SHARE, RECENT_INTERVALS = 60.0, 5.0, 0.02, 4
"""As of the alert uploads-slow."""


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
    tag: Tag = None,
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
    trainhouse status --tag paper=icml                   those with a tag
    trainhouse status --since 2h --json | jq .state      for programs
    trainhouse status gpt-1k7x3m9qp2f8d --json | jq .mfu
        share of the devices' peak; null where it is not known
    trainhouse status gpt-1k7x3m9qp2f8d --watch  follow; exits with the job's code
    """
    from trainhouse.cli.jobs import job_table
    from trainhouse.cli.shared import output
    from trainhouse.cli.shared.filters import job_filter

    if job is not None:
        if watch:
            _follow(job, json=json)
        _one(job, json=json)
        return
    for _ in _moments() if watch else (None,):
        now_ms = time.time_ns() // 1_000_000
        keep = job_filter(now_ms, user=user, team=team, project=project, pool=pool, state=state, since=since, until=until, tag=tag)
        rows = _listed(keep, limit)
        if watch and sys.stdout.isatty():
            sys.stdout.write("\x1b[2J\x1b[H")
        if json:
            output.json_lines(rows)
        else:
            job_table.show(rows)
        sys.stdout.flush()


def checkpoints(job: JobArgument, json: Json = False, data_dir: DataDir = None) -> None:
    """List the checkpoints of a job, oldest first: a restart begins from the newest good one. PRUNED ones were removed by retention,
    DELETED ones by `trainhouse checkpoint delete`.

    \b
    trainhouse checkpoints gpt-1k7x3m9qp2f8d
    trainhouse submit --from gpt-1k7x3m9qp2f8d -- python train.py
    trainhouse checkpoint tag gpt-1k7x3m9qp2f8d@41 paper

    `stall` is the time for which training stood still, `upload` goes on beside it. `tier`: all are in the object store; nodes keep the
    newest one of a running job in memory, too. `tags` keep a checkpoint beyond its job's retention.
    """
    from trainhouse.cli.shared import output
    from trainhouse.client.errors import ClientError

    rows, unknown_tags = _checkpoints(job), ""
    try:
        tags: Any = _tags(job) if rows else []
    except ClientError as error:
        tags, unknown_tags = None, str(error)
    if json:
        output.json_lines(row | {"tags": None if tags is None else tags_of(row, tags)} for row in rows)
    elif rows:
        right = ("commit", "step", "attempt", "MiB", "new MiB", "stall", "upload")
        columns = ("commit", "step", "attempt", "state", "tier", "MiB", "new MiB", "stall", "upload", "completed", "tags", "uri")
        tiers = checkpoint_tiers(rows, _has_ended(job))
        shown = [_checkpoint(row, tier, tags_of(row, tags or [])) for row, tier in zip(rows, tiers, strict=True)]
        drop = ("uri", "attempt", *columns[4:11][::-1])
        output.table(columns, shown, right=right, drop=drop, whole=("state", "completed"))
        if unknown_tags:
            output.remark(f"tags are not shown: {unknown_tags}")
        if (sentence := upload_pace(rows, time.time_ns() // 1_000_000)) is not None:
            output.remark(sentence)
    else:
        current(job)
        output.remark(f"{job} has saved nothing")


def _checkpoints(job: str) -> list[dict[str, Any]]:
    from trainhouse.client.quick.quick_reads import asked

    try:
        return asked(lambda reads: reads.checkpoints(job), lambda client: client.checkpoints(job))
    except UnknownJobError:
        raise unknown(job, _quick_ids()) from None


def _tags(job: str) -> list[dict[str, Any]]:
    """Names that keep checkpoints: by a gateway if one is known, else from the object store itself. Blocks. Raises NotReachableError."""
    from trainhouse.client.quick.quick_reads import asked

    return asked(lambda reads: reads.checkpoint_tags(job), lambda client: client.checkpoint_tags(job))


def stall_text(seconds: float) -> str:
    """Returns a stall with its unit: of a copy in memory it is milliseconds. Pure."""
    from trainhouse.cli.shared.output import duration

    return f"{seconds * 1000:.0f}ms" if seconds < 1 else duration(seconds)


def upload_pace(rows: list[dict[str, Any]], now_ms: int) -> str | None:
    """Returns a sentence where each of the last saves began as soon as the upload of the one before ended, as the alert `uploads-slow` has
    it. Pure."""
    newest = [row for row in rows if row["epoch"] == rows[-1]["epoch"]][-4:]
    between_s = (newest[-1]["completed_at_ms"] - newest[0]["completed_at_ms"]) / 1000
    uploads_s = [row["upload_s"] for row in newest[:-1]]
    if len(newest) < 4 or between_s <= 0 or min(uploads_s) < SLOW_UPLOAD_S:
        return None
    pause_s = between_s - sum(uploads_s)
    is_old = now_ms - newest[-1]["completed_at_ms"] > RECENT_INTERVALS * between_s * 1000 / len(uploads_s)
    if is_old or pause_s > max(PAUSE_S * len(uploads_s), PAUSE_SHARE * between_s):
        return None
    return (
        f"uploads took {sum(uploads_s) / between_s:.0%} of the time between the last saves: the object store sets their pace; a failure "
        f"costs up to {between_s / len(uploads_s):.0f} s of training"
    )


def checkpoint_tiers(rows: list[dict[str, Any]], ended: bool) -> list[str]:
    """Returns the place of each checkpoint. Nodes keep a rank's newest save alone in memory, until the job ends: the rest is gone. Pure."""
    newest = max((row["commit"] for row in rows if row["state"] == "COMPLETED"), default=None)

    def tier(row: dict[str, Any]) -> str:
        if row["state"] != "COMPLETED":
            return "-"
        nodes = len(row.get("memory_nodes") or ()) if row["commit"] == newest and not ended else 0
        return f"store, memory of {nodes} node{'s' * (nodes != 1)}" if nodes else "store"

    return [tier(row) for row in rows]


def tags_of(checkpoint: dict[str, Any], tags: list[dict[str, Any]]) -> list[str]:
    """Returns the names that keep a checkpoint, those that cannot be read included: they keep all of the job. Pure."""
    commits = (checkpoint["commit"], None) if checkpoint["state"] == "COMPLETED" else (checkpoint["commit"],)
    return [str(tag["name"]) for tag in tags if tag["commit"] in commits]


def _has_ended(job: str) -> bool:
    from trainhouse.client.rows import FINAL

    try:
        return current(job)[1]["state"] in FINAL
    except CliError:
        return True


def _checkpoint(row: dict[str, Any], tier: str, tags: list[str]) -> tuple[Any, ...]:
    from trainhouse.cli.shared.output import clock, duration

    sizes = (round(row["bytes_total"] / 2**20, 2), round(row["bytes_new"] / 2**20, 2))
    about = (row["commit"], row["step"], row["attempt"], row["state"], tier)
    return (
        *about,
        *sizes,
        stall_text(row["stage_s"]),
        duration(row["upload_s"]),
        clock(row["completed_at_ms"]),
        ", ".join(tags),
        row["uri"],
    )


def _listed(keep: "JobFilter", limit: int) -> "list[dict[str, Any]]":
    """Rows of jobs: by quick reads, else by the client, which has more ways. Blocks."""
    from trainhouse.client.quick.quick_reads import asked

    return asked(lambda reads: reads.jobs(keep, limit), lambda client: client.jobs(keep, limit))


def _moments() -> "Iterator[None]":
    """Yields when the list is worth asking for again: at once, and when some job changed. Blocks between."""
    from trainhouse.client import TrainhouseClient

    yield None
    shown_at, changed = time.monotonic(), False
    for status in TrainhouseClient.from_settings().watch_all():
        changed = changed or status is not None
        if time.monotonic() >= shown_at + (WATCH_S if changed else ANYWAY_S):
            yield None
            shown_at, changed = time.monotonic(), False


def find(client: "TrainhouseClient", job: str) -> "JobStatus":
    """The job's status. Raises CliError with the nearest names."""
    try:
        return client.status(job)
    except UnknownJobError:
        raise unknown(job, known_ids(client)) from None


def current(job: str) -> "tuple[QuickReads | TrainhouseClient, dict[str, Any]]":
    """A job's status as JSON, and where more of it can be asked. Blocks. Raises CliError with the nearest names."""
    from trainhouse.client.quick.quick_reads import asked

    try:
        return asked(lambda reads: _known_status(reads, job), lambda client: (client, find(client, job).model_dump(mode="json")))
    except UnknownJobError:
        raise unknown(job, _quick_ids()) from None


def _known_status(reads: "QuickReads", job: str) -> "tuple[QuickReads, dict[str, Any]] | None":
    found = reads.status(job)
    return None if found is None else (reads, found)


def _quick_ids() -> list[str]:
    """Ids of the newest jobs, for a hint: none where tables and gateway do not answer."""
    from trainhouse.client.filters import JobFilter
    from trainhouse.client.quick.quick_reads import quickly

    return [str(row["job_id"]) for row in quickly(lambda reads: reads.jobs(JobFilter(), MAX_HINTED)) or ()]


def known_ids(client: "TrainhouseClient") -> list[str]:
    """Ids of the newest jobs, for a hint."""
    return [str(row["job_id"]) for row in client.jobs(limit=MAX_HINTED)]


def unknown(job: str, known: Any) -> CliError:
    """The error for a job that nobody has seen."""
    import difflib

    near = difflib.get_close_matches(job, list(known), n=3, cutoff=0.5) or [k for k in known if k.startswith(job)][:3]
    hint = f"did you mean {' or '.join(near)}?" if near else "`trainhouse status` lists them"
    return CliError(f"there is no job {job!r}; {hint}", Exit.NOT_FOUND)


def _follow(job: str, *, json: bool) -> None:
    from trainhouse.cli.jobs.follow import follow_all
    from trainhouse.client import TrainhouseClient

    client = TrainhouseClient.from_settings()
    find(client, job)
    raise typer.Exit(follow_all(client, [client.job(job)], None, json=json))


def _one(job: str, *, json: bool) -> None:
    from trainhouse.cli.jobs.job_artifacts import artifacts_of
    from trainhouse.cli.jobs.job_artifacts import lines as artifact_lines
    from trainhouse.cli.jobs.measured_figures import figures_of, lines
    from trainhouse.cli.shared import output
    from trainhouse.cli.tags.tag_command import tag_lines, tags_of_job

    asked, found = current(job)
    figures, artifacts, tags = figures_of(asked, found), artifacts_of(asked, job), tags_of_job(asked, job)
    if json:
        output.json_lines([found | figures | {"artifacts": artifacts, "tags": tags}])
        return
    for name, value in (*details(found), *lines(figures), *artifact_lines(artifacts), *tag_lines(tags)):
        typer.echo(f"{name:<12}{output.printable(value)}")


def details(status: "Mapping[str, Any]") -> list[tuple[str, str]]:
    """One job's status, as JSON, as (name, text), without what is not known."""
    from trainhouse.cli.shared.output import clock, duration, one_line
    from trainhouse.client.rows import FINAL

    checkpoint, step = status["last_checkpoint"], status["step"]
    nodes = ", ".join(f"{p['node_id']} (ranks {p['first_rank']}–{p['first_rank'] + len(p['devices']) - 1})" for p in status["allocation"])
    ranks = f"{status['world_size']} ranks" if status["world_size"] else ""
    found = [
        ("job", status["job_id"] or ""),
        ("state", status["state"]),
        ("reason", one_line(status["reason"])),
        ("name", status["name"]),
        ("of", f"{status['user']} · team {status['team']} · project {status['project']}" if status["user"] else ""),
        ("pool", f"{status['pool']}, priority {status['priority']}" if status["pool"] else ""),
        ("attempt", f"{status['attempt']} (restarts: {status['restarts']})"),
        ("gang", f"{status['world_size']} ranks on {nodes}" if nodes else ranks),
        ("step", "" if step is None else f"{step}" + (f" of {status['total_steps']}" if status["total_steps"] else "")),
        ("loss", "" if status["loss"] is None else f"{status['loss']:.5g}"),
        ("rate", "" if not status["steps_per_s"] else f"{status['steps_per_s']:.2f} steps/s"),
        ("elapsed", duration(status["elapsed_s"])),
        ("ETA", "" if status["state"] in FINAL else duration(status["eta_s"])),
        ("checkpoint", f"commit {checkpoint['commit']} at step {checkpoint['step']}, {checkpoint['uri']}" if checkpoint else ""),
        ("submitted", clock(status["submitted_at_ms"])),
        ("running", clock(status["running_at_ms"])),
        ("finished", clock(status["finished_at_ms"])),
    ]
    return [(name, text) for name, text in found if text]
