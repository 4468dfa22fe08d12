"""`cancel` and `rerun`: what a person may ask of a job."""

import sys
from typing import Annotated

import typer

from trainhouse.cli.exits import CliError, Exit
from trainhouse.cli.options import DataDir, Json


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("cancel")(cancel)
    app.command("rerun")(rerun)


def cancel(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...", help="Job ids.", show_default=False)],
    reason: Annotated[str, typer.Option(help="Kept in the job's story.")] = "cancelled by its user",
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Until they ended.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Asks that jobs end: SIGTERM, a grace time, then SIGKILL. Works at any moment, also just after `submit`.

    \b
    trainhouse cancel gpt-1k7x3m9qp2f8d --reason "wrong learning rate"
    """
    from trainhouse.cli.jobs import unknown
    from trainhouse.client import TrainhouseClient, UnknownJob
    from trainhouse.client.story import spec_of_job

    client = TrainhouseClient.from_settings()
    for job in jobs:
        try:
            state = client.status(job).state
        except UnknownJob:
            # Submitted a moment ago, perhaps: a cancellation may overtake its job.
            if spec_of_job(client.kafka, job) is None:
                raise unknown(job, client.statuses()) from None
            continue
        if state.final:
            raise CliError(f"{job} is {state} already: there is nothing to cancel", Exit.USAGE)
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

    \b
    trainhouse rerun gpt-1k7x3m9qp2f8d --wait
    """
    from trainhouse.cli.jobs import unknown
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
