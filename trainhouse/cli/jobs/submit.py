"""`trainhouse submit`: a command, or a spec from a file, becomes a job; a sweep becomes many.

Holds: nothing is sent unless every spec is valid; standard output is the jobs' ids alone, one a line; what goes along is said on
standard error before it is sent.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import DataDir, FollowedRank, Json, Quiet, Wait

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainhouse.cli.jobs.spec_build import Typed
    from trainhouse.client import Job, TrainhouseClient
    from trainhouse.events import CodeArchive, JobSpec

HELP = """
Submit a job: a command after `--`, or a spec from a YAML file (options go on top of it).

\b
trainhouse submit -- python train.py --steps 500
trainhouse submit --gang 2 --wait -- python train.py
trainhouse submit spec.yaml --priority 10
trainhouse submit --sweep lr=0.1,0.01 --sweep width=64,128 \\
    -- python train.py --lr {lr} --width {width}
echo -n $TOKEN | trainhouse secrets set TOKEN
trainhouse submit --secret TOKEN -- python train.py

The working folder goes along (what git would see of it, without what .trainhouseignore names), named by its content. A job that can never
run ends the command with code 3 and the reason, after a moment in which the control plane answers; --no-wait does not wait for that. With
--wait the exit code is the job's: 0 only for SUCCEEDED, 1 FAILED, 3 REJECTED, 4 CANCELLED.
"""
SPEC_SUFFIXES = (".yaml", ".yml", ".json")


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("submit", help=HELP, no_args_is_help=True)(submit)


def submit(
    arguments: Annotated[list[str], typer.Argument(metavar="[SPEC.yaml] [-- COMMAND ...]", show_default=False)],
    wait: Wait = None,
    rank: FollowedRank = 0,
    quiet: Quiet = False,
    timeout: Annotated[Optional[str], typer.Option(help="With --wait: stop following after 90s, 15m, 2h.")] = None,  # noqa: UP045
    name: Annotated[Optional[str], typer.Option("--name", help="Default: the script's name.")] = None,  # noqa: UP045
    project: Annotated[Optional[str], typer.Option(help="Owner of data rights.")] = None,  # noqa: UP045
    purpose: Annotated[Optional[str], typer.Option(help="What it is for: one that the project has approved.")] = None,  # noqa: UP045
    team: Annotated[Optional[str], typer.Option(help="Owner of quota.")] = None,  # noqa: UP045
    user: Annotated[Optional[str], typer.Option(help="Default: your login name.")] = None,  # noqa: UP045
    pool: Annotated[Optional[str], typer.Option(help="Pool of nodes.")] = None,  # noqa: UP045
    priority: Annotated[Optional[int], typer.Option(help="0 is the highest, 100 the lowest.")] = None,  # noqa: UP045
    gang: Annotated[Optional[int], typer.Option("--gang", "-n", help="Ranks, one device each.")] = None,  # noqa: UP045
    parallelism: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="dp=2,tp=2", help="Layout, over the file's: dp, fsdp, tp, pp, schedule; their product is the gang."),
    ] = None,
    device: Annotated[Optional[str], typer.Option(help="Device type: any, cpu, or a GPU's type.")] = None,  # noqa: UP045
    env: Annotated[Optional[list[str]], typer.Option("--env", "-e", metavar="K=V", help="Environment; repeatable.")] = None,  # noqa: UP045
    secret: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(metavar="NAME", help="A secret of the agent's as environment; repeatable."),
    ] = None,
    hyperparameter: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--hyperparameter", "-p", metavar="K=V", help="Also fills {K} in the command; repeatable."),
    ] = None,
    sweep: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(metavar="K=V1,V2", help="One job for each value; repeated: for each combination."),
    ] = None,
    label: Annotated[Optional[list[str]], typer.Option(metavar="K=V", help="A note on the job; repeatable.")] = None,  # noqa: UP045
    data: Annotated[Optional[str], typer.Option(metavar="NAME@VERSION[:SPLIT]|URI#SHA256", help="Immutable input data.")] = None,  # noqa: UP045
    output: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(metavar="NAME", help="A dataset that it writes, published when it succeeds; repeatable."),
    ] = None,
    register_as: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--register", metavar="MODEL", help="A model that its last checkpoint becomes a version of, once it succeeds."),
    ] = None,
    every_steps: Annotated[Optional[int], typer.Option(help="Checkpoint every so many steps.")] = None,  # noqa: UP045
    keep_last: Annotated[Optional[int], typer.Option(help="Checkpoints to keep.")] = None,  # noqa: UP045
    max_run_time: Annotated[Optional[str], typer.Option(help="90s, 15m, 2h: checkpoint, then FAILED.")] = None,  # noqa: UP045
    restarts: Annotated[Optional[int], typer.Option(help="How often it may restart.")] = None,  # noqa: UP045
    seed: Annotated[Optional[int], typer.Option(help="Seed of the job.")] = None,  # noqa: UP045
    resume_from: Annotated[
        str | None,
        typer.Option(
            "--resume-from", "--from", metavar="JOB", help="Begin from another job's checkpoint: JOB, JOB@COMMIT, JOB@step:N or JOB@best."
        ),
    ] = None,
    interpreter: Annotated[Optional[str], typer.Option(help="Python that `python` means; default: the agent's.")] = None,  # noqa: UP045
    preemptible: Annotated[Optional[bool], typer.Option("--preemptible/--not-preemptible")] = None,  # noqa: UP045
    job_id: Annotated[Optional[str], typer.Option("--id", help="Your own id: repeating the command is then harmless.")] = None,  # noqa: UP045
    code: Annotated[Path, typer.Option(help="Folder with your code.")] = Path("."),
    no_code: Annotated[bool, typer.Option("--no-code", help="Send no folder along.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check, print the specs as JSON, send nothing.")] = False,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    from trainhouse.cli.jobs.spec_build import Typed

    file, command = split(arguments)
    typed = Typed(
        command=command,
        name=name,
        project=project,
        purpose=purpose,
        team=team,
        user=user,
        pool=pool,
        priority=priority,
        gang=gang,
        parallelism=parallelism,
        device=device,
        env=tuple(env or ()),
        secrets=tuple(secret or ()),
        hyperparameters=tuple(hyperparameter or ()),
        sweeps=tuple(sweep or ()),
        labels=tuple(label or ()),
        data=data,
        outputs=tuple(output or ()),
        register=register_as,
        every_steps=every_steps,
        keep_last=keep_last,
        max_run_time=max_run_time,
        restarts=restarts,
        seed=seed,
        resume_from=resume_from,
        interpreter=interpreter,
        preemptible=preemptible,
    )
    from trainhouse.client import TrainhouseClient

    client = TrainhouseClient.from_settings()
    specs = read_specs(typed, file, client.way.user)
    if job_id and len(specs) > 1:
        raise CliError("--id names one job, but --sweep makes many; drop one of them", Exit.USAGE)
    check_rank(rank, wait, specs)
    if dry_run:
        _print_specs(specs)
        return
    folder = None if no_code else code
    if folder is not None:
        check_script(specs[0], folder)
    submitted = send(client, specs, folder, job_id, json=json)
    from trainhouse.cli.shared.filters import parse_duration_s

    finish(client, submitted, Following(wait, rank, quiet, json, parse_duration_s(timeout) if timeout else None))


def split(arguments: list[str]) -> tuple[Path | None, tuple[str, ...]]:
    """Splits the typed arguments into (spec file, command). Raises CliError for a word that is neither a spec nor a program."""
    if arguments and arguments[0].endswith(SPEC_SUFFIXES):
        return Path(arguments[0]), tuple(arguments[1:])
    if len(arguments) == 1 and "/" not in arguments[0] and not arguments[0].startswith("python"):
        import shutil

        if shutil.which(arguments[0]) is None:
            raise CliError(
                f"{arguments[0]!r} is neither a spec (a .yaml file) nor a program; write `trainhouse submit spec.yaml`, "
                "or `trainhouse submit -- python train.py`",
                Exit.USAGE,
            )
    return None, tuple(arguments)


def read_specs(typed: "Typed", path: Path | None, user: str) -> list["JobSpec"]:
    """Every spec, valid. Raises CliError."""
    from trainhouse.cli.jobs import spec_build, spec_file

    file = spec_file.read(path) if path else None
    return spec_build.specs_of(spec_build.fields_of(typed, file.data if file else {}, user), file)


def check_script(spec: "JobSpec", folder: Path) -> None:
    """Refuses a script that is not in the folder, before anything is sent: the job would only fail later."""
    command = spec.runtime.command
    if len(command) < 2 or not re.fullmatch(r"python[0-9.]*", command[0]) or not command[1].endswith(".py"):
        return
    script = Path(command[1])
    if not (folder / script).is_file():
        raise CliError(
            f"{script} is not in {folder.resolve()}: name the folder that holds it by --code, or use --no-code if it is on every node",
            Exit.NOT_FOUND,
        )


def send(client: "TrainhouseClient", specs: list["JobSpec"], folder: Path | None, job_id: str | None, *, json: bool) -> list["Job"]:
    """Uploads the folder once, saying what goes along, and submits every spec; prints ids as they are acked."""
    from trainhouse.cli.shared.code_upload import upload

    archive = upload(client, folder) if folder is not None and any(s.code is None for s in specs) else None
    submitted = []
    for spec in specs:
        job = client.submit(_with_code(spec, archive), job_id=job_id)
        submitted.append(job)
        print_job(job, spec, json=json)
    return submitted


def _with_code(spec: "JobSpec", archive: "CodeArchive | None") -> "JobSpec":
    return spec if archive is None or spec.code is not None else spec.model_copy(update={"code": archive})


@dataclass(frozen=True)
class Following:
    """Extent to which a submission is followed. `wait`: to its end; None: until it is admitted; False: not at all."""

    wait: bool | None
    rank: int = 0
    quiet: bool = False
    json: bool = False
    timeout_s: float | None = None


def finish(client: "TrainhouseClient", submitted: list["Job"], asked: Following) -> None:
    """Follows what was submitted as far as is asked, and prints where to look. Blocks. Raises CliError for a rejected job, and typer.Exit
    with the worst code of those that were followed to their ends."""
    from trainhouse.cli.shared import admission
    from trainhouse.cli.shared.output import remark
    from trainhouse.client.backend_choice import known

    steps = admission.next_steps([str(job.job_id) for job in submitted], known()[0])
    if asked.wait:
        from trainhouse.cli.jobs.follow import follow_all

        if not asked.json:
            remark("\n".join(line for line in steps if line.startswith("page:")) or steps[0])
        shown = None if asked.quiet or asked.json else asked.rank
        raise typer.Exit(follow_all(client, submitted, asked.timeout_s, json=asked.json, rank=shown))
    if asked.wait is None:
        found = admission.answers(client, submitted)
        if late := admission.unanswered(found, [str(job.job_id) for job in submitted]):
            remark(late)
        if refused := admission.refusal(found):
            raise refused
    if not asked.json:
        remark("\n".join(steps))


def check_rank(rank: int, wait: bool | None, specs: "Iterable[JobSpec]") -> None:
    """Refuses a rank to follow that a gang does not have, before anything is sent. Raises CliError."""
    smallest = min((spec.gang.ranks for spec in specs), default=rank + 1)
    if wait and rank >= smallest:
        has = "1 rank, number 0" if smallest == 1 else f"{smallest} ranks, 0 to {smallest - 1}"
        raise CliError(f"--rank {rank}: the gang has {has}; name one of them", Exit.USAGE)


def print_job(job: "Job", spec: "JobSpec | None", *, json: bool) -> None:
    """Prints the id of a job that was submitted."""
    if json:
        from trainhouse.cli.shared.output import json_lines

        json_lines([{"job_id": job.job_id, "event_id": job.event_id, "hyperparameters": dict(spec.hyperparameters) if spec else {}}])
    else:
        sys.stdout.write(f"{job.job_id}\n")
    sys.stdout.flush()


def _print_specs(specs: list["JobSpec"]) -> None:
    for spec in specs:
        sys.stdout.write(spec.model_dump_json(exclude_defaults=True) + "\n")
