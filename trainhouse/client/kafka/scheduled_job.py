"""A job as its scheduler has it, also while its pool is on its way from one partition to another.

Holds: a job that is in no folded state has ended only where no pool of it is on its way; the wait for a move is bounded.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trainhouse.client.errors import ChangeRefusedError, JobEndedError
from trainhouse.events import JobId, JobState

if TYPE_CHECKING:
    from trainhouse.scheduler.core.state.records import Job
    from trainhouse.scheduler.core.state.state import ScheduleState

POLL_S: Final = 0.5
MOVE_WAIT_S: Final = 10.0


@dataclass(frozen=True)
class JobReads:
    """Reads that find a job. `folded`: states of one partition, of all where it is None; `published`: the job's newest published state."""

    folded: "Callable[[int | None], list[ScheduleState]]"
    published: Callable[[], JobState]
    clock_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def scheduled_job(job_id: JobId, partition: int | None, reads: JobReads) -> "Job":
    """The job as its scheduler has it; one whose pool is being moved as the next scheduler has it. Blocks. `partition`: where it may be.

    Raises JobEndedError where no scheduler has it any more; ChangeRefusedError where its pool is on its way for long.
    """
    from trainhouse.client.kafka.present import being_moved

    deadline_s = reads.clock_s() + MOVE_WAIT_S
    while True:
        # Its pool may be on another partition by now.
        for place in (partition, None) if partition is not None else (None,):
            states = reads.folded(place)
            found = next((s.jobs[job_id] for s in states if job_id in s.jobs), None)
            if found is not None:
                return found
        moving = being_moved(states, job_id)
        state = reads.published()
        if not moving or state.final:
            raise JobEndedError(job_id, state if state.final else "")
        if reads.clock_s() > deadline_s:
            raise ChangeRefusedError(f"{moving}. Ask again when it is there; where that takes long, see `trainhouse ps`")
        reads.sleep(POLL_S)
