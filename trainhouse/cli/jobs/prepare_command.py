"""`trainhouse data prepare`: a version's rows, prepared by a job, as a version of another dataset."""

from pathlib import Path
from typing import Annotated, Optional

import typer

from trainhouse.cli.data.dataset_access import explained
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import DataDir, FollowedRank, Json, Quiet, Wait


def register(app: typer.Typer) -> None:
    """Adds the command to the group of datasets, which is there already."""
    group = next(group.typer_instance for group in app.registered_groups if group.name == "data")
    assert group is not None
    group.command("prepare")(prepare)


def prepare(
    file: Annotated[Path, typer.Argument(help="Preparation as YAML; its folder is sent with the job.", show_default=False)],
    wait: Wait = None,
    rank: FollowedRank = 0,
    quiet: Quiet = False,
    job_id: Annotated[Optional[str], typer.Option("--id", help="Your own id: repeating the command is then harmless.")] = None,  # noqa: UP045
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check, print the spec as JSON, send nothing.")] = False,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Prepare a version by a job: check, clean, split, normalise, tokenise and shuffle its rows; publish them when it succeeds.

    \b
    trainhouse data prepare prepare.yaml --wait

    Small shards are joined, and big ones cut. A job that is killed goes on with the units of work that are missing.
    """
    from trainhouse.cli.jobs import spec_build, spec_file
    from trainhouse.cli.jobs.submit import Following, check_rank, finish, send
    from trainhouse.client import TrainhouseClient
    from trainhouse.workers.data.prepare.preparation import Preparation

    parsed = spec_file.read(file)
    with explained():
        rules = Preparation.parse(parsed.data)
    folder = file.resolve().parent
    if rules.tokenise is not None and not (folder / rules.tokenise.tokenizer).is_file():
        raise CliError(f"tokenise.tokenizer: there is no file {rules.tokenise.tokenizer} in {folder}; put it there", Exit.NOT_FOUND)
    taken = sorted(rules.job.keys() & {"runtime", "data", "outputs", "code"})
    if taken:
        raise CliError(f"job.{taken[0]}: the preparation sets it; leave it out", Exit.USAGE)
    client = TrainhouseClient.from_settings()
    [spec] = spec_build.specs_of(
        [
            {"name": f"prepare-{rules.output}"[:128], "user": client.way.user, "resources": {"device_type": "cpu"}}
            | rules.job
            | {"runtime": {"command": ["python", "-m", "trainhouse.workers.data.prepare", file.name]}}
            | {"data": {"dataset": rules.source, "purpose": rules.purpose}, "outputs": [rules.output]}
        ],
        None,
    )
    check_rank(rank, wait, [spec])
    if dry_run:
        typer.echo(spec.model_dump_json(exclude_defaults=True))
        return
    submitted = send(client, [spec], folder, job_id, json=json)
    finish(client, submitted, Following(wait, rank, quiet, json))
