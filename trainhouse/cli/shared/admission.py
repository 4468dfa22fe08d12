"""Wait for the answer to submissions: a job that can never run ends `submit` with its reason.

Holds: what was submitted is durable whatever the answer; a control plane that does not answer in time is a remark, not an error.
"""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.output import one_line

if TYPE_CHECKING:
    from trainhouse.client import Job, TrainhouseClient
    from trainhouse.events import JobStatus

ADMISSION_S: Final = 10.0
"""Seconds to wait for all answers together: one takes a tenth of a second where the control plane is up."""
SHOWN: Final = 5


def answers(client: "TrainhouseClient", jobs: Sequence["Job"], timeout_s: float = ADMISSION_S) -> "dict[str, JobStatus | None]":
    """The first status of each job by its id, in order; None: there was none in time. Blocks for `timeout_s` at most."""
    deadline = time.monotonic() + timeout_s
    return {str(job.job_id): _first(client, job, deadline - time.monotonic()) for job in jobs}


def _first(client: "TrainhouseClient", job: "Job", left_s: float) -> "JobStatus | None":
    if left_s <= 0:
        return None
    return next((status for status in client.watch(job, timeout_s=left_s) if status is not None), None)


def refusal(found: "Mapping[str, JobStatus | None]") -> CliError | None:
    """The error for those that were rejected, one line for each; None for none. Pure."""
    lines = [f"{job} was REJECTED: {one_line(status.reason)}" for job, status in found.items() if status and status.state == "REJECTED"]
    if not lines:
        return None
    more = [f"and {len(lines) - SHOWN} more; `trainhouse status --state REJECTED` lists them"] if len(lines) > SHOWN else []
    return CliError("\n".join(lines[:SHOWN] + more), Exit.REJECTED)


def unanswered(found: "Mapping[str, JobStatus | None]") -> str:
    """A remark on those without a status; empty where all have one. Pure."""
    jobs = [job for job, status in found.items() if status is None]
    if not jobs:
        return ""
    named = jobs[0] if len(jobs) == 1 else f"{len(jobs)} of {len(found)} jobs"
    have = "has" if len(jobs) == 1 else "have"
    return (
        f"{named} {have} no answer of the control plane after {ADMISSION_S:.0f} s; what was submitted is kept, and `trainhouse status "
        f"{jobs[0]}` shows it"
    )


def next_steps(jobs: Sequence[str], gateway_url: str) -> list[str]:
    """A line each on where to look from here: logs, page (where a gateway is known) and reason of waiting. Pure."""
    if not jobs:
        return []
    base, job = gateway_url.rstrip("/"), jobs[0]
    page = f"{base}/jobs/{job}" if len(jobs) == 1 else f"{base}/jobs"
    return [f"logs: trainhouse logs {job} -f", *([f"page: {page}"] if base else []), f"why:  trainhouse why {job}"]
