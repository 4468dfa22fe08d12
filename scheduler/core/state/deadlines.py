"""Next deadline of a job that has, or had, devices: a limit, a deadline, an unexplained exit, an answer that does not come.

Holds: a function of the record alone; before that time a tick need not look at the job.
"""

from typing import Final

from trainhouse.events.model.phases import Checkpointing, Initializing, PartEnd, StopKind, Stopping
from trainhouse.scheduler.core.state.records import Job, JobOutputs

EXIT_REPORT_MS: Final = 3_000
QUIET_START_MS: Final = 10_000  # from the last rank's start until a job without a session is taken to run
SESSION_START_MS: Final = 30_000  # and one whose session makes no step
ASK_AGAIN_MS: Final = 60_000  # from the first request to publish outputs to the second; then twice as long each time, up to
ASK_SELDOM_MS: Final = 900_000
REQUESTS_AT_LEAST: Final = 4  # unanswered ones (10 minutes with ANSWER_MS) before a cancel or the limit of run time ends a job that waits
REQUESTS_AT_MOST: Final = 100  # and before it ends though neither asks for it: those of a day
ANSWER_MS: Final = 180_000  # and so long the last of them has no answer
NEVER_MS: Final = 2**62


def quiet_until_ms(phase: Initializing) -> int:
    """Returns the time at which a job that reports no progress is taken to run."""
    return phase.since_ms + (SESSION_START_MS if phase.session else QUIET_START_MS)


def ask_again_ms(outputs: JobOutputs) -> int:
    """Returns the time at which intake is asked once more to publish outputs that it was asked to."""
    doublings = min(outputs.requests - 1, 10)
    return outputs.asked_at_ms + min(ASK_AGAIN_MS << doublings, ASK_SELDOM_MS)


def give_up_ms(job: Job, outputs: JobOutputs) -> int:
    """Returns the time at which a job ends whose answer does not come, if intake is not to be asked again by then; NEVER_MS: not yet.

    Requests are counted, and no time since the first: while the stack sleeps or is down, intake is not asked and cannot answer.
    """
    answer_by_ms = outputs.asked_at_ms + ANSWER_MS
    if outputs.requests >= REQUESTS_AT_MOST:
        return answer_by_ms
    if outputs.requests < REQUESTS_AT_LEAST:
        return NEVER_MS
    if isinstance(job.phase, Stopping) and job.phase.cause.kind in (StopKind.CANCELLED, StopKind.RUN_TIME):
        return answer_by_ms
    return max(answer_by_ms, run_time_ms(job))


def due_ms(job: Job) -> int:
    """The earliest time at which something may be due; NEVER_MS: none."""
    phase = job.phase
    if job.outputs is not None and job.awaits_answers:
        return min(ask_again_ms(job.outputs), give_up_ms(job, job.outputs))
    if isinstance(phase, Stopping):
        return phase.remind_at_ms
    times = [e.at_ms + EXIT_REPORT_MS for e in job.allotment.ended if e.how is PartEnd.STOPPED] if job.allotment is not None else []
    if isinstance(phase, Checkpointing):
        return min([phase.deadline_ms, *times])
    if isinstance(phase, Initializing):
        times.append(quiet_until_ms(phase))
    return min([run_time_ms(job), *times])


def run_time_ms(job: Job) -> int:
    """A little before the limit of run time: the limit itself is compared where it counts."""
    if job.limits.run_time_s is None or job.allotment is None:
        return NEVER_MS
    return job.allotment.allocated_at_ms + int(job.limits.run_time_s * 1000) - job.tally.ran_ms
