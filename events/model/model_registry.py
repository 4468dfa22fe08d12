"""Requests to the registry of models: versions, evaluations, approvals, stages and gates.

Holds: a request has no effect but by the registry's decision about it, which names it by its event id; the same id counts once. The user
is who asks, as `requested_by` vouches for it.
"""

from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from trainhouse.events.model.absence import is_absent
from trainhouse.events.model.asked import RequestedBy
from trainhouse.events.model.base import Event, Model
from trainhouse.events.model.bounds import MOST_SMALL, ByteCount, Count, CutText, Metric, Reading, ShortText, TimestampMs
from trainhouse.events.model.dataset_names import SplitName
from trainhouse.events.model.default_project import DEFAULT_PROJECT
from trainhouse.events.model.ids import EventId, JobId
from trainhouse.events.model.labels import Label, Sha256
from trainhouse.events.model.model_gate import MOST_METRICS, ComparisonVerdict, ModelGate
from trainhouse.events.model.model_key import model_key
from trainhouse.events.model.model_names import (
    ModelName,
    VersionBump,
    VersionOrdinal,
    VersionSelector,
)

MOST_NOTES_CHARS: Final = 16_384
MOST_TAGS: Final = 64
MOST_TAG_CHARS: Final = 1024
MOST_DATA: Final = 256
MOST_GROUPS: Final = 256
MOST_GATE_CHARS: Final = 65_536
TagText = Annotated[str, Field(max_length=MOST_TAG_CHARS)]
Notes = Annotated[str, Field(max_length=MOST_NOTES_CHARS)]
UserName = Annotated[str, Field(max_length=128)]
Reason = Annotated[str, Field(max_length=1024)]


def _text_of_number(value: object) -> object:
    return str(value) if type(value) is int else value


Selector = Annotated[VersionSelector, BeforeValidator(_text_of_number)]


RequestDigest = Annotated[str, Field(max_length=16, pattern=r"^([0-9a-f]{16})?$")]
"""Hash of a request's source and id, in hexadecimal, by which it counts once: two senders may use one id. Empty: not known."""


class ModelEvent(Event):
    """Base of all events of a model: what they are keyed by."""

    project: Label = Field(DEFAULT_PROJECT, description="project that owns the model")
    name: ModelName = Field(description="name of the model")

    def subject(self) -> str:
        return model_key(self.project, self.name)


class ModelRequest(ModelEvent):
    """Base of all requests about a model."""

    user: UserName = Field("unknown", description="who asks for it")
    requested_by: RequestedBy | None = None


class ModelRegistered(ModelRequest, type="trainhouse.model.registered.v1", public_input=True):
    """Request that a checkpoint becomes the next version of a model; its event id makes it idempotent.

    It names the content of a model manifest that is in the store, or a job, of which the registry makes the manifest itself.
    """

    content: Sha256 | None = Field(
        None, exclude_if=is_absent, description="SHA-256 of the version's model manifest in the store, in hexadecimal; absent: the job's"
    )
    job_id: JobId | None = Field(None, exclude_if=is_absent, description="job whose checkpoint it is; absent: the one in the manifest")
    commit: Count | None = Field(None, exclude_if=is_absent, description="number of the checkpoint in its job's chain; absent: the newest")
    bump: VersionBump | None = Field(
        None, exclude_if=is_absent, description="least step of the semver; only raises the one that follows from the facts"
    )
    splits: tuple[ShortText, ...] = Field(
        (),
        max_length=MOST_DATA,
        exclude_if=is_absent,
        description="splits that the job's spec names, as NAME@sha256:…/SPLIT: results on them are no evidence",
    )
    notes: Notes = Field("", exclude_if=is_absent, description="text about the version, for people")
    tags: dict[Label, TagText] = Field(default_factory=dict, max_length=MOST_TAGS, description="texts by name; nothing is decided by them")


class VersionFacts(Model):
    """Facts of a version's content, as the registry's process found them in the store and in the job's spec."""

    content: Sha256 = Field(description="SHA-256 of the version's model manifest, in hexadecimal")
    job_id: JobId = Field(description="job that trained it")
    commit: Count
    project: Label = Field(description="project of the job")
    trained_by: ShortText = Field("", description="user who submitted the job")
    schema_sha256: Sha256 | None = Field(
        None, exclude_if=is_absent, description="SHA-256 of input and output schema, in hexadecimal; absent: it has none"
    )
    code_sha256: Sha256 | None = Field(None, exclude_if=is_absent, description="SHA-256 of the job's code, in hexadecimal; absent: none")
    data: tuple[ShortText, ...] = Field((), max_length=MOST_DATA, description="data that the job trained on, as NAME@sha256:… or address")
    splits: tuple[ShortText, ...] = Field(
        (), max_length=MOST_DATA, description="splits that it trained on, as NAME@sha256:…/SPLIT; without a split: all of it"
    )
    framework: ShortText = Field("", description="framework of the weights")
    size_bytes: ByteCount = Field(0, description="size of its files, in bytes")
    missing: tuple[ShortText, ...] = Field((), max_length=64, description="what is not known of its lineage, as `code`")


class ModelContentObserved(ModelEvent, type="trainhouse.model.content-observed.v1"):
    """Content of a version that is to be registered, as the registry's process found it in the store; or why it is none."""

    request_id: EventId = Field(description="event id of the registration")
    digest: RequestDigest = Field("", description="hash of the registration's source and id")
    facts: VersionFacts | None = Field(None, description="its facts; absent: it is refused")
    refusal: CutText = Field("", description="why it cannot be registered, and what to do")


class ModelStageStored(ModelEvent, type="trainhouse.model.stage-stored.v1"):
    """A change of a model's stages is in its chain in the store; the registry's process writes it."""

    number: int = Field(ge=1, le=MOST_SMALL, description="number of the decision among those of the model")


class MetricValue(Model):
    """Figure of an evaluation, with its interval."""

    value: Metric = Field(description="value")
    low: Metric | None = Field(None, exclude_if=is_absent, description="lower end of its interval")
    high: Metric | None = Field(None, exclude_if=is_absent, description="upper end of its interval")


class ModelEvaluated(ModelRequest, type="trainhouse.model.evaluated.v1", public_input=True):
    """Result of one suite for a version. The whole document is in the store, by its hash."""

    content: Sha256 = Field(description="SHA-256 of the version's model manifest, in hexadecimal")
    evaluation_id: Label = Field(description="name of the evaluation; a second result of that name is refused")
    suite: Label = Field(description="name of the suite")
    document: Sha256 = Field(description="SHA-256 of the whole result in the store, in hexadecimal")
    dataset: ShortText = Field("", description="version of the dataset, as NAME@sha256:…; empty: it needs none")
    split: SplitName | None = Field(None, exclude_if=is_absent, description="split of the dataset")
    job_id: JobId | None = Field(None, exclude_if=is_absent, description="job that evaluated it")
    device_kind: ShortText = Field("", description="kind of the device that it ran on")
    samples: Count = Field(0, description="samples that it was evaluated on")
    metrics: dict[Label, MetricValue] = Field(default_factory=dict, max_length=MOST_METRICS, description="figures by metric")
    evaluated_at_ms: TimestampMs = Field(description="time at which it ended, in milliseconds since 1970")


class MetricComparison(Model):
    """Comparison of one metric, perhaps in one group, on the same samples."""

    metric: Label = Field(description="name of the metric")
    group: ShortText = Field("", exclude_if=is_absent, description="group of samples; empty: all")
    verdict: ComparisonVerdict = Field(description="better, not worse, worse or too few samples")
    difference: Reading = Field(description="value of the version minus that of the other")
    low: Reading | None = Field(None, exclude_if=is_absent, description="lower end of the difference's interval")
    high: Reading | None = Field(None, exclude_if=is_absent, description="upper end of the difference's interval")
    p_value: Reading | None = Field(None, exclude_if=is_absent, description="p value, corrected for the number of comparisons")
    margin: Reading | None = Field(
        None, ge=0, exclude_if=is_absent, description="loss up to which the verdict is not worse; absent: not known, and no gate takes it"
    )


class ModelCompared(ModelRequest, type="trainhouse.model.compared.v1", public_input=True):
    """Comparison of a version with another one on the same samples of one suite."""

    content: Sha256 = Field(description="SHA-256 of the version's model manifest, in hexadecimal")
    against: Sha256 = Field(description="SHA-256 of the other version's model manifest, in hexadecimal")
    suite: Label = Field(description="name of the suite")
    evaluation_id: Label = Field(description="evaluation of the version")
    against_evaluation_id: Label = Field(description="evaluation of the other")
    samples: Count = Field(description="samples that both were evaluated on")
    metrics: tuple[MetricComparison, ...] = Field(max_length=MOST_GROUPS, description="metrics, also by group")
    compared_at_ms: TimestampMs = Field(description="time of the comparison, in milliseconds since 1970")


class ModelEvaluationRequested(ModelRequest, type="trainhouse.model.evaluation-requested.v1", public_input=True):
    """Request that a version goes through the evaluations of its model's gate, by the jobs that its registration would have started."""

    version: Selector = Field(description="version: its ordinal or semver")
    suite: Label | None = Field(None, exclude_if=is_absent, description="this evaluation alone; absent: all of the gate")


class ModelEvaluationObserved(ModelEvent, type="trainhouse.model.evaluation-observed.v1"):
    """End of a job that evaluates a version, as the registry's process found it: with the result that it left, or why there is none."""

    version: VersionOrdinal = Field(description="ordinal of the version")
    job_id: JobId = Field(description="job that evaluated it")
    evaluated: ModelEvaluated | None = Field(None, exclude_if=is_absent, description="its result; absent: there is none")
    failure: CutText = Field("", description="why there is none, and what to do")


class ModelApproved(ModelRequest, type="trainhouse.model.approved.v1", public_input=True):
    """Request that counts a person's approval of a version, on the evidence that there is. `evidence`: the one that was looked at."""

    version: Selector = Field(description="version: its ordinal or semver")
    evidence: Sha256 | None = Field(
        None,
        exclude_if=is_absent,
        description="hash of the evidence that was looked at, as `models why` shows it; any other refuses it",
    )
    reason: Reason = ""


class ModelRejected(ModelRequest, type="trainhouse.model.rejected.v1", public_input=True):
    """Request that counts a person's rejection of a version: it becomes champion only once that person approves it, or evidence is new."""

    version: Selector = Field(description="version: its ordinal or semver")
    reason: Reason = ""


class ModelPromotionRequested(ModelRequest, type="trainhouse.model.promotion-requested.v1", public_input=True):
    """Request that a version becomes champion, which the gate decides. `emergency` skips approvals alone."""

    version: Selector = Field(description="version: its ordinal or semver")
    champion: Count | None = Field(
        None, exclude_if=is_absent, description="ordinal of the champion that it was asked against, 0: none; any other one refuses it"
    )
    emergency: bool = Field(False, description="whether approvals are skipped")
    reason: Reason = ""


class ModelArchiveRequested(ModelRequest, type="trainhouse.model.archive-requested.v1", public_input=True):
    """Request that a version is archived; the champion cannot be."""

    version: Selector = Field(description="version: its ordinal or semver")
    reason: Reason = ""


class ModelRollbackRequested(ModelRequest, type="trainhouse.model.rollback-requested.v1", public_input=True):
    """Request that a past champion is champion again."""

    to: Selector | None = Field(None, exclude_if=is_absent, description="version to go back to; absent: the champion before this one")
    reason: Reason = Field("", description="cause; required")
    champion: Count | None = Field(
        None, exclude_if=is_absent, description="ordinal of the champion that it is to go back from; any other one refuses it; absent: any"
    )


class ModelGateApplied(ModelRequest, type="trainhouse.model.gate-applied.v1", public_input=True):
    """Request that a model has another gate from now on."""

    gate: ModelGate = Field(description="gate as it shall be")
    replaces: Count | None = Field(
        None, exclude_if=is_absent, description="version of the gate that the change was made from, 0: none; any other one refuses it"
    )
    text: str = Field("", max_length=MOST_GATE_CHARS, description="file as it was written")
    reason: Reason = ""


class ModelEmergencyReview(ModelRequest, type="trainhouse.model.emergency-review.v1", public_input=True):
    """Request that counts an emergency promotion as reviewed, by another person than who made it."""

    version: Selector = Field(description="version that was promoted: its ordinal or semver")
    reason: Reason = ""


class ModelDescribed(ModelRequest, type="trainhouse.model.described.v1", public_input=True):
    """Request that texts about a model, or a version of it, are so from now on; a model that is not there is made, without a version.

    Nothing is decided by them.
    """

    version: Selector | None = Field(None, exclude_if=is_absent, description="version: its ordinal or semver; absent: the model itself")
    notes: Notes | None = Field(None, exclude_if=is_absent, description="text for people; absent: as it was")
    tags: dict[Label, TagText] = Field(default_factory=dict, max_length=MOST_TAGS, description="texts by name, added or replaced")
    remove_tags: tuple[Label, ...] = Field((), max_length=MOST_TAGS, description="names of tags that are removed")
    alias: Label | None = Field(
        None, exclude_if=is_absent, description="another name of the version, `champion` aside; without a version it names none any more"
    )
    create: bool = Field(False, description="whether the model must be new")


MODEL_REQUESTS: Final[tuple[type[ModelRequest], ...]] = (
    ModelRegistered,
    ModelEvaluated,
    ModelCompared,
    ModelEvaluationRequested,
    ModelApproved,
    ModelRejected,
    ModelPromotionRequested,
    ModelArchiveRequested,
    ModelRollbackRequested,
    ModelGateApplied,
    ModelEmergencyReview,
    ModelDescribed,
)
