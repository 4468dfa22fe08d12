"""`logs JOB`: what its ranks wrote, and what they write."""

import itertools
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from trainhouse.cli.shared.options import DataDir, JobArgument, Json
from trainhouse.cli.shared.output import attempt_line, printable_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trainhouse.client import Line


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("logs")(logs)


def logs(
    job: JobArgument,
    rank: Annotated[Optional[int], typer.Option("--rank", min=0, help="Only of this rank.")] = None,  # noqa: UP045
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ended.")] = False,
    tail: Annotated[Optional[int], typer.Option("--tail", "-n", min=1, max=100_000, help="Only the last lines of each rank.")] = None,  # noqa: UP045
    stream: Annotated[Optional[str], typer.Option(help="stdout or stderr; stacks: as `trainhouse stack --attempt`.")] = None,  # noqa: UP045
    attempt: Annotated[Optional[int], typer.Option(min=0, help="Only of this attempt; the first is 0.")] = None,  # noqa: UP045
    times: Annotated[bool, typer.Option("--times", help="With the time at which the agent read each line.")] = False,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Print the output of a job's ranks.

    \b
    trainhouse logs gpt-1k7x3m9qp2f8d --rank 0 -f
    trainhouse logs gpt-1k7x3m9qp2f8d --stream stderr --tail 50

    A line on standard error separates attempts. On a terminal, control characters of a line are shown as escapes, but for colours and tabs;
    for a pipe or a file each line is as it was written.
    """
    printed = Printed(times, rank is None, json)
    if not follow and (quick := _quick_lines(job, rank, stream, attempt, tail)) is not None:
        if not printed.show(quick):
            _note_silence(*_state_of(job))
        return
    from trainhouse.cli.jobs.job_status import find
    from trainhouse.client import TrainhouseClient
    from trainhouse.client.backend_protocol import batches
    from trainhouse.client.job import followed

    client = TrainhouseClient.from_settings()
    reader = client.lines(job, rank=rank, stream=stream, attempt=attempt, tail=tail)
    anything = printed.show(batches(reader))
    if follow or not anything:
        status = find(client, job)
        _note_silence(job, status.state, status.reason, status.allocated_at_ms)
    if follow:
        printed.show(followed(client.watch(job), reader))


def _quick_lines(job: str, rank: int | None, stream: str | None, attempt: int | None, tail: int | None) -> "Iterator[list[Line]] | None":
    """The lines by quick reads; None where the whole client has to be asked. Blocks. Raises CliError for an unknown job."""
    from trainhouse.client.backend_protocol import batches
    from trainhouse.client.errors import UnknownJobError
    from trainhouse.client.quick.quick_reads import QuickReads, quickly

    def ask(reads: QuickReads) -> "Iterator[list[Line]]":
        found = batches(reads.lines(job, rank, stream, attempt, tail))
        first = next(found, None)
        return itertools.chain([] if first is None else [first], found)

    try:
        return quickly(ask)
    except UnknownJobError:
        _state_of(job)
        raise


def _state_of(job: str) -> tuple[str, str, str, int | None]:
    from trainhouse.cli.jobs.job_status import current

    _, status = current(job)
    return job, status["state"], status["reason"], status["allocated_at_ms"]


@dataclass
class Printed:
    """Lines as they are printed, with a line on standard error between two attempts. `attempt`: that of the last line."""

    times: bool
    ranks: bool
    json: bool
    attempt: int | None = None

    def show(self, found: "Iterable[list[Line]]") -> bool:
        """Prints lines batch by batch; whether there were any."""
        anything = False
        for batch in found:
            anything = True
            for line in batch:
                if (between := attempt_line(self.attempt, line.attempt)) and not self.json:
                    sys.stdout.flush()
                    sys.stderr.write(f"{between}\n")
                    sys.stderr.flush()
                self.attempt = line.attempt
                _print(line, times=self.times, ranks=self.ranks, json=self.json)
            sys.stdout.flush()
        return anything


def _print(line: "Line", *, times: bool, ranks: bool, json: bool) -> None:
    if json:
        import dataclasses

        from trainhouse.cli.shared.output import json_lines

        json_lines([dataclasses.asdict(line)])
        return
    text = printable_line(line.text) if sys.stdout.isatty() else line.text
    prefix = (f"{line.time} " if times else "") + (f"[{line.rank}] " if ranks else "")
    sys.stdout.write(f"{prefix}{text}\n")


def _note_silence(job: str, state: str, reason: str, allocated_at_ms: int | None) -> None:
    from trainhouse.cli.shared.output import one_line, remark

    if allocated_at_ms is None:
        remark(f"{job} is {state} and wrote nothing yet" + (f": {one_line(reason)}" if reason else ""))
