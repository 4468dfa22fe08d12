"""`stack` and `exec`: a look into the ranks of a running job."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import JobArgument, Json, KafkaDir

if TYPE_CHECKING:
    from trainhouse.client import TrainhouseClient
    from trainhouse.events import JobStatus


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("stack")(stack)
    app.command("exec")(execute)
    app.command("operations-key")(operations_key)


def stack(
    job: JobArgument,
    attempt: Annotated[Optional[int], typer.Option(min=0, help="As they were when this attempt was found to hang.")] = None,  # noqa: UP045
    timeout: Annotated[float, typer.Option(min=1, help="Seconds to wait for the agents.")] = 30.0,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Show every rank's Python stack, now; or as it was when an attempt was found to hang. Ranks that run go on.

    \b
    trainhouse stack gpt-1k7x3m9qp2f8d
    trainhouse stack gpt-1k7x3m9qp2f8d --attempt 1
    """
    from trainhouse.cli.shared.output import json_lines
    from trainhouse.client.kafka.operations import dump_stacks

    texts: dict[int, str] = {}
    if attempt is not None:
        texts = kept_stacks(job, attempt)
    else:
        client, status = _running(job)
        for reply in dump_stacks(client.kafka, status, timeout):
            texts[reply.rank] = texts.get(reply.rank, "") + reply.text
    if json:
        json_lines({"job_id": job, "rank": rank, "stack": text} for rank, text in sorted(texts.items()))
        return
    for rank, text in sorted(texts.items()):
        sys.stdout.write(f"── rank {rank} ──\n{text.rstrip()}\n\n")


def kept_stacks(job: str, attempt: int) -> dict[int, str]:
    """The stacks that agents kept of an attempt, by rank. Raises CliError."""
    from trainhouse.cli.jobs.job_status import find
    from trainhouse.client import TrainhouseClient
    from trainhouse.client.job import batches

    client = TrainhouseClient.from_settings()
    texts: dict[int, str] = {}
    for batch in batches(client.lines(job, stream="stacks", attempt=attempt)):
        for line in batch:
            texts[line.rank] = f"{texts.get(line.rank, '')}{line.text}\n"
    if not texts:
        find(client, job)
        why = "they are taken when a gang is found to hang, before it is stopped"
        raise CliError(f"no stacks are kept of attempt {attempt} of {job}: {why}", Exit.NOT_FOUND)
    return texts


def execute(
    job: JobArgument,
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND ...", help="What to run.", show_default=False)],
    rank: Annotated[int, typer.Option("--rank", min=0, help="Beside which rank.")] = 0,
    timeout: Annotated[float, typer.Option(min=1, max=3600, help="Seconds that it may run.")] = 60.0,
    data_dir: KafkaDir = None,
) -> None:
    """Run a command beside a rank: in its folder, with its environment, as its user. It exits with the command's code.

    \b
    trainhouse exec gpt-1k7x3m9qp2f8d --rank 1 -- nvidia-smi
    trainhouse exec gpt-1k7x3m9qp2f8d -- sh -c 'ls; env | grep RANK'
    """
    from trainhouse.client.kafka.operations import execute as ask

    client, status = _running(job)
    if rank >= status.world_size:
        raise CliError(f"{job} has ranks 0 to {status.world_size - 1}, no rank {rank}", Exit.NOT_FOUND)
    code = 0
    for reply in ask(client.kafka, status, rank, tuple(command), timeout):
        sys.stdout.write(reply.text)
        sys.stdout.flush()
        code = reply.exit_code if reply.exit_code is not None else code
    raise typer.Exit(code)


def operations_key(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Where the private key is kept.", show_default=False)],
) -> None:
    """Make a key that signs requests to agents, unless the file holds one, and print what agents must know of it.

    \b
    trainhouse operations-key ~/.config/trainhouse/operations.key >> operations.keys     agents: TRAINHOUSE_AGENT_OPERATIONS_KEYS
    TRAINHOUSE_OPERATIONS_KEY=~/.config/trainhouse/operations.key trainhouse exec JOB -- nvidia-smi
    """
    import getpass

    from trainhouse.events.security.key_files import kept_key

    sys.stdout.write(f"operator {getpass.getuser()} {kept_key(path).public_key}\n")


def _running(job: str) -> "tuple[TrainhouseClient, JobStatus]":
    from trainhouse.cli.jobs.job_status import find
    from trainhouse.client import TrainhouseClient

    client = TrainhouseClient.from_settings()
    status = find(client, job)
    if not status.allocation:
        raise CliError(f"{job} runs on no node now: it is {status.state}", Exit.NOT_FOUND)
    return client, status
