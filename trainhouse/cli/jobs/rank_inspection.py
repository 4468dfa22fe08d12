"""`stack`, `profile` and `exec`: a look into the ranks of a running job."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import DataDir, JobArgument, Json, KafkaDir

if TYPE_CHECKING:
    from trainhouse.checkpointing.stores.object_store import ObjectStore
    from trainhouse.client import TrainhouseClient
    from trainhouse.events import JobStatus, OperationReplied

MAX_PROFILED_RANKS, MAX_PROFILED_STEPS = 64, 500
"""As of events.model.operations, which a command that only prints its help does not load."""
OPEN_S = 10.0
"""Deadline for the store's first answer: a person waits for it before anything is recorded."""
STEPLESS = (
    "wait for the first one, or, in a program that reports none, run the loop over `Session.start().steps(total)`, or use "
    "TrainhouseCallback or TrainhousePlugin"
)


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("stack")(stack)
    app.command("profile")(profile)
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


def profile(
    job: JobArgument,
    steps: Annotated[int, typer.Option("--steps", min=1, max=MAX_PROFILED_STEPS, help="Steps to record.")] = 20,
    ranks: Annotated[str, typer.Option("--ranks", help="Ranks, as 0,3 or 0-3.")] = "0",
    out: Annotated[Optional[Path], typer.Option("--out", help="Folder to put the traces into, too.", show_default=False)] = None,  # noqa: UP045
    timeout: Annotated[float, typer.Option(min=1, max=3600, help="Seconds after which recording ends with the steps so far.")] = 300.0,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Record the next steps of chosen ranks by torch's profiler; each trace becomes an artifact of the job. Training goes on.

    \b
    trainhouse profile gpt-1k7x3m9qp2f8d --steps 20 --ranks 0,3
    trainhouse profile gpt-1k7x3m9qp2f8d --out traces
    Open the traces in https://ui.perfetto.dev
    """
    import secrets

    if _only_by_gateway():
        from trainhouse.cli.jobs.profile_by_gateway import record

        record(job, ranks, steps, out, timeout, json=json)
        return
    from trainhouse.client.kafka.operations import profile as ask
    from trainhouse.events.model.tracking import trace_path

    client, status = _running(job)
    if status.step is None:
        raise CliError(f"{job} has reported no step yet: {STEPLESS}", Exit.NOT_FOUND)
    chosen = chosen_ranks(ranks, status.world_size or 0, job)
    store = trace_store(job) if out is not None else None
    request = secrets.token_hex(8)
    ended: list[OperationReplied] = []
    for reply in ask(client.kafka, status, request, chosen, steps, timeout):
        if not json:
            sys.stdout.write(reply.text)
            sys.stdout.flush()
        if reply.done:
            ended.append(reply)
    stored = [reply for reply in ended if reply.exit_code == 0]
    files = {reply.rank: fetch_trace(store, job, reply, out) for reply in stored} if store is not None and out is not None else {}
    rows = [
        {"job_id": job, "rank": r.rank, "path": trace_path(request, r.rank) if r in stored else None}
        | {"file": str(files[r.rank]) if r.rank in files else None, "text": r.text.strip()}
        for r in ended
    ]
    print_traces(rows, len(chosen), out, json=json)


def print_traces(rows: Sequence[Mapping[str, Any]], asked: int, out: Path | None, *, json: bool) -> None:
    """Ends a profile of so many ranks: the rows of its traces as JSON, or where they are. Exits with FAILED where one is missing."""
    from trainhouse.cli.shared.output import json_lines, remark

    stored = sum(row["path"] is not None for row in rows)
    if json:
        json_lines(rows)
    elif stored:
        where = f"in {out}" if out is not None else "on the job's page, or by --out"
        remark(f"the traces are {where}; open one in https://ui.perfetto.dev or chrome://tracing")
    if stored < asked:
        raise typer.Exit(Exit.FAILED)


def trace_store(job: str) -> "ObjectStore":
    """Opens the object store that traces are fetched from; before they are asked for, so that none is recorded in vain. Raises CliError."""
    from trainhouse.checkpointing.errors import CheckpointError
    from trainhouse.checkpointing.settings import StoreSettings
    from trainhouse.checkpointing.stores.s3 import S3ObjectStore
    from trainhouse.events.model.tracking import artifact_key

    settings = StoreSettings()
    try:
        trial = S3ObjectStore(settings.model_copy(update={"deadline_s": min(OPEN_S, settings.deadline_s)}))
        next(iter(trial.list(artifact_key(job, ""))), None)
    except CheckpointError as error:
        why = "nothing was recorded; set TRAINHOUSE_S3_*, or leave --out away: the traces are on the job's page, too"
        raise CliError(f"--out reads the traces from the object store: {error}; {why}", Exit.UNAVAILABLE) from error
    return S3ObjectStore(settings)


def fetch_trace(store: "ObjectStore", job: str, reply: "OperationReplied", out: Path) -> Path:
    """Puts a stored trace into a folder. Blocks on the object store. Raises CliError, CheckpointError."""
    import hashlib
    import re

    from trainhouse.events.model.tracking import artifact_key, trace_file

    found = re.search(rf"/artifacts/{re.escape(job)}/([0-9a-f]{{64}})\)", reply.text)
    content = store.get(artifact_key(job, found[1])) if found else b""
    if found is None or hashlib.sha256(content).hexdigest() != found[1]:
        raise CliError(f"the trace of rank {reply.rank} is not in the object store as its rank says: {reply.text.strip()}", Exit.FAILED)
    out.mkdir(parents=True, exist_ok=True)
    file = out / trace_file(reply.rank)
    file.write_bytes(content)
    return file


def chosen_ranks(text: str, world_size: int, job: str) -> list[int]:
    """Ranks of a list as 0,3 or 0-3. Raises CliError."""
    found: dict[int, None] = {}
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(part) > 20:
            raise CliError(f"--ranks {text}: write ranks as 0,3 or 0-3", Exit.USAGE)
        span = range(int(first), int(last if dash else first) + 1)
        if not span or span[-1] >= world_size:
            raise CliError(f"{job} has ranks 0 to {world_size - 1}, not {part.strip()}", Exit.NOT_FOUND)
        if len(span) > MAX_PROFILED_RANKS:
            raise CliError(f"--ranks {text}: {MAX_PROFILED_RANKS} ranks at once are the most", Exit.USAGE)
        found |= dict.fromkeys(span)
    if len(found) > MAX_PROFILED_RANKS:
        raise CliError(f"--ranks {text}: {MAX_PROFILED_RANKS} ranks at once are the most", Exit.USAGE)
    return list(found)


def kept_stacks(job: str, attempt: int) -> dict[int, str]:
    """The stacks that agents kept of an attempt, by rank. Raises CliError."""
    from trainhouse.cli.jobs.job_status import find
    from trainhouse.client import TrainhouseClient
    from trainhouse.client.backend_protocol import batches

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
    trainhouse operations-key ~/.config/trainhouse/operations.key \\
        >> operations.keys
        agents: TRAINHOUSE_AGENT_OPERATIONS_KEYS
    TRAINHOUSE_OPERATIONS_KEY=~/.config/trainhouse/operations.key \\
        trainhouse exec JOB -- nvidia-smi
    """
    import getpass

    from trainhouse.events.security.key_files import kept_key

    sys.stdout.write(f"operator {getpass.getuser()} {kept_key(path).public_key}\n")


def _only_by_gateway() -> bool:
    from trainhouse.client.backend_choice import by_gateway, known

    return by_gateway(None, *known())


def _running(job: str) -> "tuple[TrainhouseClient, JobStatus]":
    from trainhouse.cli.jobs.job_status import find
    from trainhouse.client import TrainhouseClient

    client = TrainhouseClient.from_settings()
    status = find(client, job)
    if not status.allocation:
        raise CliError(f"{job} runs on no node now: it is {status.state}", Exit.NOT_FOUND)
    return client, status
