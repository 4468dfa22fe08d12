"""Registry of models as a pure machine: which versions there are, what speaks for each, and which one is champion.

Holds: of a model at most one version is champion, and only one whose gate of that moment was met, an emergency's approvals aside, becomes
it; a past champion comes back by a rollback alone. Who trained or registered a version does not approve it; a person counts once; new
evidence voids approvals. A request of one id counts once. What is refused is answered under the request's id, with what to do, and changes
nothing; where it is to be asked again, the same request may come again under its id, and is decided anew. A version's content is in the
store before the version is there.
Never: asks the store: what its process found there comes in as an input.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from trainhouse.events import (
    AskedVia,
    Event,
    EventId,
    GateCondition,
    ModelApprovalRecorded,
    ModelApproved,
    ModelArchived,
    ModelArchiveRequested,
    ModelCompared,
    ModelComparisonRecorded,
    ModelContentObserved,
    ModelDescribed,
    ModelDescriptionChanged,
    ModelEmergencyReview,
    ModelEmergencyReviewed,
    ModelEvaluated,
    ModelEvaluationEnded,
    ModelEvaluationObserved,
    ModelEvaluationRecorded,
    ModelEvaluationRequested,
    ModelEvaluationStarted,
    ModelGateApplied,
    ModelGateChanged,
    ModelPromoted,
    ModelPromotionRequested,
    ModelRegistered,
    ModelRegistrationHeld,
    ModelRejected,
    ModelRequestRefused,
    ModelRollbackRequested,
    ModelRolledBack,
    ModelStage,
    ModelStageStored,
    ModelVersionRegistered,
)
from trainhouse.events.model.asked import requester
from trainhouse.events.model.bounds import short_text
from trainhouse.events.model.model_decisions import EvidenceUsed, ModelDecision
from trainhouse.events.model.model_gate import OnDrift
from trainhouse.events.model.model_registry import MOST_TAGS, ModelEvent, ModelRequest
from trainhouse.events.model.routing import EventSeen
from trainhouse.events.wire.envelope import Envelope
from trainhouse.events.wire.journal import ClockTicked
from trainhouse.events.wire.topics import REGISTRY
from trainhouse.scheduler.core.errors import UnexpectedInput
from trainhouse.scheduler.core.intake.request_ids import MOST_AHEAD_MS, request_digest
from trainhouse.scheduler.core.protocol.levels import KNOWN_LEVELS
from trainhouse.scheduler.core.protocol.machine import Condition, Effect, Input, Leveled
from trainhouse.scheduler.core.protocol.snapshot_steps import REGISTRY_FORMATS
from trainhouse.scheduler.core.registry.evaluation_jobs import next_try, why_other_data
from trainhouse.scheduler.core.registry.gate_conditions import conditions, recorded
from trainhouse.scheduler.core.registry.registry_effects import registry_effects
from trainhouse.scheduler.core.registry.registry_fold import fold_registry, folded, put_folded
from trainhouse.scheduler.core.registry.registry_state import (
    HELD_FOR_MS,
    MAX_APPROVERS,
    MAX_EVALUATIONS,
    MAX_MODEL_BYTES,
    MAX_MODELS,
    MAX_PROJECT_BYTES,
    MAX_STATE_BYTES,
    MAX_VERSIONS,
    PROJECT_SHARE,
    ModelEntry,
    ProjectUse,
    RegistryState,
    Version,
    capture_registry,
    held_key,
    load_registry,
    stage_id,
    unmet,
)
from trainhouse.scheduler.core.registry.room import why_registrations_wait, why_stages_wait
from trainhouse.scheduler.core.registry.trained_on import SPEC, trained_on
from trainhouse.scheduler.core.registry.version_numbers import next_semver

APPROVER_ROLES: Final = ("approver", "admin")
UNNAMED: Final = ("", "unknown")
KNOWS_SPECS_SINCE: Final = 2
"""Level from which a result on data is refused where the spec of the version's job is not known."""
ON_DRIFT_SINCE: Final = 2
"""Level from which a gate may say what follows from drift."""
EVALUATES_SINCE: Final = 3
"""Level from which a gate may name evaluations, and a new version goes through them by jobs."""
KEEPS_IDS_SINCE: Final = 2
"""Level from which a request that is to be asked again keeps its id: it counts once it is answered for good."""


class RegistryMachine(Leveled):
    """The machine of `trainhouse.registry`."""

    name = "registry"
    decide_version, fold_version, lowest_level = KNOWN_LEVELS[REGISTRY]
    formats = REGISTRY_FORMATS
    since: Mapping[str, int] = {
        ModelEvaluationStarted.event_type: EVALUATES_SINCE,
        ModelEvaluationEnded.event_type: EVALUATES_SINCE,
    }
    passing: tuple[type[Event], ...] = ()

    def initial(self, partition: int) -> RegistryState:
        """No models."""
        return RegistryState(partition)

    def wakes_ms(self, state: RegistryState, after_ms: int) -> int | None:
        """Returns the time at which the next registration that waits expires."""
        oldest = next(iter(state.held.values()), None)
        due_ms = oldest.since_ms + HELD_FOR_MS if oldest is not None else 0
        return due_ms if due_ms > after_ms else None

    def decide(self, state: RegistryState, now_ms: int, inputs: Sequence[Input]) -> list[Event]:
        """Decisions for a batch. Raises UnexpectedInput on an event that the topic of requests does not carry."""
        turn = _Turn(state.fork(), now_ms, self.level)
        for item in inputs:
            if item.offset is None and isinstance(item.event, ModelRequestRefused):
                turn.emit(EventSeen(digest=item.event.digest, made_at_ms=now_ms))
                turn.emit(item.event.model_copy(update={"at_ms": now_ms}))
            else:
                turn.handle(item.envelope)
        return turn.decisions

    def after_refusal(self, state: RegistryState, refused: Envelope, reason: str) -> Event | None:
        """A request that cannot be handled is refused under its id, for its requester."""
        event = refused.event
        if not isinstance(event, ModelRequest):
            return None
        return ModelRequestRefused(
            project=event.project,
            name=event.name,
            request_id=refused.id,
            digest=request_digest(refused).hex(),
            request_type=event.event_type,
            reason=f"{reason}; nothing changed: report it to who runs the platform",
            user=requester(event.requested_by, event.user),
            at_ms=0,  # the time comes with the record
        )

    def fold(self, state: RegistryState, now_ms: int, inputs: Sequence[Input], decisions: Sequence[Event]) -> RegistryState:
        """The state after a record, changed in place; the inputs are not looked at."""
        for decision in decisions:
            fold_registry(state, now_ms, decision)
        return state

    def effects(self, seq: int, now_ms: int, inputs: Sequence[Input], decisions: Sequence[Event]) -> list[Effect]:
        """Returns the decisions for all who read, refusals among them, and statuses."""
        return list(registry_effects(decisions))

    def condition(self, state: RegistryState) -> Condition:
        """Nothing of it is about a pool."""
        return Condition()

    def dump(self, state: RegistryState) -> bytes:
        """Canonical JSON."""
        return self.capture(state)()

    def capture(self, state: RegistryState) -> Callable[[], bytes]:
        """The same for later."""
        written = capture_registry(state)
        return lambda: self.formats.lowered(written(), self.level)

    def load(self, data: bytes) -> RegistryState:
        """The state back."""
        return load_registry(data)


class _RefusedError(Exception):
    """A request does not count. `version`: the one that it is about; `found`: conditions of its gate."""

    def __init__(self, reason: str, version: Version | None = None, found: tuple[GateCondition, ...] = ()) -> None:
        super().__init__(reason)
        self.version, self.found = version, found


@dataclass(slots=True)
class _Turn:
    """One `decide` at work, on a fork of the state."""

    state: RegistryState
    now_ms: int
    level: int
    decisions: list[Event] = field(default_factory=list)
    digest: str = ""  # of the request at hand

    def emit(self, decision: Event) -> None:
        fold_registry(self.state, self.now_ms, decision)
        self.decisions.append(decision)

    def emit_kept(self, decision: ModelDecision, version: Version | None = None) -> None:
        """Emits a decision that keeps more of a model, where there is room for it. Raises _RefusedError."""
        before, after = self.state.model(decision.project, decision.name), folded(self.state, decision)
        grown_bytes = after.size_bytes - (before.size_bytes if before is not None else 0)
        used_bytes = self.state.used.get(decision.project, ProjectUse()).size_bytes
        total_bytes = sum(use.size_bytes for use in self.state.used.values())
        for what, size_bytes, most_bytes in (
            (f"model {after.key}", after.size_bytes, MAX_MODEL_BYTES),
            (f"all models of project {decision.project}", used_bytes + grown_bytes, MAX_PROJECT_BYTES),
            ("all models", total_bytes + grown_bytes, MAX_STATE_BYTES),
        ):
            if grown_bytes > 0 and size_bytes > most_bytes:
                raise _RefusedError(
                    f"the registry would keep {size_bytes} bytes of {what}, and at most {most_bytes} are allowed: send fewer metrics and "
                    "groups, shorter notes and tags, or use another model",
                    version,
                )
        put_folded(self.state, after, decision)
        self.decisions.append(decision)

    def check_new_model(self, project: str) -> None:
        """Raises _RefusedError where there are as many models as may be."""
        most = MAX_MODELS // PROJECT_SHARE
        if self.state.used.get(project, ProjectUse()).models >= most:
            raise _RefusedError(f"project {project} has {most} models already; register it as a version of one of them")
        if len(self.state.models) >= MAX_MODELS:
            raise _RefusedError(f"there are {MAX_MODELS} models already; register it as a version of one of them")

    def handle(self, envelope: Envelope) -> None:
        event = envelope.event
        match event:
            case ClockTicked():
                self.expire()
            case ModelStageStored():
                if stage_id(event.project, event.name, event.number) in self.state.stages:
                    self.emit(event)
            case ModelContentObserved():
                self.observed(event)
            case ModelEvaluationObserved():
                self.evaluation_ended(envelope.id, event)
            case ModelRequest():
                self.requested(envelope, event)
            case _:
                raise UnexpectedInput(f"{event.event_type} ({envelope.id}) is nothing that the registry takes; see the topic table")

    def requested(self, envelope: Envelope, event: ModelRequest) -> None:
        digest = request_digest(envelope)
        self.digest = digest.hex()
        keeps_ids = self.level >= KEEPS_IDS_SINCE
        if self.state.asked.knows(None, digest) or (keeps_ids and held_key(self.digest, envelope.id) in self.state.held):
            return
        made_at_ms = envelope.time_ms if envelope.time_ms is not None else self.now_ms
        untimely = self.state.asked.why_untimely(made_at_ms, self.now_ms)
        later = why_stages_wait(self.state, event.project, event.name)
        if isinstance(event, ModelRegistered):
            later = later or why_registrations_wait(self.state, event.project)
        if keeps_ids and later and not untimely:
            self.refuse(envelope.id, event, _RefusedError(later))
            return
        # What is far ahead is not noted under its time: it would keep others from theirs.
        seen = EventSeen(digest=self.digest, made_at_ms=min(made_at_ms, self.now_ms))
        is_held = keeps_ids and isinstance(event, ModelRegistered)
        if not is_held:
            self.emit(seen)
        try:
            if untimely:
                raise _RefusedError(untimely)
            self.decide(envelope.id, event)
        except _RefusedError as refused:
            if is_held:
                self.emit(seen)
            self.refuse(envelope.id, event, refused)

    def decide(self, request_id: EventId, event: ModelRequest) -> None:
        waits = why_stages_wait(self.state, event.project, event.name)
        if waits:
            raise _RefusedError(waits)
        match event:
            case ModelRegistered():
                self.register(request_id, event)
            case ModelEvaluated():
                self.evaluated(request_id, event)
            case ModelCompared():
                self.compared(request_id, event)
            case ModelEvaluationRequested():
                self.evaluate(request_id, event)
            case ModelApproved() | ModelRejected():
                self.approve(request_id, event)
            case ModelPromotionRequested():
                self.promote(request_id, event)
            case ModelArchiveRequested():
                self.archive(request_id, event)
            case ModelRollbackRequested():
                self.roll_back(request_id, event)
            case ModelGateApplied():
                self.apply_gate(request_id, event)
            case ModelEmergencyReview():
                self.review(request_id, event)
            case ModelDescribed():
                self.describe(request_id, event)

    def refuse(self, request_id: EventId, event: ModelRequest, refused: _RefusedError) -> None:
        self.emit(
            ModelRequestRefused(
                project=event.project,
                name=event.name,
                request_id=request_id,
                digest=self.digest,
                request_type=event.event_type,
                reason=str(refused),
                user=requester(event.requested_by, event.user),
                version=refused.version.version if refused.version is not None else None,
                conditions=refused.found,
                at_ms=self.now_ms,
            )
        )

    def head(self, request_id: EventId, event: ModelEvent) -> dict[str, Any]:
        """The fields that each decision of a model has."""
        model = self.state.entry(event.project, event.name)
        return {
            "project": event.project,
            "name": event.name,
            "request_id": request_id,
            "number": model.number + 1,
            "user": requester(event.requested_by, event.user) if isinstance(event, ModelRequest) else "",
            "at_ms": self.now_ms,
        }

    def publish(self, event: ModelRequest) -> None:
        """Its status, as it is now."""
        self.emit(self.state.entry(event.project, event.name).status(self.now_ms))

    def model(self, event: ModelRequest) -> ModelEntry:
        found = self.state.model(event.project, event.name)
        if found is None:
            raise _RefusedError(f"project {event.project} has no model {event.name}; `trainhouse models register` makes one")
        return found

    def version(self, event: ModelRequest, selector: str) -> tuple[ModelEntry, Version]:
        model = self.model(event)
        found = model.find(selector)
        if found is None:
            what = "no champion" if selector == "champion" else f"no version {selector}"
            raise _RefusedError(f"model {model.key} has {what}; `trainhouse models show {model.name}` lists them")
        return model, found

    def of_content(self, event: ModelEvaluated | ModelCompared, content: str) -> tuple[ModelEntry, Version]:
        model = self.model(event)
        found = model.of_content(content)
        if found is None:
            raise _RefusedError(f"model {model.key} has no version with content {content[:12]}…; register it first")
        return model, found

    def register(self, request_id: EventId, event: ModelRegistered) -> None:
        model = self.state.model(event.project, event.name)
        if event.content is None and event.job_id is None:
            raise _RefusedError("the registration names neither a content nor a job; name one of them")
        if model is None:
            self.check_new_model(event.project)
        if model is not None and len(model.versions) >= MAX_VERSIONS:
            raise _RefusedError(f"model {model.key} has {MAX_VERSIONS} versions already; register it under another name")
        waits = why_registrations_wait(self.state, event.project)
        if waits:
            raise _RefusedError(waits)
        head = {"project": event.project, "name": event.name, "request_id": request_id, "digest": self.digest}
        self.emit(ModelRegistrationHeld(**head, registered=event, since_ms=self.now_ms))

    def observed(self, event: ModelContentObserved) -> None:
        """An answer about the store, for a registration that waits."""
        held = self.state.held.get(held_key(event.digest, event.request_id))
        if held is None:
            return
        self.digest = held.digest
        asked, facts = held.registered, event.facts
        if self.level >= KEEPS_IDS_SINCE and held.digest:
            self.emit(EventSeen(digest=held.digest, made_at_ms=held.since_ms))
        try:
            if facts is None:
                raise _RefusedError(event.refusal or "its content is not in the object store")
            self.registered(held.request_id, asked, event)
        except _RefusedError as refused:
            self.refuse(held.request_id, asked, refused)

    def registered(self, request_id: EventId, asked: ModelRegistered, event: ModelContentObserved) -> None:
        facts = event.facts
        assert facts is not None  # nosec B101  # the caller has looked
        if facts.project != asked.project:
            raise _RefusedError(
                f"job {facts.job_id} is of project {facts.project}, and the model of project {asked.project}: register it as "
                f"{facts.project}/{asked.name}"
            )
        model = self.state.entry(asked.project, asked.name)
        known = model.of_content(facts.content)
        if known is not None and known.stage is not ModelStage.ARCHIVED:
            raise _RefusedError(f"this content is version {known.version} ({known.semver}) of model {model.key} already", known)
        if not model.number:
            self.check_new_model(asked.project)
        newest = model.versions[-1] if model.versions else None
        semver, why = next_semver(newest.semver if newest else None, newest.facts if newest else None, facts, asked.bump)
        self.emit_kept(
            ModelVersionRegistered(
                **self.head(request_id, asked),
                version=len(model.versions) + 1,
                semver=semver,
                facts=facts,
                digest=self.digest,
                semver_reason=why,
                notes=asked.notes,
                tags=asked.tags,
            )
        )
        if self.level >= EVALUATES_SINCE:
            self.start_evaluations(request_id, asked, len(model.versions) + 1, None)
        self.publish(asked)

    def start_evaluations(self, request_id: EventId, asked: ModelRequest, ordinal: int, suite: str | None) -> list[str]:
        """Submits the jobs by which a version goes through the evaluations of the gate; returns why others are not submitted."""
        reasons = list[str]()
        for evaluation in self.state.entry(asked.project, asked.name).gate.evaluate:
            model = self.state.entry(asked.project, asked.name)
            version = model.get(ordinal)
            if version is None or suite not in (None, evaluation.suite):
                continue
            following = next_try(model, version, evaluation)
            if isinstance(following, str):
                reasons.append(following)
                continue
            job, spec = following
            about = {"version": ordinal, "suite": job.suite, "attempt": job.attempt, "job_id": job.job_id, "spec_sha256": job.spec_sha256}
            self.emit(ModelEvaluationStarted.model_validate({**self.head(request_id, asked), **about, "spec": spec}))
        return reasons

    def evaluate(self, request_id: EventId, event: ModelEvaluationRequested) -> None:
        model, version = self.version(event, event.version)
        if version.stage is ModelStage.ARCHIVED:
            raise _RefusedError(f"version {version.version} is archived: register its content again, and evaluate that version", version)
        suites = [each.suite for each in model.gate.evaluate if event.suite in (None, each.suite)]
        if not suites:
            what = "no evaluation" if event.suite is None else f"no evaluation by suite {event.suite}"
            raise _RefusedError(
                f"the gate of model {model.key} names {what}: add it under `evaluate` (`trainhouse models gate apply {model.name} FILE`), "
                "or evaluate the version yourself: `trainhouse models evaluate --spec FILE`",
                version,
            )
        reasons = self.start_evaluations(request_id, event, version.version, event.suite)
        if len(reasons) == len(suites):
            raise _RefusedError("; ".join(reasons), version)

    def evaluation_ended(self, request_id: EventId, event: ModelEvaluationObserved) -> None:
        """The end of a job that evaluates a version: its result counts as any other, or it is known why there is none."""
        running = self.state.running.get(str(event.job_id))
        if running is None or (running.project, running.name, running.version) != (event.project, event.name, event.version):
            return
        version = self.state.entry(event.project, event.name).get(event.version)
        assert version is not None  # nosec B101  # a job runs for a version that is there
        result, reason = event.evaluated, event.failure or "it left no result"
        if result is not None:
            try:
                reason = self.result_of_job(request_id, version, running.job.suite, result.model_copy(update={"job_id": event.job_id}))
            except _RefusedError as refused:
                reason = str(refused)
        self.emit(
            ModelEvaluationEnded(
                **self.head(request_id, event),
                version=event.version,
                suite=running.job.suite,
                job_id=event.job_id,
                evaluation_id=result.evaluation_id if result is not None and not reason else None,
                reason=short_text(reason),
            )
        )

    def result_of_job(self, request_id: EventId, version: Version, suite: str, result: ModelEvaluated) -> str:
        """Records a result of a job, unless it is recorded already; returns why it is none. Raises _RefusedError."""
        if (result.content, result.suite) != (version.facts.content, suite):
            return f"its result is of suite {result.suite} and content {result.content[:12]}…, which it was not to evaluate"
        gate = self.state.entry(result.project, result.name).gate
        why = next((why_other_data(each, result) for each in gate.evaluate if each.suite == suite), "")
        same = next((each for each in version.evaluations if each.evaluation_id == result.evaluation_id), None)
        if not why and same != result:
            # What somebody sent under its name before counts no more, whatever it says.
            self.record_result(request_id, replace(version, evaluations=tuple(e for e in version.evaluations if e is not same)), result)
        return why

    def expire(self) -> None:
        """Refuses registrations of which the store gave no answer."""
        due = [held for held in self.state.held.values() if self.now_ms - held.since_ms >= HELD_FOR_MS]
        for held in due:
            why = f"the object store gave no answer about its content within {HELD_FOR_MS // 60_000} minutes; ask again once it answers"
            self.digest = held.digest
            self.refuse(held.request_id, held.registered, _RefusedError(why))

    def evaluated(self, request_id: EventId, event: ModelEvaluated) -> None:
        _, version = self.of_content(event, event.content)
        if any(job.job_id == event.job_id for job in version.jobs):
            raise _RefusedError(f"what job {event.job_id} found is recorded once it has ended, from what it stored: leave it out", version)
        self.record_result(request_id, version, event)

    def record_result(self, request_id: EventId, version: Version, event: ModelEvaluated) -> None:
        figures = {f"{name}.{part}": value for name, each in event.metrics.items() for part, value in each if value is not None}
        broken = sorted(name for name, value in figures.items() if not math.isfinite(value))
        if broken:
            raise _RefusedError(f"{broken[0]} is no finite number: that is no evidence; mend the evaluation, run it again", version)
        if event.evaluated_at_ms > self.now_ms + MOST_AHEAD_MS:
            raise _RefusedError("the result is of the future: it says that it ended more than two days from now; set that clock", version)
        if any(each.evaluation_id == event.evaluation_id for each in version.evaluations):
            raise _RefusedError(f"evaluation {event.evaluation_id} is recorded already; send another result under another name", version)
        suites = {(each.suite, each.dataset, each.split) for each in version.evaluations}
        if len(version.evaluations) >= MAX_EVALUATIONS and (event.suite, event.dataset, event.split) not in suites:
            raise _RefusedError(
                f"the version has {MAX_EVALUATIONS} results already; evaluate it by a suite that it has a result of", version
            )
        why = why_trained_on(version, event) or (why_unknown(version, event) if self.level >= KNOWS_SPECS_SINCE else "")
        if why:
            raise _RefusedError(why, version)
        voided = tuple(each.user for each in version.approvals)
        recorded = ModelEvaluationRecorded(**self.head(request_id, event), version=version.version, evaluated=event, voided=voided)
        self.emit_kept(recorded, version)

    def compared(self, request_id: EventId, event: ModelCompared) -> None:
        model, version = self.of_content(event, event.content)
        _, other = self.of_content(event, event.against)
        results = list[ModelEvaluated]()
        for owner, evaluation_id in ((version, event.evaluation_id), (other, event.against_evaluation_id)):
            result = next((each for each in owner.evaluations if each.evaluation_id == evaluation_id and each.suite == event.suite), None)
            if result is None:
                raise _RefusedError(
                    f"version {owner.version} of model {model.key} has no evaluation {evaluation_id} of suite {event.suite}; "
                    "record it first, then compare",
                    version,
                )
            results.append(result)
        first, second = (f"{each.dataset or 'no dataset'} split {each.split or 'none'}" for each in results)
        if first != second:
            raise _RefusedError(
                f"evaluation {event.evaluation_id} is on {first}, and {event.against_evaluation_id} on {second}: compare results on the "
                "same data",
                version,
            )
        if event.compared_at_ms > self.now_ms + MOST_AHEAD_MS:
            raise _RefusedError("the comparison is of the future; set the clock of its machine", version)
        voided = tuple(each.user for each in version.approvals)
        self.emit_kept(
            ModelComparisonRecorded(
                **self.head(request_id, event), version=version.version, against=other.version, compared=event, voided=voided
            ),
            version,
        )

    def approve(self, request_id: EventId, event: ModelApproved | ModelRejected) -> None:
        model, version = self.version(event, event.version)
        user, approved = requester(event.requested_by, event.user), isinstance(event, ModelApproved)
        word = "approve" if approved else "reject"
        by = event.requested_by
        if by is not None and by.via is AskedVia.GATEWAY and by.role not in APPROVER_ROLES:
            raise _RefusedError(f"{user} has role {by.role or 'none'}, `models {word}` needs role approver; ask an admin for it", version)
        if user in UNNAMED:
            raise _RefusedError(f"the request does not name who would {word}; name the user", version)
        if version.facts.trained_by in UNNAMED and approved:
            raise _RefusedError(
                f"who trained version {version.version} of model {model.key} is not known: the platform has no submitter of job "
                f"{version.facts.job_id}, and {user} may be the one; nobody can approve it. Promote it as an emergency, which another "
                "person reviews (`models promote --emergency --reason …`), or register a version of a job that it knows",
                version,
            )
        ties = {version.registered_by: "registered", version.facts.trained_by: "trained"}
        if user in ties and approved:
            raise _RefusedError(
                f"{user} {ties[user]} version {version.version} of model {model.key}, and nobody approves their own; ask another person",
                version,
            )
        if isinstance(event, ModelApproved) and event.evidence not in (None, version.evidence):
            raise _RefusedError(
                f"there is other evidence for version {version.version} of model {model.key} than was looked at "
                f"({str(event.evidence)[:12]}…, now {version.evidence[:12]}…): look at it (`trainhouse models why`), and approve again",
                version,
            )
        if len(version.approvals) >= MAX_APPROVERS and user not in {each.user for each in version.approvals}:
            raise _RefusedError(f"{MAX_APPROVERS} people gave their word on it already", version)
        self.emit(
            ModelApprovalRecorded(
                **self.head(request_id, event), version=version.version, approved=approved, evidence=version.evidence, reason=event.reason
            )
        )

    def promote(self, request_id: EventId, event: ModelPromotionRequested) -> None:
        model, version = self.version(event, event.version)
        champion = model.get(model.champion)
        if version.version == model.champion:
            raise _RefusedError(f"version {version.version} of model {model.key} is its champion already", version)
        if version.stage is ModelStage.ARCHIVED:
            back = version.was_champion and not version.withdrawn
            how = f"`trainhouse models rollback {model.name} --to {version.version}` goes back to it, or " if back else ""
            raise _RefusedError(
                f"version {version.version} of model {model.key} is archived: {how}register it again, and have that version approved",
                version,
            )
        if event.champion is not None and event.champion != (model.champion or 0):
            now = f"version {model.champion}" if model.champion else "none"
            asked = f"version {event.champion}" if event.champion else "none"
            raise _RefusedError(
                f"the champion of model {model.key} is {now} by now, and this was asked when it was {asked}: look, and ask again",
                version,
            )
        if event.emergency and not event.reason:
            raise _RefusedError("an emergency needs a reason: give --reason", version)
        found = conditions(model.gate, version, champion, self.now_ms, emergency=event.emergency)
        lacking = unmet(found)
        if lacking:
            what = "; ".join(each.detail or each.name for each in lacking)
            raise _RefusedError(f"the gate of model {model.key} refuses version {version.version}: {what}", version, recorded(found))
        self.emit(
            ModelPromoted(
                **self.head(request_id, event),
                version=version.version,
                semver=version.semver,
                content=version.facts.content,
                previous=model.champion,
                gate_version=model.gate_version,
                gate=model.gate,
                conditions=recorded(found),
                evaluations=tuple(
                    EvidenceUsed(evaluation_id=each.evaluation_id, suite=each.suite, document=each.document) for each in version.evaluations
                ),
                evidence=version.evidence,
                approvers=version.approvers,
                emergency=event.emergency,
                reason=event.reason,
            )
        )
        self.succeeded(request_id, event, champion, version)

    def succeeded(self, request_id: EventId, event: ModelRequest, before: Version | None, version: Version) -> None:
        """The champion before is archived; all who read get the status."""
        if before is not None:
            why = f"version {version.version} is champion"
            head = self.head(request_id, event)
            self.emit(ModelArchived(**head, version=before.version, successor=version.version, reason=why))
        self.publish(event)

    def archive(self, request_id: EventId, event: ModelArchiveRequested) -> None:
        model, version = self.version(event, event.version)
        if version.version == model.champion:
            raise _RefusedError(
                f"version {version.version} of model {model.key} is its champion: promote another one, or roll back",
                version,
            )
        if version.withdrawn:
            raise _RefusedError(f"version {version.version} of model {model.key} is archived already", version)
        self.emit(ModelArchived(**self.head(request_id, event), version=version.version, reason=event.reason))
        self.publish(event)

    def roll_back(self, request_id: EventId, event: ModelRollbackRequested) -> None:
        model = self.model(event)
        champion = model.get(model.champion)
        if not event.reason:
            raise _RefusedError("a rollback needs a reason: give --reason", champion)
        if champion is None:
            raise _RefusedError(f"model {model.key} has no champion to roll back from; promote a version")
        if event.champion is not None and event.champion != champion.version:
            raise _RefusedError(
                f"the champion of model {model.key} is version {champion.version} by now, and the rollback was asked against version "
                f"{event.champion}: look at `trainhouse models history {model.name}` before you ask again",
                champion,
            )
        if event.to is None:
            past = (model.get(each) for each in reversed(model.past))
            target = next((each for each in past if each is not None and not each.withdrawn), None)
            if target is None:
                raise _RefusedError(
                    f"model {model.key} had no champion before version {champion.version} that is left; promote another", champion
                )
        else:
            _, target = self.version(event, event.to)
        if target.version == champion.version:
            raise _RefusedError(f"version {target.version} of model {model.key} is its champion already", target)
        if not target.was_champion:
            raise _RefusedError(
                f"version {target.version} of model {model.key} was never champion, and a rollback needs one that was: promote it",
                target,
            )
        if target.withdrawn:
            raise _RefusedError(
                f"a person archived version {target.version} of model {model.key}, so no rollback goes to it: name another one, or "
                "register it again",
                target,
            )
        self.emit(
            ModelRolledBack(
                **self.head(request_id, event),
                version=target.version,
                semver=target.semver,
                content=target.facts.content,
                previous=champion.version,
                reason=event.reason,
            )
        )
        self.succeeded(request_id, event, champion, target)

    def apply_gate(self, request_id: EventId, event: ModelGateApplied) -> None:
        model = self.model(event)
        if event.replaces is not None and event.replaces != model.gate_version:
            raise _RefusedError(
                f"the gate of model {model.key} is at version {model.gate_version}, this was made from version {event.replaces}: look at "
                f"it (`trainhouse models gate show {model.name}`), and change that"
            )
        if event.gate.on_drift is not OnDrift.ALERT and self.level < ON_DRIFT_SINCE:
            raise _RefusedError(
                f"on_drift: {event.gate.on_drift} is kept from level {ON_DRIFT_SINCE} of the registry on, and this one is at level "
                f"{self.level}: finish the update (`trainhouse upgrade finish`), and apply the gate again"
            )
        if event.gate.evaluate and self.level < EVALUATES_SINCE:
            raise _RefusedError(
                f"evaluate is kept from level {EVALUATES_SINCE} of the registry on, and this one is at level {self.level}: finish the "
                "update (`trainhouse upgrade finish`), and apply the gate again"
            )
        if model.gate_version and event.gate == model.gate:
            raise _RefusedError(f"the gate of model {model.key} is so already, since version {model.gate_version}")
        self.emit_kept(
            ModelGateChanged(
                **self.head(request_id, event),
                gate_version=model.gate_version + 1,
                gate=event.gate,
                text=event.text,
                reason=event.reason,
            )
        )
        self.publish(event)

    def review(self, request_id: EventId, event: ModelEmergencyReview) -> None:
        model, version = self.version(event, event.version)
        user = requester(event.requested_by, event.user)
        if not version.emergency:
            raise _RefusedError(f"version {version.version} of model {model.key} has no emergency promotion to review", version)
        if user in (*UNNAMED, version.promoted_by):
            raise _RefusedError(f"the promotion was {version.promoted_by}'s own: another person reviews it", version)
        self.emit(ModelEmergencyReviewed(**self.head(request_id, event), version=version.version, reason=event.reason))
        self.publish(event)

    def describe(self, request_id: EventId, event: ModelDescribed) -> None:
        model = self.state.model(event.project, event.name)
        if model is not None and event.create:
            raise _RefusedError(f"model {model.key} exists already; register versions of it")
        if model is None:
            if event.version is not None:
                raise _RefusedError(f"project {event.project} has no model {event.name}; register a version of it first")
            self.check_new_model(event.project)
            model = self.state.entry(event.project, event.name)
        version = None if event.version is None else self.version(event, event.version)[1]
        of: ModelEntry | Version = version if version is not None else model
        tags = {key: value for key, value in (dict(of.tags) | event.tags).items() if key not in event.remove_tags}
        aliases = dict(model.aliases)
        if event.alias == ModelStage.CHAMPION:
            raise _RefusedError("the alias champion is the model's stage: promote a version, and the gate decides", version)
        if event.alias is not None:
            aliases.pop(event.alias, None)
            if version is not None:
                aliases[event.alias] = version.version
        if max(len(tags), len(aliases)) > MOST_TAGS:
            raise _RefusedError(f"there would be more than {MOST_TAGS} tags or aliases; remove some", version)
        notes = of.notes if event.notes is None else event.notes
        ordinal = version.version if version is not None else None
        changed = ModelDescriptionChanged(**self.head(request_id, event), version=ordinal, notes=notes, tags=tags, aliases=aliases)
        self.emit_kept(changed, version)
        if model.number == 0:
            self.publish(event)


def why_trained_on(version: Version, event: ModelEvaluated) -> str:
    """Returns the reason that a result is no evidence: lineage shows that the version was trained on those samples; empty if not."""
    seen = trained_on(version.facts, event.dataset, event.split) if event.dataset else ""
    if not seen:
        return ""
    return f"job {version.facts.job_id} was trained on {seen}, so a result on it is no evidence: name a held-out split"


def why_unknown(version: Version, event: ModelEvaluated) -> str:
    """Returns the reason that a result is no evidence: it is not known what the version was trained on; empty if not."""
    if not event.dataset or SPEC not in version.facts.missing:
        return ""
    return (
        f"the spec of job {version.facts.job_id} is on no topic any more, so whether it was trained on {event.dataset} is not known, and a "
        "result on it is no evidence: train it by a job whose spec is known, and register a version of that one"
    )
