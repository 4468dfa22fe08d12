"""Wait for the answer to submissions: a job that can never run ends `submit` with its reason.

Holds: what was submitted is durable whatever the answer; a control plane that does not answer in time is a remark, not an error.
"""

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
    """The first status of each job by its id. None: there was none in time; left out: it was not asked for. Blocks for `timeout_s`."""
    return client.first_statuses(jobs, timeout_s)


def refusal(found: "Mapping[str, JobStatus | None]") -> CliError | None:
    """The error for those that were rejected, one line for each; None for none. Pure."""
    lines = [f"{job} was REJECTED: {one_line(status.reason)}" for job, status in found.items() if status and status.state == "REJECTED"]
    if not lines:
        return None
    more = [f"and {len(lines) - SHOWN} more; `trainhouse status --state REJECTED` lists them"] if len(lines) > SHOWN else []
    return CliError("\n".join(lines[:SHOWN] + more), Exit.REJECTED)


def unanswered(found: "Mapping[str, JobStatus | None]", jobs: Sequence[str]) -> str:
    """A remark on those of `jobs` without a status, and on those that were not asked for; empty where all have one. Pure."""
    without = [job for job in jobs if job in found and found[job] is None]
    not_asked = [job for job in jobs if job not in found]
    parts = []
    if without:
        parts.append(f"{_counted(without, jobs)} no answer of the control plane after {ADMISSION_S:.0f} s")
    if not_asked:
        parts.append(f"{_counted(not_asked, jobs)} not been asked for: the {ADMISSION_S:.0f} s were up")
    if not parts:
        return ""
    hint = f"`trainhouse status {jobs[0]}`" if len(jobs) == 1 else "`trainhouse status`"
    return f"{'; '.join(parts)}; what was submitted is kept, and {hint} shows it"


def _counted(some: Sequence[str], jobs: Sequence[str]) -> str:
    return f"{some[0]} has" if len(some) == 1 else f"{len(some)} of {len(jobs)} jobs have"


def next_steps(jobs: Sequence[str], gateway_url: str) -> list[str]:
    """A line each on where to look from here: logs, page (where a gateway is known) and reason of waiting. Pure."""
    if not jobs:
        return []
    base, job = gateway_url.rstrip("/"), jobs[0]
    page = f"{base}/jobs/{job}" if len(jobs) == 1 else f"{base}/jobs"
    return [f"logs: trainhouse logs {job} -f", *([f"page: {page}"] if base else []), f"why:  trainhouse why {job}"]
