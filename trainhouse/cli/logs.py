"""`logs JOB`: what its ranks wrote, and what they write."""

import sys
import time
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from trainhouse.cli.options import DataDir, Json

if TYPE_CHECKING:
    from trainhouse.client import TrainhouseClient
    from trainhouse.client.lines import Line, LogReader

POLL_S = 0.5
# The agent ships the last lines, and the projector inserts them, before this much time is over.
SETTLE_S = 3.0


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("logs")(logs)


def logs(
    job: Annotated[str, typer.Argument(help="Job id.", show_default=False)],
    rank: Annotated[Optional[int], typer.Option("--rank", min=0, help="Only of this rank.")] = None,  # noqa: UP045
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ended.")] = False,
    tail: Annotated[Optional[int], typer.Option("--tail", "-n", min=1, max=100_000, help="Only the last lines of each rank.")] = None,  # noqa: UP045
    stream: Annotated[Optional[str], typer.Option(help="stdout or stderr.")] = None,  # noqa: UP045
    attempt: Annotated[Optional[int], typer.Option(min=0, help="Only of this attempt.")] = None,  # noqa: UP045
    times: Annotated[bool, typer.Option("--times", help="With the time at which the agent read each line.")] = False,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """What the ranks of a job wrote.

    \b
    trainhouse logs gpt-1k7x3m9qp2f8d --rank 0 -f
    trainhouse logs gpt-1k7x3m9qp2f8d --stream stderr --tail 50
    """
    from trainhouse.client import TrainhouseClient
    from trainhouse.client.lines import LogReader

    client = TrainhouseClient.from_settings()
    reader = LogReader(client.sql, job, rank, stream, attempt)
    if tail is not None:
        reader.skip_to_last(tail)
    anything = _drain(reader, rank, times=times, json=json)
    if not anything and not follow:
        _must_exist(client, job)
    if follow:
        _must_exist(client, job)
        _follow(client, reader, job, rank, times=times, json=json)


def _drain(reader: "LogReader", rank: int | None, *, times: bool, json: bool) -> bool:
    """Prints all that is new; whether there was anything."""
    anything = False
    while batch := list(reader.more()):
        anything = True
        for line in batch:
            _print(line, times=times, ranks=rank is None, json=json)
        sys.stdout.flush()
    return anything


def _follow(client: "TrainhouseClient", reader: "LogReader", job: str, rank: int | None, *, times: bool, json: bool) -> None:
    ended_at: float | None = None
    for status in client.watch(job):
        _drain(reader, rank, times=times, json=json)
        if status is not None and status.state.final:
            ended_at = time.monotonic()
    while ended_at is not None and time.monotonic() < ended_at + SETTLE_S:
        if not _drain(reader, rank, times=times, json=json):
            time.sleep(POLL_S)


def _print(line: "Line", *, times: bool, ranks: bool, json: bool) -> None:
    if json:
        import dataclasses

        from trainhouse.cli.output import json_lines

        json_lines([dataclasses.asdict(line)])
        return
    prefix = (f"{line.time} " if times else "") + (f"[{line.rank}] " if ranks else "")
    sys.stdout.write(f"{prefix}{line.text}\n")


def _must_exist(client: "TrainhouseClient", job: str) -> None:
    from trainhouse.cli.jobs import find
    from trainhouse.cli.output import remark

    status = find(client, job)
    if status.allocated_at_ms is None:
        remark(f"{job} is {status.state} and wrote nothing yet" + (f": {status.reason}" if status.reason else ""))
