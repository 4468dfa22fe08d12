"""Trials whose jobs were refused for a reason that passes, as a rate of submissions is: each is submitted again after a pause. Pure.

Holds: such a trial has not failed, and has no job; while one waits so, no other trial of the study begins. One is submitted at a time.
"""

from typing import Any

from trainhouse.events import JobState, TrialJobObserved
from trainhouse.scheduler.core.intake.passing_refusals import pause_s
from trainhouse.scheduler.core.studies.study_state import StudyEntry, Trial
from trainhouse.scheduler.core.studies.trial_jobs import submission_fields


def put_off_until_ms(trial: Trial, event: TrialJobObserved, now_ms: int) -> int | None:
    """Returns when a trial's job is submitted again; None: its end counts."""
    pause = pause_s(event.reason, trial.submission) if event.state is JobState.REJECTED else None
    # Those that were refused together do not come together again.
    return None if pause is None else now_ms + 1000 * (pause + trial.number % 10)


def due_ms(entry: StudyEntry) -> int | None:
    """Returns when the next job of a study is submitted again; None: none is."""
    return min((each for number in entry.put_off if (each := entry.trials[number].due_ms) is not None), default=None)


def next_due(entry: StudyEntry, now_ms: int) -> Trial | None:
    """Returns the trial whose job is submitted again now."""
    waiting = (entry.trials[number] for number in entry.put_off)
    return next((trial for trial in waiting if trial.due_ms is not None and trial.due_ms <= now_ms), None)


def submitted_again(entry: StudyEntry, trial: Trial) -> dict[str, Any]:
    """Returns the fields of the submission."""
    number = trial.submission + 1
    return {"submission": number} | submission_fields(entry, trial.number, trial.parameters, number)
