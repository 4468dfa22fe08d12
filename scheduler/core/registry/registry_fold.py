"""Fold of the registry's decisions into its state: the only place that changes it.

Holds: whatever changes a stage leaves one record for the model's chain in the store, which waits until it is there.
"""

from dataclasses import replace

from trainhouse.events import (
    Event,
    ModelApprovalRecorded,
    ModelArchived,
    ModelComparisonRecorded,
    ModelDescriptionChanged,
    ModelEmergencyReviewed,
    ModelEvaluated,
    ModelEvaluationEnded,
    ModelEvaluationRecorded,
    ModelEvaluationStarted,
    ModelGateChanged,
    ModelPromoted,
    ModelRegistrationHeld,
    ModelRequestRefused,
    ModelRolledBack,
    ModelStage,
    ModelStageStored,
    ModelVersionRegistered,
)
from trainhouse.events.model.model_decisions import ModelDecision
from trainhouse.events.model.routing import EventSeen
from trainhouse.scheduler.core.errors import BrokenInvariant
from trainhouse.scheduler.core.registry.registry_state import (
    MAX_EVALUATIONS,
    MAX_JOBS,
    MAX_PAST,
    MAX_RESULTS_ALIKE,
    Approval,
    EvaluationJob,
    HeldRegistration,
    ModelEntry,
    RegistryState,
    StageChange,
    Version,
    held_key,
    stage_id,
)


def fold_registry(state: RegistryState, now_ms: int, decision: Event) -> None:
    """Applies one decision of a record in place."""
    match decision:
        case EventSeen():
            made_at_ms = now_ms if decision.made_at_ms is None else decision.made_at_ms
            state.asked.note(decision.project, made_at_ms, bytes.fromhex(decision.digest))
        case ModelRegistrationHeld():
            held = HeldRegistration(decision.request_id, decision.registered, decision.since_ms, decision.digest)
            state.held[held.key] = held
        case ModelRequestRefused():
            state.held.pop(held_key(decision.digest, decision.request_id), None)
        case ModelStageStored():
            state.stages.pop(stage_id(decision.project, decision.name, decision.number), None)
        case ModelDecision():
            put_folded(state, folded(state, decision), decision)


def put_folded(state: RegistryState, model: ModelEntry, decision: ModelDecision) -> None:
    """Puts in place what `folded` gave for a decision, and takes away or adds what waits by it."""
    if isinstance(decision, ModelVersionRegistered):
        state.held.pop(held_key(decision.digest, decision.request_id), None)
    state.put(model)
    if isinstance(decision, ModelEvaluationStarted | ModelEvaluationEnded):
        state.note_jobs(model, _version(model, decision.version))
    _note_stages(state, model, decision)


def folded(state: RegistryState, decision: ModelDecision) -> ModelEntry:
    """The model of a decision after it; the state stays as it is."""
    return replace(_folded(state.entry(decision.project, decision.name), decision), number=decision.number)


def _folded(model: ModelEntry, decision: ModelDecision) -> ModelEntry:
    match decision:
        case ModelVersionRegistered():
            known = Version(decision.version, decision.semver, decision.facts, ModelStage.STAGING, decision.user, decision.at_ms)
            return model.put(replace(known, notes=decision.notes, tags=tuple(sorted(decision.tags.items()))))
        case ModelEvaluationRecorded():
            known = _version(model, decision.version)
            # The registry takes a result of a known name from the job alone that it is of.
            of_other_names = (each for each in known.evaluations if each.evaluation_id != decision.evaluated.evaluation_id)
            evaluations = _newest_alike((*of_other_names, decision.evaluated), known.jobs)
            return model.put(replace(known, evaluations=evaluations, approvals=()))
        case ModelEvaluationStarted():
            known = _version(model, decision.version)
            job = EvaluationJob(decision.suite, decision.attempt, str(decision.job_id), decision.spec_sha256)
            return model.put(replace(known, jobs=_newest_jobs((*known.jobs, job))))
        case ModelEvaluationEnded():
            known = _version(model, decision.version)
            return model.put(replace(known, jobs=tuple(_ended(job, decision) for job in known.jobs)))
        case ModelComparisonRecorded():
            known = _version(model, decision.version)
            new = decision.compared
            others = tuple(each for each in known.comparisons if (each.suite, each.against) != (new.suite, new.against))
            return model.put(replace(known, comparisons=(*others, new)[-MAX_EVALUATIONS:], approvals=()))
        case ModelApprovalRecorded():
            known = _version(model, decision.version)
            by_others = tuple(each for each in known.approvals if each.user != decision.user)
            return model.put(replace(known, approvals=(*by_others, Approval(decision.user, decision.approved))))
        case ModelPromoted():
            known = _version(model, decision.version)
            # A review that is due stays due, of the promotion that it is about.
            by, emergency = known.promoted_by if known.emergency else decision.user, known.emergency or decision.emergency
            promoted = replace(known, stage=ModelStage.CHAMPION, was_champion=True, emergency=emergency, promoted_by=by)
            past = model.past if model.champion is None else (*model.past, model.champion)[-MAX_PAST:]
            return _without_champion(model).put(promoted, champion=decision.version, past=past)
        case ModelRolledBack():
            back = replace(_version(model, decision.version), stage=ModelStage.CHAMPION)
            return _without_champion(model).put(back, champion=decision.version, past=_past_of(model, decision.version))
        case ModelArchived():
            archived = replace(_version(model, decision.version), stage=ModelStage.ARCHIVED)
            if decision.successor is None:
                archived = replace(archived, withdrawn=True, approvals=())
            return model.put(archived, champion=None if model.champion == decision.version else model.champion)
        case ModelGateChanged():
            return replace(model, gate=decision.gate, gate_version=decision.gate_version)
        case ModelDescriptionChanged():
            return _described(model, decision)
        case ModelEmergencyReviewed():
            return model.put(replace(_version(model, decision.version), emergency=False))
    raise BrokenInvariant(f"{decision.event_type} is no decision of the registry")


def _newest_alike(evaluations: tuple[ModelEvaluated, ...], jobs: tuple[EvaluationJob, ...]) -> tuple[ModelEvaluated, ...]:
    """Without older results of a suite on the same data than its newest: the gate never looks at them; those of jobs stay. In their order;
    the last is new."""
    new, of_jobs = evaluations[-1], {job.evaluation_id for job in jobs if job.evaluation_id}
    if any(job.is_running and job.job_id == new.job_id for job in jobs):
        of_jobs.add(new.evaluation_id)
    others = [each for each in evaluations if each.evaluation_id not in of_jobs]
    alike = [each for each in others if (each.suite, each.dataset, each.split) == (new.suite, new.dataset, new.split)]
    # Of results of the same time the later one goes: the gate takes the first.
    gone = [min(reversed(alike), key=lambda each: each.evaluated_at_ms)] if len(alike) > MAX_RESULTS_ALIKE else []
    rest = [each for each in others if not any(each is known for known in gone)]
    gone += rest[: max(0, len(evaluations) - len(gone) - MAX_EVALUATIONS)]
    return tuple(each for each in evaluations if not any(each is known for known in gone))


def _newest_jobs(jobs: tuple[EvaluationJob, ...]) -> tuple[EvaluationJob, ...]:
    """At most MAX_JOBS of them: without the oldest that have ended."""
    ended = [job for job in jobs if not job.is_running][: max(0, len(jobs) - MAX_JOBS)]
    return tuple(job for job in jobs if job not in ended)


def _ended(job: EvaluationJob, decision: ModelEvaluationEnded) -> EvaluationJob:
    if job.job_id != decision.job_id:
        return job
    return replace(job, evaluation_id=decision.evaluation_id or "", reason=decision.reason)


def _described(model: ModelEntry, decision: ModelDescriptionChanged) -> ModelEntry:
    tags, aliases = tuple(sorted(decision.tags.items())), tuple(sorted(decision.aliases.items()))
    if decision.version is None:
        return replace(model, notes=decision.notes, tags=tags, aliases=aliases)
    return model.put(replace(_version(model, decision.version), notes=decision.notes, tags=tags), aliases=aliases)


def _version(model: ModelEntry, version: int) -> Version:
    found = model.get(version)
    if found is None:
        raise BrokenInvariant(f"model {model.key} has no version {version}, and a decision names it")
    return found


def _without_champion(model: ModelEntry) -> ModelEntry:
    """With its champion archived: a decision that names another one follows."""
    champion = model.get(model.champion)
    return model if champion is None else model.put(replace(champion, stage=ModelStage.ARCHIVED), champion=None)


def _past_of(model: ModelEntry, version: int) -> tuple[int, ...]:
    """Champions before the one that a rollback goes to; the one that was champion, where it goes to one that is not among them."""
    if version in model.past:
        last = len(model.past) - 1 - model.past[::-1].index(version)
        return model.past[:last]
    return model.past if model.champion is None else (*model.past, model.champion)[-MAX_PAST:]


def _note_stages(state: RegistryState, model: ModelEntry, decision: ModelDecision) -> None:
    match decision:
        case ModelVersionRegistered():
            kind = "registered"
        case ModelPromoted():
            kind = "promoted"
        case ModelArchived() if decision.successor is None:
            kind = "archived"
        case ModelRolledBack():
            kind = "rolled-back"
        case _:
            return
    champion, staging = model.get(model.champion), model.staging()
    change = StageChange(
        model.project,
        model.name,
        decision.number,
        kind,
        _version(model, decision.version).staged,
        champion.staged if champion is not None else None,
        staging.staged if staging is not None else None,
        str(decision.request_id),
        decision.at_ms,
    )
    state.stages[change.id] = change
