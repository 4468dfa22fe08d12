"""Fold of the tuner's decisions into its state: the only place that changes it."""

from dataclasses import replace

from trainhouse.events import (
    Event,
    StudyBegun,
    StudyChanged,
    StudyPriced,
    StudyState,
    StudyStatus,
    TrialBegan,
    TrialEnded,
    TrialPutOff,
    TrialResubmitted,
    TrialStarted,
    TrialState,
    TrialStopping,
    TrialValueRecorded,
)
from trainhouse.events.model.routing import EventSeen
from trainhouse.events.model.study_decisions import StudyDecision
from trainhouse.scheduler.core.errors import BrokenInvariant
from trainhouse.scheduler.core.studies.best import best_with
from trainhouse.scheduler.core.studies.study_state import (
    LoggedValue,
    RungValue,
    StudyEntry,
    Trial,
    TunerState,
    in_order,
    study_key,
    with_rungs,
)
from trainhouse.scheduler.core.studies.trial_costs import DevicePrice


def fold_tuning(state: TunerState, now_ms: int, decision: Event) -> None:
    """Applies one decision of a record in place."""
    match decision:
        case EventSeen():
            made_at_ms = now_ms if decision.made_at_ms is None else decision.made_at_ms
            state.asked.note(decision.project, made_at_ms, bytes.fromhex(decision.digest))
        case StudyBegun():
            begun = StudyEntry(
                decision.project, decision.study, decision.spec, decision.user, decision.asked_as, decision.at_ms, decision.number
            )
            state.studies[begun.key] = begun
            state.names[begun.project] = state.names.get(begun.project, 0) + 1
        case StudyStatus():
            pass  # it follows from the others
        case StudyDecision():
            _put(state, decision)


def _put(state: TunerState, decision: StudyDecision) -> None:
    key = study_key(decision.project, decision.study)
    entry = state.studies.get(key)
    if entry is None:
        raise BrokenInvariant(f"{decision.event_type} is about study {key}, which has not begun or has ended")
    if isinstance(decision, StudyChanged) and decision.state is StudyState.ENDED:
        del state.studies[key]
        state.ended[key] = decision.number
        return
    state.studies[key] = replace(_folded(entry, decision), number=decision.number)


def _folded(entry: StudyEntry, decision: StudyDecision) -> StudyEntry:
    match decision:
        case StudyChanged():
            return replace(entry, state=decision.state, reason=decision.reason)
        case StudyPriced():
            return replace(entry, price=DevicePrice(decision.price, decision.currency, decision.policy_version))
        case TrialStarted():
            if decision.trial != len(entry.trials):
                raise BrokenInvariant(f"trial {decision.trial} of study {entry.key} begins, and {len(entry.trials)} is the next one")
            parameters = in_order(entry.spec, decision.values)
            begun = Trial(decision.trial, parameters, str(decision.job_id), decision.spec_sha256, decision.number)
            if decision.taken_from is not None:
                begun = replace(begun, logged=entry.trials[decision.taken_from].logged)
            return entry.with_trial(begun)
        case TrialPutOff():
            return entry.with_trial(replace(_trial(entry, decision.trial), due_ms=decision.until_ms))
        case TrialResubmitted():
            again = replace(_trial(entry, decision.trial), due_ms=None, submission=decision.submission)
            return entry.with_trial(replace(again, job_id=str(decision.job_id), spec_sha256=decision.spec_sha256))
        case TrialBegan():
            running = replace(_spent(entry, decision), state=TrialState.RUNNING)
            return entry.with_trial(running, admitted=True)
        case TrialValueRecorded():
            trial = _with_values(entry, _trial(entry, decision.trial), decision)
            return entry.with_trial(trial, rungs=with_rungs(entry.rungs, trial.curve[len(trial.curve) - len(decision.rungs) :]))
        case TrialStopping():
            return entry.with_trial(replace(_trial(entry, decision.trial), stopping=decision.early))
        case TrialEnded():
            ended = replace(_spent(entry, decision), state=decision.state, ended=decision.number, due_ms=None)
            rejected = entry.rejected + decision.rejected
            then = entry.with_trial(ended, rejected=rejected, admitted=entry.admitted or not decision.rejected)
            if ended.job_id in {then.trials[number].job_id for number in then.best}:
                return then.with_gain_of(ended)  # as good as the one whose value it took over, which stands for both
            before = [then.told_trial(then.trials[number]) for number in then.best]
            then = replace(then, best=tuple(best_with(then.spec.metrics, before, then.told_trial(ended))))
            return then.with_gain_of(ended)
    raise BrokenInvariant(f"{decision.event_type} is no decision of the tuner")


def _trial(entry: StudyEntry, number: int) -> Trial:
    if number not in entry.open:
        raise BrokenInvariant(f"study {entry.key} has no open trial {number}, and a decision names it")
    return entry.trials[number]


def _spent(entry: StudyEntry, decision: TrialBegan | TrialEnded) -> Trial:
    """The trial with the device-seconds that it had by then, and what they cost."""
    trial = _trial(entry, decision.trial)
    return replace(trial, device_s=decision.device_s, cost=trial.cost if decision.cost is None else decision.cost)


def _with_values(entry: StudyEntry, trial: Trial, decision: TrialValueRecorded) -> Trial:
    logged = {name: LoggedValue(decision.step, value) for name, value in decision.values.items()}
    first = decision.values.get(entry.spec.metrics[0].name, 0.0)
    reached = tuple(RungValue(decision.number, rung, first) for rung in decision.rungs)
    return replace(trial, logged={**trial.logged, **logged}, curve=(*trial.curve, *reached))
