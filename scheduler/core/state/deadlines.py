"""Next deadline of a job that has devices: a limit, a deadline, an unexplained exit.

Holds: a function of the record alone; before that time a tick need not look at the job.
"""

from typing import Final

from trainhouse.events.model.phases import Checkpointing, Initializing, PartEnd, Stopping
from trainhouse.scheduler.core.state.records import Job

EXIT_REPORT_MS: Final = 3_000
QUIET_START_MS: Final = 10_000  # from the last rank's start until a job without a session is taken to run
SESSION_START_MS: Final = 30_000  # and one whose session makes no step
NEVER_MS: Final = 2**62


def quiet_until_ms(phase: Initializing) -> int:
    """Returns the time at which a job that reports no progress is taken to run."""
    return phase.since_ms + (SESSION_START_MS if phase.session else QUIET_START_MS)


def due_ms(job: Job) -> int:
    """The earliest time at which something may be due; NEVER_MS: none."""
    phase = job.phase
    if isinstance(phase, Stopping):
        return phase.remind_at_ms
    times = [e.at_ms + EXIT_REPORT_MS for e in job.allotment.ended if e.how is PartEnd.STOPPED] if job.allotment is not None else []
    if isinstance(phase, Checkpointing):
        return min([phase.deadline_ms, *times])
    if isinstance(phase, Initializing):
        times.append(quiet_until_ms(phase))
    if job.limits.run_time_s is not None and job.allotment is not None:
        # A little early: the limit itself is compared where it counts.
        times.append(job.allotment.allocated_at_ms + int(job.limits.run_time_s * 1000) - job.tally.ran_ms)
    return min(times, default=NEVER_MS)
