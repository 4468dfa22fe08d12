"""Effects of a record of the tuner: decisions to the history of studies, statuses to the public topic, trials' jobs to the topic of jobs.

Holds: the first two are keyed by project and study, jobs by their ids: a job that is submitted, or cancelled, again is the same.
"""

import hashlib
from collections.abc import Iterable, Iterator

from trainhouse.events import (
    CancelJob,
    Event,
    JobSubmitted,
    StudyRequestRefused,
    StudyStatus,
    TrialResubmitted,
    TrialStarted,
    TrialStopping,
)
from trainhouse.events.model.ids import TRAINHOUSE
from trainhouse.events.model.study_decisions import StudyDecision
from trainhouse.events.wire.topics import JOBS, STUDIES, STUDY_HISTORY
from trainhouse.scheduler.core.intake.own_jobs import submission_of
from trainhouse.scheduler.core.protocol.machine import Effect


def study_effects(decisions: Iterable[Event]) -> Iterator[Effect]:
    """The effects of a record's decisions, in their order."""
    for decision in decisions:
        match decision:
            case StudyRequestRefused():
                key = f"{str(decision.request_id)[:440]}:refused:{decision.at_ms}"
                yield Effect(STUDY_HISTORY, decision.subject(), decision, key)
            case StudyDecision():
                yield Effect(STUDY_HISTORY, decision.subject(), decision, f"{_in_id(decision.subject())}:{decision.number}")
                if isinstance(decision, TrialResubmitted) or (isinstance(decision, TrialStarted) and decision.taken_from is None):
                    submitted = JobSubmitted(job_id=decision.job_id, spec=decision.spec, asked_as=decision.asked_as)
                    yield Effect(JOBS, str(decision.job_id), submitted, submission_of(str(decision.job_id)))
                elif isinstance(decision, TrialStopping):
                    cancel = CancelJob(job_id=decision.job_id, reason=decision.reason[:1024], user=TRAINHOUSE)
                    yield Effect(JOBS, str(decision.job_id), cancel, f"{decision.job_id}:cancelled")
            case StudyStatus():
                yield Effect(STUDIES, decision.subject(), decision, f"{_in_id(decision.subject())}:{decision.number}:status")


def _in_id(key: str) -> str:
    """A study's key as part of an event id, which is ASCII and short."""
    return f"study:{hashlib.sha256(key.encode()).hexdigest()[:32]}"
