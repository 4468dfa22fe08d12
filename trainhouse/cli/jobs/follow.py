"""Follows jobs to their end: a progress bar on a terminal, else one line for each change.

Holds: what is shown is the status topic's and nothing else; Ctrl-C ends the following, never the job.
"""

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainhouse.cli.shared.exit_codes import Exit, exit_of_state
from trainhouse.cli.shared.output import duration, json_lines, one_line, remark

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from trainhouse.client import Job, TrainhouseClient
    from trainhouse.events import JobStatus

PROGRESS_EVERY_S = 5.0
SEVERITY = (Exit.OK, Exit.CANCELLED, Exit.NEEDS_REVIEW, Exit.REJECTED, Exit.FAILED, Exit.TIMEOUT)


def follow_all(client: "TrainhouseClient", jobs: list["Job"], timeout_s: float | None, *, json: bool = False) -> Exit:
    """Follows jobs one after the other; gives the worst of their codes. Blocks."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    worst = Exit.OK
    for job in jobs:
        left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        last = follow(client, job, left_s, json=json)
        code = exit_of_state(last.state) if last is not None and last.state.final else Exit.TIMEOUT
        worst = max(worst, code, key=SEVERITY.index)
    return worst


def follow(client: "TrainhouseClient", job: "Job", timeout_s: float | None, *, json: bool = False) -> "JobStatus | None":
    """Follows one job; gives its last status. Blocks."""
    statuses = client.watch(job, timeout_s=timeout_s)
    try:
        if json:
            return _json(statuses)
        if sys.stdout.isatty():
            return _bar(statuses, str(job.job_id))
        return _plain(statuses, str(job.job_id))
    except KeyboardInterrupt:
        remark(
            f"{job.job_id} goes on; follow it again with `trainhouse status {job.job_id} --watch`, "
            f"end it with `trainhouse cancel {job.job_id}`"
        )
        raise


def _json(statuses: "Iterator[JobStatus | None]") -> "JobStatus | None":
    last = None
    for status in statuses:
        if status is not None:
            last = status
            json_lines([status.model_dump(mode="json")])
            sys.stdout.flush()
    return last


def _plain(statuses: "Iterator[JobStatus | None]", job_id: str) -> "JobStatus | None":
    last, shown, shown_at = None, None, -PROGRESS_EVERY_S
    for status in statuses:
        if status is None:
            continue
        last, now = status, time.monotonic()
        change = (status.state, status.reason, status.attempt, status.last_checkpoint)
        # A step is a change, too, but a log of each is of no use to anybody.
        if change != shown or now >= shown_at + PROGRESS_EVERY_S:
            shown, shown_at = change, now
            print(f"{job_id} {line_of(status)}", flush=True)
    return last


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


def _bar(statuses: "Iterator[JobStatus | None]", job_id: str) -> "JobStatus | None":
    last = None
    with _progress() as progress:
        task = progress.add_task(job_id, total=None, state="sent", loss="", rate="", eta="")
        for status in statuses:
            if status is not None:
                last = status
                show(progress, task, status)
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
