"""Follows jobs to their end: a progress bar on a terminal, else one line for each change.

Holds: progress is the status topic's, output the tables'; Ctrl-C ends the following, never the job.
"""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainhouse.cli.shared.exit_codes import Exit, exit_of_state
from trainhouse.cli.shared.fresh_tables import let_tables_follow
from trainhouse.cli.shared.output import attempt_line, duration, json_lines, one_line, printable_line, remark
from trainhouse.client.backend_protocol import CATCH_UP_S, batches
from trainhouse.client.errors import ClientError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from trainhouse.client import Job, Line, LineReader, TrainhouseClient
    from trainhouse.events import JobStatus

PROGRESS_EVERY_S = 5.0
SEVERITY = (Exit.OK, Exit.CANCELLED, Exit.NEEDS_REVIEW, Exit.REJECTED, Exit.FAILED, Exit.TIMEOUT)


def follow_all(
    client: "TrainhouseClient", jobs: list["Job"], timeout_s: float | None, *, json: bool = False, rank: int | None = None
) -> Exit:
    """Follows jobs one after the other, with the output of `rank` if one is given; gives the worst of their codes. Blocks."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    worst, lag = Exit.OK, Lag()
    for job in jobs:
        left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        last = follow(client, job, left_s, json=json, rank=rank, lag=lag)
        code = exit_of_state(last.state) if last is not None and last.state.final else Exit.TIMEOUT
        worst = max(worst, code, key=SEVERITY.index)
    let_tables_follow(client)
    return worst


@dataclass
class Lag:
    """Seconds for which the last lines of all followed jobs together are waited for."""

    left_s: float = CATCH_UP_S


def follow(
    client: "TrainhouseClient", job: "Job", timeout_s: float | None, *, json: bool = False, rank: int | None = None, lag: Lag | None = None
) -> "JobStatus | None":
    """Follows one job, with the output of `rank` if one is given; gives its last status. Blocks."""
    statuses = client.watch(job, timeout_s=timeout_s)
    job_id = str(job.job_id)
    try:
        if json:
            return _json(statuses)
        output = None if rank is None else RankOutput(client, job_id, rank, lag or Lag())
        if sys.stdout.isatty():
            return _bar(statuses, job_id, output)
        return _plain(statuses, job_id, output)
    except KeyboardInterrupt:
        remark(f"{job_id} goes on; follow it again with `trainhouse status {job_id} --watch`, end it with `trainhouse cancel {job_id}`")
        raise


class RankOutput:
    """Lines that a rank of a job writes. Where they cannot be read, a remark says so once, and states go on alone."""

    def __init__(self, client: "TrainhouseClient", job_id: str, rank: int, lag: Lag) -> None:
        self._client, self._job_id, self._rank, self._lag = client, job_id, rank, lag
        self._reader: LineReader | None = None
        self._attempt: int | None = None
        self._is_readable = True
        self._may_have_more = False

    def more(self, status: "JobStatus | None") -> list[str]:
        """Returns the lines since the last call, with a line between attempts. `status`: what came meanwhile. Blocks on one answer."""
        # Before its gang has devices no rank of it has written anything.
        self._may_have_more = self._may_have_more or (status is not None and status.allocated_at_ms is not None)
        if not self._is_readable or not self._may_have_more:
            return []
        try:
            self._reader = self._reader or self._client.lines(self._job_id, rank=self._rank)
            return [text for batch in batches(self._reader) for line in batch for text in self._texts(line)]
        except ClientError as error:
            self._is_readable = False
            remark(f"the output of {self._job_id} is not shown: {error}")
            return []

    def rest(self) -> list[str]:
        """Returns the last lines of a job that has ended: its agents wrote all of them to the brokers before they reported that. Blocks for
        some seconds at most."""
        found = self.more(None)
        if self._reader is None or not self._is_readable:
            return found
        began_s = time.monotonic()
        self._reader.catch_up(self._lag.left_s)
        self._lag.left_s = max(0.0, self._lag.left_s - (time.monotonic() - began_s))
        return found + self.more(None)

    def _texts(self, line: "Line") -> list[str]:
        before, self._attempt = self._attempt, line.attempt
        between, text = attempt_line(before, line.attempt), printable_line(line.text)
        return [between, text] if between else [text]


def _json(statuses: "Iterator[JobStatus | None]") -> "JobStatus | None":
    last = None
    for status in statuses:
        if status is not None:
            last = status
            json_lines([status.model_dump(mode="json")])
            sys.stdout.flush()
    return last


def _plain(statuses: "Iterator[JobStatus | None]", job_id: str, output: RankOutput | None) -> "JobStatus | None":
    last, shown, shown_at = None, None, -PROGRESS_EVERY_S
    for status in statuses:
        _print(output.more(status) if output else [])
        if status is None:
            continue
        last, now = status, time.monotonic()
        if status.state.final:
            break
        change = (status.state, status.reason, status.attempt, status.last_checkpoint)
        # A step is a change, too, but a log of each is of no use to anybody.
        if change != shown or now >= shown_at + PROGRESS_EVERY_S:
            shown, shown_at = change, now
            print(f"{job_id} {line_of(status)}", flush=True)
    if last is not None and last.state.final:
        _print(output.rest() if output else [])
        print(f"{job_id} {line_of(last)}", flush=True)
    return last


def _print(lines: list[str]) -> None:
    if lines:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()


def line_of(status: "JobStatus") -> str:
    """One line: the state, and what is known of its progress. Nothing in it changes unless the job does."""
    parts = [str(status.state)]
    if status.reason:
        parts.append(f"({one_line(status.reason)})")
    if status.restarts:
        parts.append(f"restart {status.restarts}")
    if status.step is not None:
        parts.append(f"step {status.step}" + (f"/{status.total_steps}" if status.total_steps else ""))
    if status.loss is not None:
        parts.append(f"loss {status.loss:.4f}")
    if status.steps_per_s:
        parts.append(f"{status.steps_per_s:.1f} steps/s")
    if status.eta_s is not None and not status.state.final:
        parts.append(f"ETA {duration(status.eta_s)}")
    if status.last_checkpoint is not None:
        parts.append(f"checkpoint {status.last_checkpoint.commit} at step {status.last_checkpoint.step}")
    return "  ".join(parts)


def _bar(statuses: "Iterator[JobStatus | None]", job_id: str, output: RankOutput | None) -> "JobStatus | None":
    from rich.text import Text

    last = None
    with _progress() as progress:
        task = progress.add_task(job_id, total=None, state="sent", loss="", rate="", eta="")

        def put(lines: list[str]) -> None:
            for line in lines:
                progress.console.print(Text.from_ansi(line), soft_wrap=True)

        for status in statuses:
            if status is not None:
                last = status
                show(progress, task, status)
            put(output.more(status) if output else [])
            if status is not None and status.state.final:
                put(output.rest() if output else [])
                break
    if last is not None:
        print(f"{job_id} {line_of(last)}")
    return last


def _progress() -> "Progress":
    """The bar: 78 columns at most while all is known, so that a plain terminal shows it whole."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.fields[state]}", style="cyan"),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TextColumn("{task.fields[loss]}"),
        TextColumn("{task.fields[rate]}"),
        TextColumn("{task.fields[eta]}"),
        transient=True,
    )


def show(progress: "Progress", task: "TaskID", status: "JobStatus") -> None:
    """Puts a status on the bar."""
    progress.update(
        task,
        total=status.total_steps,
        completed=status.step or 0,
        state=str(status.state) + (f" (restart {status.restarts})" if status.restarts else ""),
        loss="" if status.loss is None else f"loss {status.loss:.3f}",
        rate="" if not status.steps_per_s else f"{status.steps_per_s:.1f} steps/s",
        eta="" if status.eta_s is None else f"ETA {duration(status.eta_s)}",
    )
