"""Decisions of the registry of models: what is so from now on, written by the registry alone.

Holds: `number` counts a model's decisions from 1; the status of a model is what its newest one says. Each names the request that it
follows from.
"""

from typing import Final

from pydantic import Field

from trainhouse.events.model.absence import is_absent, is_no
from trainhouse.events.model.base import Event, Model
from trainhouse.events.model.bounds import MOST_SMALL, Count, CutText, ShortText, SmallCount, TimestampMs
from trainhouse.events.model.dataset_names import Semver
from trainhouse.events.model.ids import EventId, JobId
from trainhouse.events.model.labels import Label, Sha256
from trainhouse.events.model.model_gate import MOST_CONDITIONS, GateCondition, ModelGate
from trainhouse.events.model.model_names import ModelStage, VersionOrdinal
from trainhouse.events.model.model_registry import (
    MOST_GATE_CHARS,
    MOST_TAGS,
    ModelCompared,
    ModelEvaluated,
    ModelEvent,
    ModelRegistered,
    Notes,
    RequestDigest,
    TagText,
    VersionFacts,
)
from trainhouse.events.model.spec import JobSpec

MOST_EVIDENCE: Final = 1024
MOST_STATUS_VERSIONS: Final = 256
"""Newest versions in a model's status; the champion is always in it."""


class ModelDecision(ModelEvent):
    """Base of decisions that follow from a request."""

    request_id: EventId = Field(description="event id of the request")
    number: int = Field(ge=1, le=MOST_SMALL, description="number of this decision among those of the model, from 1")
    user: ShortText = Field("", description="who asked for it")
    at_ms: TimestampMs


class ModelRegistrationHeld(ModelEvent, type="trainhouse.model.registration-held.v1"):
    """A registration waits until its content was looked at in the store; in the journal alone."""

    request_id: EventId = Field(description="event id of the request")
    digest: RequestDigest = Field("", description="hash of the request's source and id")
    registered: ModelRegistered = Field(description="registration as it came in")
    since_ms: TimestampMs


class ModelVersionRegistered(ModelDecision, type="trainhouse.model.version-registered.v1"):
    """A model has a new version, in staging."""

    version: VersionOrdinal = Field(description="its ordinal")
    semver: Semver = Field(description="its semver")
    facts: VersionFacts = Field(description="facts of its content")
    digest: RequestDigest = Field("", description="hash of the registration's source and id")
    semver_reason: CutText = Field("", description="facts that the semver follows from")
    notes: Notes = Field("", exclude_if=is_absent, description="text about the version, for people")
    tags: dict[Label, TagText] = Field(default_factory=dict, max_length=MOST_TAGS, description="texts by name")


class ModelEvaluationRecorded(ModelDecision, type="trainhouse.model.evaluation-recorded.v1"):
    """Result of an evaluation counts as evidence for a version. `voided`: approvals that it voids."""

    version: VersionOrdinal = Field(description="ordinal of the version")
    evaluated: ModelEvaluated = Field(description="result as it came in")
    voided: tuple[ShortText, ...] = Field((), max_length=MOST_EVIDENCE, description="people whose approval or rejection no longer counts")


class ModelEvaluationStarted(ModelDecision, type="trainhouse.model.evaluation-started.v1"):
    """A job that evaluates a version is submitted: its id follows from the model, the version, the suite and the number of the try."""

    version: VersionOrdinal = Field(description="ordinal of the version")
    suite: Label = Field(description="name of the suite")
    attempt: int = Field(1, ge=1, le=MOST_SMALL, description="number of this try, from 1")
    job_id: JobId = Field(description="id of the job")
    spec: JobSpec = Field(description="spec of the job")
    spec_sha256: Sha256 = Field(description="hash of that spec, as the job's status has it")


class ModelEvaluationEnded(ModelDecision, type="trainhouse.model.evaluation-ended.v1"):
    """A job that evaluates a version has ended."""

    version: VersionOrdinal = Field(description="ordinal of the version")
    suite: Label = Field(description="name of the suite")
    job_id: JobId = Field(description="id of the job")
    evaluation_id: Label | None = Field(None, exclude_if=is_absent, description="result that is recorded of it; absent: there is none")
    reason: CutText = Field("", description="why there is no result, and what to do")


class ModelComparisonRecorded(ModelDecision, type="trainhouse.model.comparison-recorded.v1"):
    """Comparison of two versions counts as evidence. `voided`: approvals that it voids."""

    version: VersionOrdinal = Field(description="ordinal of the version")
    against: VersionOrdinal = Field(description="ordinal of the other")
    compared: ModelCompared = Field(description="comparison as it came in")
    voided: tuple[ShortText, ...] = Field((), max_length=MOST_EVIDENCE, description="people whose approval or rejection no longer counts")


class ModelApprovalRecorded(ModelDecision, type="trainhouse.model.approval-recorded.v1"):
    """A person's word on a version counts, on the evidence of that moment."""

    version: VersionOrdinal = Field(description="ordinal of the version")
    approved: bool = Field(description="whether it was approved; else it was rejected")
    evidence: Sha256 = Field(description="hash of the evidence that there was, in hexadecimal")
    reason: CutText = ""


class EvidenceUsed(Model):
    """Evaluation that a promotion rests on."""

    evaluation_id: Label = Field(description="name of the evaluation")
    suite: Label = Field(description="name of the suite")
    document: Sha256 = Field(description="SHA-256 of the whole result, in hexadecimal")


class ModelPromoted(ModelDecision, type="trainhouse.model.promoted.v1"):
    """A version is champion from now on, and the one before is archived; with all that it rests on."""

    version: VersionOrdinal = Field(description="ordinal of the version")
    semver: Semver = Field(description="its semver")
    content: Sha256 = Field(description="SHA-256 of its model manifest, in hexadecimal")
    previous: VersionOrdinal | None = Field(None, description="ordinal of the champion before it; absent: there was none")
    gate_version: Count = Field(description="version of the gate; 0: the default one")
    gate: ModelGate = Field(description="gate that it passed")
    conditions: tuple[GateCondition, ...] = Field((), max_length=MOST_CONDITIONS, description="conditions, with their numbers")
    evaluations: tuple[EvidenceUsed, ...] = Field((), max_length=MOST_EVIDENCE, description="evaluations that there were")
    evidence: Sha256 = Field(description="hash of all evidence that there was, in hexadecimal")
    approvers: tuple[ShortText, ...] = Field((), max_length=MOST_EVIDENCE, description="people who approved")
    emergency: bool = Field(False, description="whether approvals were skipped")
    reason: CutText = ""


class ModelArchived(ModelDecision, type="trainhouse.model.archived.v1"):
    """A version is archived."""

    version: VersionOrdinal = Field(description="ordinal of the version")
    successor: VersionOrdinal | None = Field(None, exclude_if=is_absent, description="version that is champion instead; absent: asked for")
    reason: CutText = ""


class ModelRolledBack(ModelDecision, type="trainhouse.model.rolled-back.v1"):
    """A past champion is champion again, and the one that was is archived."""

    version: VersionOrdinal = Field(description="ordinal of the version that is champion again")
    semver: Semver = Field(description="its semver")
    content: Sha256 = Field(description="SHA-256 of its model manifest, in hexadecimal")
    previous: VersionOrdinal = Field(description="ordinal of the champion before the rollback")
    reason: CutText = ""


class ModelGateChanged(ModelDecision, type="trainhouse.model.gate-changed.v1"):
    """A model has another gate from now on."""

    gate_version: int = Field(ge=1, le=MOST_SMALL, description="number of its changes, from 1")
    gate: ModelGate = Field(description="gate as it is from now on")
    text: str = Field("", max_length=MOST_GATE_CHARS, description="file as it was written")
    reason: CutText = ""


class ModelEmergencyReviewed(ModelDecision, type="trainhouse.model.emergency-reviewed.v1"):
    """An emergency promotion was reviewed."""

    version: VersionOrdinal = Field(description="ordinal of the version that was promoted")
    reason: CutText = ""


class ModelDescriptionChanged(ModelDecision, type="trainhouse.model.description-changed.v1"):
    """Texts about a model, or a version of it, are so from now on."""

    version: VersionOrdinal | None = Field(None, exclude_if=is_absent, description="ordinal of the version; absent: the model itself")
    notes: Notes = Field("", exclude_if=is_absent, description="text for people, whole")
    tags: dict[Label, TagText] = Field(default_factory=dict, max_length=MOST_TAGS, description="texts by name, all of them")
    aliases: dict[Label, VersionOrdinal] = Field(
        default_factory=dict, max_length=MOST_TAGS, description="the model's other names of versions"
    )


class ModelRequestRefused(ModelEvent, type="trainhouse.model.request-refused.v1"):
    """A request about a model was refused; nothing changed."""

    request_id: EventId = Field(description="event id of the request")
    digest: RequestDigest = Field("", description="hash of the request's source and id")
    request_type: ShortText = Field(description="event type of the request")
    reason: CutText = Field(description="why, and what to do")
    user: ShortText = Field("", description="who asked for it")
    version: VersionOrdinal | None = Field(None, exclude_if=is_absent, description="ordinal of the version that it was about")
    conditions: tuple[GateCondition, ...] = Field(
        (), max_length=MOST_CONDITIONS, exclude_if=is_absent, description="conditions of the gate, where that refused it"
    )
    at_ms: TimestampMs


class VersionStatus(Model):
    """Status of one version."""

    version: VersionOrdinal = Field(description="its ordinal")
    semver: Semver = Field(description="its semver")
    content: Sha256 = Field(description="SHA-256 of its model manifest, in hexadecimal")
    stage: ModelStage = Field(description="staging, champion or archived")
    job_id: JobId = Field(description="job that trained it")
    commit: Count
    registered_at_ms: TimestampMs = Field(description="time of its registration, in milliseconds since 1970")
    emergency: bool = Field(False, exclude_if=is_no, description="whether its promotion was an emergency that nobody has reviewed")


class ModelStatus(ModelEvent, type="trainhouse.model.status.v1"):
    """Whole current status of a model: its stages, its gate and its newest versions."""

    number: int = Field(ge=1, le=MOST_SMALL, description="number of the model's newest decision")
    champion: VersionStatus | None = Field(None, description="champion; absent: there is none")
    versions: tuple[VersionStatus, ...] = Field(
        (), max_length=MOST_STATUS_VERSIONS, description="newest versions, by their ordinals; the champion is among them"
    )
    version_count: SmallCount = Field(description="versions that there are")
    gate_version: Count = Field(0, description="version of the gate; 0: the default one")
    gate: ModelGate = Field(description="its gate")
    updated_at_ms: TimestampMs = Field(description="time of the newest decision, in milliseconds since 1970")


MODEL_HISTORY: Final[tuple[type[Event], ...]] = (
    ModelVersionRegistered,
    ModelEvaluationStarted,
    ModelEvaluationRecorded,
    ModelEvaluationEnded,
    ModelComparisonRecorded,
    ModelApprovalRecorded,
    ModelPromoted,
    ModelArchived,
    ModelRolledBack,
    ModelGateChanged,
    ModelEmergencyReviewed,
    ModelDescriptionChanged,
    ModelRequestRefused,
)
MODEL_DECISIONS: Final[tuple[type[Event], ...]] = (ModelRegistrationHeld, *MODEL_HISTORY, ModelStatus)
