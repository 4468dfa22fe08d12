"""Tuner as a pure machine: which studies there are, which trials begin, which end early, and when a study ends.

Holds: a trial is one job, whose id follows from its number; a study never has more open trials than `parallel`, and none begins once a
bound of its budget is reached. Of a study that has ended nothing runs: it ends when its last trial has, and what runs when a bound is
reached is cancelled once. A request of one id counts once, an observation as often as it says something new. What is refused is answered
under the request's id, with what to do, and changes nothing. Values that are no number are recorded, and are never the best.
Never: computes values of a trial: they come in as an input.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import ValidationError

from trainhouse.events import (
    Event,
    EventId,
    JobId,
    JobState,
    StudyBegun,
    StudyChanged,
    StudyCreated,
    StudyPauseRequested,
    StudyPriced,
    StudyPriceObserved,
    StudyRequestRefused,
    StudyResumeRequested,
    StudyState,
    StudyStopRequested,
    TrialBegan,
    TrialEnded,
    TrialJobObserved,
    TrialPutOff,
    TrialResubmitted,
    TrialStarted,
    TrialState,
    TrialStopping,
    TrialSuggested,
    TrialValueObserved,
    TrialValueRecorded,
)
from trainhouse.events.model.asked import requester
from trainhouse.events.model.default_project import DEFAULT_PROJECT
from trainhouse.events.model.routing import EventSeen
from trainhouse.events.model.study import StudyEvent, StudyRequest
from trainhouse.events.wire.envelope import Envelope
from trainhouse.events.wire.journal import ClockTicked
from trainhouse.events.wire.topics import MAX_INPUT_BYTES, TUNING
from trainhouse.scheduler.core.errors import UnexpectedInput
from trainhouse.scheduler.core.intake.request_ids import request_digest
from trainhouse.scheduler.core.protocol.levels import KNOWN_LEVELS
from trainhouse.scheduler.core.protocol.machine import Condition, Effect, Input, Leveled
from trainhouse.scheduler.core.protocol.snapshot_steps import TUNING_FORMATS
from trainhouse.scheduler.core.studies.equal_trials import equal_trial, why_nothing_new
from trainhouse.scheduler.core.studies.resubmission import due_ms, next_due, put_off_until_ms, submitted_again
from trainhouse.scheduler.core.studies.stagnation import why_stagnant
from trainhouse.scheduler.core.studies.stopping import rungs_passed, why_stopped
from trainhouse.scheduler.core.studies.study_effects import study_effects
from trainhouse.scheduler.core.studies.study_fold import fold_tuning
from trainhouse.scheduler.core.studies.study_room import why_no_room
from trainhouse.scheduler.core.studies.study_state import (
    StudyEntry,
    Trial,
    TunerState,
    capture_tuning,
    load_tuning,
    study_key,
)
from trainhouse.scheduler.core.studies.trial_jobs import largest_values, submission_fields, trial_spec

MOST_JOB_BYTES: Final = MAX_INPUT_BYTES - 8192
"""Of the spec of a trial's job: its submission is no larger than any other."""
_TRIAL_STATES: Final = {JobState.FAILED: TrialState.FAILED, JobState.REJECTED: TrialState.FAILED, JobState.CANCELLED: TrialState.CANCELLED}


class TunerMachine(Leveled):
    """The machine of `trainhouse.tuning`."""

    name = "tuning"
    decide_version, fold_version, lowest_level = KNOWN_LEVELS[TUNING]
    formats = TUNING_FORMATS
    since: Mapping[str, int] = {}
    passing: tuple[type[Event], ...] = ()

    def initial(self, partition: int) -> TunerState:
        """No studies."""
        return TunerState(partition)

    def wakes_ms(self, state: TunerState, after_ms: int) -> int | None:
        """Returns the time at which the budget of the next study runs out, or a job is submitted again; at once where it has passed."""
        going_on = (entry.ends_at_ms for entry in state.studies.values() if entry.state is not StudyState.DRAINING)
        again = (due_ms(entry) for entry in state.studies.values() if entry.put_off and entry.state is not StudyState.PAUSED)
        return min((max(each, after_ms + 1) for each in (*going_on, *again) if each is not None), default=None)

    def decide(self, state: TunerState, now_ms: int, inputs: Sequence[Input]) -> list[Event]:
        """Decisions for a batch. Raises UnexpectedInput on an event that the topic of requests does not carry."""
        turn = _Turn(state.fork(), now_ms)
        for item in inputs:
            if item.offset is None and isinstance(item.event, StudyRequestRefused):
                turn.emit(item.event.model_copy(update={"at_ms": now_ms}))
            else:
                turn.handle(item.envelope)
        return turn.decisions

    def after_refusal(self, state: TunerState, refused: Envelope, reason: str) -> Event | None:
        """A request that cannot be handled is refused under its id, for its requester."""
        event = refused.event
        if not isinstance(event, StudyRequest):
            return None
        return _refusal(refused.id, event, f"{reason}; nothing changed: report it to who runs the platform", 0)

    def fold(self, state: TunerState, now_ms: int, inputs: Sequence[Input], decisions: Sequence[Event]) -> TunerState:
        """The state after a record, changed in place; the inputs are not looked at."""
        for decision in decisions:
            fold_tuning(state, now_ms, decision)
        return state

    def effects(self, seq: int, now_ms: int, inputs: Sequence[Input], decisions: Sequence[Event]) -> list[Effect]:
        """Returns the decisions for all who read, statuses, and jobs."""
        return list(study_effects(decisions))

    def condition(self, state: TunerState) -> Condition:
        """Nothing of it is about a pool."""
        return Condition()

    def dump(self, state: TunerState) -> bytes:
        """Canonical JSON."""
        return self.capture(state)()

    def capture(self, state: TunerState) -> Callable[[], bytes]:
        """The same for later."""
        written = capture_tuning(state)
        return lambda: self.formats.lowered(written(), self.level)

    def load(self, data: bytes) -> TunerState:
        """The state back."""
        return load_tuning(data)


class _RefusedError(Exception):
    """A request does not count."""


@dataclass(slots=True)
class _Turn:
    """One `decide` at work, on a fork of the state."""

    state: TunerState
    now_ms: int
    decisions: list[Event] = field(default_factory=list)

    def emit(self, decision: Event) -> None:
        fold_tuning(self.state, self.now_ms, decision)
        self.decisions.append(decision)

    def handle(self, envelope: Envelope) -> None:
        event = envelope.event
        match event:
            case ClockTicked():
                # One study at a time: what several decide together may be more than a record holds. The next tick follows at once.
                for key in list(self.state.studies):
                    self.go_on(key)
                    self.submit_again(key)
                    if self.decisions:
                        break
            case StudyRequest():
                self.requested(envelope, event)
            case TrialSuggested() | TrialValueObserved() | TrialJobObserved() | StudyPriceObserved():
                entry = self.state.study(event.project, event.study)
                if entry is not None:
                    self.observed(entry, event)
                    self.go_on(entry.key)
            case _:
                raise UnexpectedInput(f"{event.event_type} ({envelope.id}) is nothing that the tuner takes; see the topic table")

    def requested(self, envelope: Envelope, event: StudyRequest) -> None:
        digest = request_digest(envelope)
        if self.state.asked.knows(None, digest):
            return
        made_at_ms = envelope.time_ms if envelope.time_ms is not None else self.now_ms
        untimely = self.state.asked.why_untimely(made_at_ms, self.now_ms)
        # What is far ahead is not noted under its time: it would keep others from theirs.
        self.emit(EventSeen(digest=digest.hex(), made_at_ms=min(made_at_ms, self.now_ms)))
        try:
            if untimely:
                raise _RefusedError(untimely)
            self.decide(envelope.id, event)
        except _RefusedError as refused:
            self.emit(_refusal(envelope.id, event, str(refused), self.now_ms))
            return
        self.go_on(event.subject())

    def decide(self, request_id: EventId, event: StudyRequest) -> None:
        if isinstance(event, StudyCreated):
            self.create(request_id, event)
            return
        key = event.subject()
        entry = self.state.studies.get(key)
        if entry is None and key in self.state.ended:
            raise _RefusedError(f"study {key} has ended; `trainhouse study create` begins another one")
        if entry is None:
            raise _RefusedError(f"project {event.project} has no study {event.study}; `trainhouse study list` names those that there are")
        asked = {"request_id": request_id, "user": requester(event.requested_by, event.user)}
        match event:
            case StudyPauseRequested():
                if entry.state is not StudyState.RUNNING:
                    raise _RefusedError(f"study {key} is {entry.state}; only one that is RUNNING can be paused")
                self.change(entry, StudyState.PAUSED, event.reason or "paused on request", **asked)
            case StudyResumeRequested():
                if entry.state is not StudyState.PAUSED:
                    raise _RefusedError(f"study {key} is {entry.state}; only one that is PAUSED can be resumed")
                self.change(entry, StudyState.RUNNING, event.reason or "resumed on request", **asked)
            case StudyStopRequested():
                self.change(entry, StudyState.DRAINING, event.reason or "stopped on request", **asked)
                self.cancel_open(key, f"study {key} was stopped")

    def create(self, request_id: EventId, event: StudyCreated) -> None:
        key, spec = event.subject(), event.spec
        if key in self.state.studies or key in self.state.ended:
            raise _RefusedError(f"study {key} is there already; take another name")
        if spec.job.project not in (DEFAULT_PROJECT, event.project):
            raise _RefusedError(f"job.project is {spec.job.project}, and the study is of project {event.project}: leave job.project out")
        user = requester(event.requested_by, event.user)
        try:
            largest = trial_spec(spec, event.project, event.study, user, 0, largest_values(spec.space))
        except ValidationError as error:
            raise _RefusedError(f"no job can be made of `job` and a trial's values: {error.errors()[0]['msg']}; change `job`") from error
        size_bytes = len(largest.model_dump_json().encode())
        why = why_no_room(self.state, event.project, user, spec)
        if size_bytes > MOST_JOB_BYTES:
            why = f"a trial's job would have {size_bytes} bytes, and may have {MOST_JOB_BYTES}: shorten `job`, or the choices of `space`"
        if why:
            raise _RefusedError(why)
        about = {"request_id": request_id, "spec": spec, "user": user, "asked_as": event.asked_as}
        sha256 = hashlib.sha256(spec.model_dump_json().encode()).hexdigest()
        self.emit(StudyBegun(**self.head(event, 1), **about, spec_sha256=sha256))
        self.publish(key)

    def observed(self, entry: StudyEntry, event: StudyEvent) -> None:
        match event:
            case TrialSuggested():
                if entry.wants_trial and event.trial == len(entry.trials) and event.told <= entry.number:
                    self.suggested(entry, event)
            case TrialValueObserved() if event.trial in entry.open:
                trial = entry.trials[event.trial]
                if trial.job_id == event.job_id:
                    self.logged(entry, trial, event)
            case TrialJobObserved() if event.trial in entry.open and event.trial not in entry.put_off:
                trial = entry.trials[event.trial]
                if trial.job_id == event.job_id and event.state.final:
                    self.ended(entry, trial, event)
                elif trial.job_id == event.job_id and _has_news(trial, event):
                    self.emit(TrialBegan(**self.head(entry), trial=trial.number, **_spent(entry, trial, event)))
                    if trial.state is TrialState.WAITING:
                        self.publish(entry.key)
            case StudyPriceObserved():
                self.priced(entry, event)

    def priced(self, entry: StudyEntry, event: StudyPriceObserved) -> None:
        """Records a price of a newer policy. A budget in money ends a study whose devices have no price, or one in another currency."""
        known, in_money = entry.price, entry.spec.budget.cost is not None and entry.state is not StudyState.DRAINING
        if known is not None and event.policy_version <= known.version:
            return
        if event.price is None:  # the last one that a policy named still counts
            if known is None and in_money:
                self.end(entry, _why_no_price(entry, event), cancels=True)
        elif known is not None and event.currency != known.currency:
            if in_money:
                why = f"budget.cost is in {known.currency}, and the policy of pool {event.pool} now names prices in {event.currency}"
                self.end(entry, why, cancels=True)
        elif known is None or event.price != known.per_hour:
            about = event.model_dump(mode="json", include={"pool", "policy_version", "price", "currency"})
            self.emit(StudyPriced.model_validate(self.head(entry) | about))
            self.publish(entry.key)

    def suggested(self, entry: StudyEntry, event: TrialSuggested) -> None:
        unknown = sorted(event.values.keys() - entry.spec.space.keys())
        failure = event.failure or (f"the suggestion names {unknown[0]}, which is no parameter" if unknown else "")
        if failure:
            self.end(entry, f"no values could be suggested: {failure}", cancels=False)
            return
        if event.exhausted:
            self.end(entry, "every point of the grid was tried", cancels=False)
            return
        values = {name: event.values[name] for name in entry.spec.space if name in event.values}
        about = submission_fields(entry, event.trial, values)
        equal = equal_trial(entry, values)
        if equal is not None:
            about |= {"taken_from": equal.number, "job_id": JobId(equal.job_id)}
        enqueued = event.trial < len(entry.spec.enqueue)
        self.emit(TrialStarted(**self.head(entry), **about, values=values, told=event.told, enqueued=enqueued, versions=event.versions))
        if equal is not None:
            self.take_over(entry, event.trial, equal)
        self.publish(entry.key)

    def take_over(self, entry: StudyEntry, trial: int, equal: Trial) -> None:
        """Ends a trial at once with the values of an equal one."""
        values = {each.name: equal.logged[each.name].value for each in entry.spec.metrics}
        reason = f"as trial {equal.number}: its values, code, data and seed are equal, so no job ran"
        cost = None if entry.price is None else 0.0
        self.emit(TrialEnded(**self.head(entry), trial=trial, state=TrialState.COMPLETE, values=values, reason=reason, cost=cost))

    def logged(self, entry: StudyEntry, trial: Trial, event: TrialValueObserved) -> None:
        """Records values that are not older than those that are known, and asks at each rung that is reached whether the trial goes on."""
        names, known = {each.name for each in entry.spec.metrics}, trial.logged
        new = {name: value for name, value in event.values.items() if name in names and _is_new(known, name, event.step, value)}
        if not new:
            return
        stopping, first = entry.spec.early_stopping, entry.spec.metrics[0]
        reached = {each.rung for each in trial.curve}
        passed = rungs_passed(stopping, None, event.step) if first.name in new else ()
        rungs = tuple(rung for rung in passed if rung not in reached)
        self.emit(TrialValueRecorded(**self.head(entry), trial=trial.number, step=event.step, values=new, rungs=rungs))
        if trial.stopping is not None:
            return
        ended = len(entry.trials) - len(entry.open)
        for rung in rungs:
            why = why_stopped(stopping, first.mode, rung, new[first.name], entry.rungs.get(rung, ()), ended)
            if why:
                self.stop(entry.key, trial, why, early=True, step=event.step)
                return

    def ended(self, entry: StudyEntry, trial: Trial, event: TrialJobObserved) -> None:
        until_ms = put_off_until_ms(trial, event, self.now_ms)
        if until_ms is not None and trial.stopping is None:
            self.emit(TrialPutOff(**self.head(entry), trial=trial.number, until_ms=until_ms, reason=event.reason))
            return
        if until_ms is not None:
            self.cancelled(entry.key, trial, event.reason)
            self.publish(entry.key)
            return
        metrics = [each.name for each in entry.spec.metrics]
        lacking = next((name for name in metrics if name not in trial.logged), "")
        state, reason = _TRIAL_STATES.get(event.state, TrialState.COMPLETE), event.reason
        if state is TrialState.COMPLETE and lacking:
            also = f"; logged: {', '.join(event.logged)}" if event.logged else ""
            state, reason = TrialState.FAILED, f'metric "{lacking}" was never logged{also}'
        elif state is TrialState.CANCELLED and trial.stopping:
            state = TrialState.STOPPED
        values = {name: trial.logged[name].value for name in metrics if name in trial.logged}
        self.emit(
            TrialEnded(
                **self.head(entry),
                trial=trial.number,
                state=state,
                values=values if state in (TrialState.COMPLETE, TrialState.STOPPED) else {},
                **_spent(entry, trial, event),
                reason=reason,
                rejected=event.state is JobState.REJECTED,
            )
        )
        self.publish(entry.key)

    def submit_again(self, key: str) -> None:
        """Submits the job of a trial that was put off until now."""
        entry = self.state.studies.get(key)
        trial = next_due(entry, self.now_ms) if entry is not None and entry.state is not StudyState.PAUSED else None
        if entry is not None and trial is not None:
            self.emit(TrialResubmitted(**self.head(entry), **submitted_again(entry, trial)))

    def cancelled(self, key: str, trial: Trial, reason: str) -> None:
        """Ends a trial that has no job. Publishes no status: one is enough where many end at once, since a record has a bound."""
        entry = self.state.studies[key]
        spent = {"device_s": trial.device_s, "cost": None if entry.price is None else trial.cost}
        self.emit(TrialEnded(**self.head(entry), trial=trial.number, state=TrialState.CANCELLED, reason=reason, **spent))

    def go_on(self, key: str) -> None:
        """Ends a study whose budget is used up, or that fails; and one whose last trial has ended."""
        entry = self.state.studies.get(key)
        if entry is None:
            return
        why, cancels, figures = why_over(entry, self.now_ms), True, None
        if not why and entry.state is not StudyState.DRAINING:
            gained = entry.stagnation
            why = why_stagnant(entry.spec.metrics[0].name, gained)
            figures = gained if why else None
            why = why or why_nothing_new(entry)
        if not why and len(entry.trials) >= entry.most_trials:
            why, cancels = f"its {entry.most_trials} trials have begun", False
        if why:
            self.end(entry, why, cancels=cancels, stagnation=figures)
        entry = self.state.studies[key]
        if entry.state is StudyState.DRAINING and not entry.open:
            self.change(entry, StudyState.ENDED, entry.reason)

    def end(self, entry: StudyEntry, why: str, *, cancels: bool, **more: Any) -> None:
        """No other trial begins; those that run are cancelled, or end."""
        if entry.state is not StudyState.DRAINING:
            self.change(entry, StudyState.DRAINING, why, **more)
        if cancels:
            self.cancel_open(entry.key, f"study {entry.key} ends: {why}")

    def cancel_open(self, key: str, reason: str) -> None:
        entry = self.state.studies[key]
        for number in entry.open:
            if number in entry.put_off:
                self.cancelled(key, entry.trials[number], reason)
            elif entry.trials[number].stopping is None:
                self.stop(key, entry.trials[number], reason, early=False)
        if entry.put_off:
            self.publish(key)

    def stop(self, key: str, trial: Trial, reason: str, *, early: bool, step: int | None = None) -> None:
        about = {"trial": trial.number, "job_id": trial.job_id, "early": early, "step": step, "reason": reason}
        self.emit(TrialStopping.model_validate(self.head(self.state.studies[key]) | about))

    def change(self, entry: StudyEntry, state: StudyState, reason: str, **more: Any) -> None:
        changed = StudyChanged(**self.head(entry), state=state, reason=reason, **more)
        if state is StudyState.ENDED:  # published before the fold forgets it
            ended = replace(entry, state=state, number=entry.number + 1)
            self.decisions.append(ended.status(self.now_ms))
            self.emit(changed)
            return
        self.emit(changed)
        self.publish(entry.key)

    def publish(self, key: str) -> None:
        """Emits its status as it is now."""
        self.emit(self.state.studies[key].status(self.now_ms))

    def head(self, of: StudyEntry | StudyEvent, number: int | None = None) -> dict[str, Any]:
        """The fields that each decision of a study has."""
        if number is None:
            number = self.state.studies[study_key(of.project, of.study)].number + 1
        return {"project": of.project, "study": of.study, "number": number, "at_ms": self.now_ms}


def why_over(entry: StudyEntry, now_ms: int) -> str:
    """The reason that nothing of a study runs on; empty while it may."""
    budget, failed = entry.spec.budget, entry.counts.get(TrialState.FAILED, 0)
    if entry.ends_at_ms is not None and now_ms >= entry.ends_at_ms:
        return f"its {budget.wall_s:g} s have passed"
    if budget.device_s is not None and entry.spent_device_s >= budget.device_s:
        return f"its trials had {entry.spent_device_s:.0f} of {budget.device_s:g} device-seconds"
    if budget.cost is not None and entry.price is not None and entry.spent_cost >= budget.cost:
        return f"its trials cost {entry.spent_cost:.4g} of {budget.cost:g} {entry.price.currency}"
    if failed > entry.spec.max_failed:
        return f"{failed} trials failed, more than max_failed = {entry.spec.max_failed}"
    if entry.rejected and not entry.admitted and not entry.open:
        return "the jobs of its first trials were REJECTED; see their reasons, correct `job`, and create it under another name"
    return ""


def _refusal(request_id: EventId, event: StudyRequest, reason: str, at_ms: int) -> StudyRequestRefused:
    return StudyRequestRefused(
        project=event.project,
        study=event.study,
        request_id=request_id,
        request_type=event.event_type,
        reason=reason,
        user=requester(event.requested_by, event.user),
        at_ms=at_ms,
    )


def _spent(entry: StudyEntry, trial: Trial, event: TrialJobObserved) -> dict[str, float]:
    """Device-seconds of a trial, and what they cost: those that are new have the price that holds now."""
    device_s = max(event.device_s, trial.device_s)
    if entry.price is None:
        return {"device_s": device_s}
    return {"device_s": device_s, "cost": trial.cost + entry.price.of(device_s - trial.device_s)}


def _why_no_price(entry: StudyEntry, event: StudyPriceObserved) -> str:
    job = entry.spec.job
    kinds = sorted({(role.resources or job.resources).device_type for role in job.gang.roles} or {job.resources.device_type})
    return (
        f"budget.cost needs a price, and the policy of pool {event.pool} names none for {' and '.join(kinds)} devices: "
        "apply one with `prices`, and create the study under another name"
    )


def _has_news(trial: Trial, event: TrialJobObserved) -> bool:
    return (trial.state is TrialState.WAITING and event.state is not JobState.PENDING) or event.device_s > trial.device_s


def _is_new(known: Mapping[str, Any], name: str, step: int, value: float) -> bool:
    before = known.get(name)
    # A value that is no number equals itself here: it is the same again.
    return before is None or step > before.step or (step == before.step and repr(value) != repr(before.value))
