"""`cancel`, `change`, `review` and `rerun`: what a person may ask of a job."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from trainhouse.cli.shared import complete
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.fresh_tables import let_tables_follow
from trainhouse.cli.shared.options import DataDir, FollowedRank, JobArgument, Json, Quiet, Timeout, Wait

if TYPE_CHECKING:
    from trainhouse.events import JobStatus


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("cancel")(cancel)
    app.command("change")(change)
    app.command("review")(review)
    app.command("rerun")(rerun)


def cancel(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...", help="Job ids.", show_default=False, autocompletion=complete.jobs)],
    reason: Annotated[str, typer.Option(help="Kept in the job's story.")] = "cancelled by its user",
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Until they ended.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Cancel jobs: SIGTERM, a grace time, then SIGKILL. Works at any moment, also just after `submit`.

    \b
    trainhouse cancel gpt-1k7x3m9qp2f8d --reason "wrong learning rate"
    """
    from trainhouse.cli.jobs.job_status import known_ids, unknown
    from trainhouse.client import TrainhouseClient, UnknownJobError

    client = TrainhouseClient.from_settings()
    for job in jobs:
        try:
            state = client.status(job).state
        except UnknownJobError:
            # Submitted a moment ago, perhaps: a cancellation may overtake its job.
            if client.spec(job) is None:
                raise unknown(job, known_ids(client)) from None
            continue
        if state.final:
            raise CliError(f"{job} is {state} already: there is nothing to cancel", Exit.USAGE)
    for job in jobs:
        client.cancel(job, reason)
        sys.stderr.write(f"asked {job} to end\n")
    if wait:
        for job in jobs:
            sys.stdout.write(f"{job} {client.wait(job).state}\n")


def change(
    job: JobArgument,
    priority: Annotated[Optional[int], typer.Option(min=0, max=100, help="0 is the highest, 100 the lowest.")] = None,  # noqa: UP045
    restarts: Annotated[Optional[int], typer.Option(min=0, help="How often it may restart, in all.")] = None,  # noqa: UP045
    run_time: Annotated[Optional[str], typer.Option(help="90s, 15m, 2h in all, or `none`: checkpoint, then FAILED.")] = None,  # noqa: UP045
    grace: Annotated[Optional[str], typer.Option(help="Time between SIGTERM and SIGKILL: 30s, 2m.")] = None,  # noqa: UP045
    timeout: Timeout = 30.0,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Change priority or limits of a job that has not ended, and wait until the change counts. What is not named stays as it is.

    \b
    trainhouse change gpt-1k7x3m9qp2f8d --priority 10
    trainhouse change gpt-1k7x3m9qp2f8d --run-time 4h --restarts 5
    """
    from trainhouse.cli.jobs.job_status import find
    from trainhouse.cli.shared import output
    from trainhouse.client import ChangeRefusedError, TrainhouseClient
    from trainhouse.client.errors import JobEndedError

    asked = limits_asked(restarts, run_time, grace)
    if priority is None and not asked:
        raise CliError("say what to change: --priority, --restarts, --run-time or --grace", Exit.USAGE)
    client = TrainhouseClient.from_settings()
    status = find(client, job)
    if status.state.final:
        raise CliError(f"{job} is {status.state} already: nothing of it can change", Exit.USAGE)
    try:
        retuned = client.change(job, priority=priority, timeout_s=timeout, **asked)
    except JobEndedError as ended:
        raise CliError(str(ended), Exit.USAGE) from ended
    except ChangeRefusedError as refused:
        raise CliError(f"{job} was not changed: {refused}", Exit.REJECTED) from refused
    let_tables_follow(client)
    if retuned is None:
        raise CliError(unchanged(job, find(client, job), priority, asked), Exit.USAGE)
    if json:
        output.json_lines([{"job_id": job, "priority": retuned.priority, "limits": retuned.limits.model_dump(mode="json")}])
        return
    sys.stdout.write(f"{job}: {terms_text(retuned.priority, retuned.limits.model_dump())}\n")


def unchanged(job: str, status: "JobStatus", priority: int | None, limits: Mapping[str, Any]) -> str:
    """The error for a change without effect: the job has ended, or has these values."""
    from trainhouse.client.errors import JobEndedError

    if status.state.final:
        return str(JobEndedError(job, status.state))
    return f"{job} was not changed: it is {status.state}, and has {terms_text(priority, limits)} already; name another value"


def terms_text(priority: int | None, limits: Mapping[str, Any]) -> str:
    """Priority and limits in words, as far as they are named."""
    from trainhouse.cli.shared.output import duration

    named = [] if priority is None else [f"priority {priority}"]
    if "restarts" in limits:
        named.append(f"{limits['restarts']} restarts")
    if "run_time_s" in limits:
        named.append("no limit of run time" if limits["run_time_s"] is None else f"run time {duration(limits['run_time_s'])}")
    if "grace_s" in limits:
        named.append(f"grace {limits['grace_s']:g} s")
    return ", ".join(named)


def review(
    job: JobArgument,
    send: Annotated[bool, typer.Option("--send", help="It saves, leaves its devices, and is NEEDS_REVIEW.")] = False,
    go_on: Annotated[bool, typer.Option("--go-on", help="It waits in its queue again, and starts from its last checkpoint.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="It is CANCELLED.")] = False,
    max_bad: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(min=0, max=1, help="With --go-on: share of bad samples that it allows from now on.", show_default=False),
    ] = None,
    reason: Annotated[str, typer.Option(help="Kept in the job's story.")] = "",
    timeout: Timeout = 30.0,
    data_dir: DataDir = None,
) -> None:
    """Send a job to review, or end the review of a job that is NEEDS_REVIEW; wait until that counts.

    \b
    trainhouse review gpt-1k7x3m9qp2f8d --send --reason "its loss looks odd"
    trainhouse review gpt-1k7x3m9qp2f8d --go-on
    trainhouse review gpt-1k7x3m9qp2f8d --go-on --max-bad 0.1
    trainhouse review gpt-1k7x3m9qp2f8d --cancel --reason "wrong data"
    """
    from trainhouse.cli.jobs.job_status import find
    from trainhouse.client import ChangeRefusedError, TrainhouseClient
    from trainhouse.events import JobState, ReviewAction

    ways = (ReviewAction.SEND, send), (ReviewAction.GO_ON, go_on), (ReviewAction.CANCEL, cancel)
    asked = [action for action, named in ways if named]
    if len(asked) != 1:
        raise CliError("say one thing: --send, --go-on or --cancel", Exit.USAGE)
    if max_bad is not None and not go_on:
        raise CliError("--max-bad goes with --go-on", Exit.USAGE)
    client = TrainhouseClient.from_settings()
    state = find(client, job).state
    if asked[0] is not ReviewAction.SEND and state is not JobState.NEEDS_REVIEW:
        raise CliError(f"{job} is {state}, not NEEDS_REVIEW: there is no review to end", Exit.REJECTED)
    if state.final:
        raise CliError(f"{job} is {state} already: there is nothing to review", Exit.REJECTED)
    try:
        client.review(job, asked[0], reason=reason, max_bad=max_bad, timeout_s=timeout)
    except ChangeRefusedError as refused:
        raise CliError(str(refused), Exit.REJECTED) from refused
    let_tables_follow(client)
    outcomes = {ReviewAction.SEND: "sent to review", ReviewAction.GO_ON: "goes on", ReviewAction.CANCEL: "cancelled"}
    sys.stdout.write(f"{job}: {outcomes[asked[0]]}\n")


def limits_asked(restarts: int | None, run_time: str | None, grace: str | None) -> dict[str, Any]:
    """The fields of the limits that were named. Raises CliError."""
    from trainhouse.cli.shared.filters import parse_duration_s

    asked: dict[str, Any] = {} if restarts is None else {"restarts": restarts}
    if run_time is not None:
        asked["run_time_s"] = None if run_time == "none" else parse_duration_s(run_time)
    if grace is not None:
        asked["grace_s"] = parse_duration_s(grace)
    return asked


def rerun(
    job: JobArgument,
    wait: Wait = None,
    rank: FollowedRank = 0,
    quiet: Quiet = False,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Submit a job again: same code, environment, data, seed and gang; a new id.

    \b
    trainhouse rerun gpt-1k7x3m9qp2f8d --wait
    """
    from trainhouse.cli.jobs.job_status import known_ids, unknown
    from trainhouse.cli.jobs.submit import Following, check_rank, finish, print_job
    from trainhouse.client import TrainhouseClient, UnknownJobError

    client = TrainhouseClient.from_settings()
    try:
        if wait and rank and (before := client.spec(job)) is not None:
            check_rank(rank, wait, [before])
        again = client.rerun(job)
    except UnknownJobError:
        raise unknown(job, known_ids(client)) from None
    print_job(again, client.spec(job) if json else None, json=json)
    finish(client, [again], Following(wait, rank, quiet, json))
