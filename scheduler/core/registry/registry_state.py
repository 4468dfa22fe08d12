"""State of the registry: models with their versions, evidence and stages; registrations and stage records that wait for the store.

Holds: a model and a version never change in place, so that a fork shares them; a dump is canonical JSON. At most one
version of a model is champion: the model names it.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import orjson

from trainhouse.events import (
    GateCondition,
    ModelCompared,
    ModelEvaluated,
    ModelGate,
    ModelRegistered,
    ModelStage,
    VersionFacts,
    VersionStatus,
)
from trainhouse.events.model.bounds import read_stored
from trainhouse.events.model.ids import EventId
from trainhouse.events.model.model_decisions import MOST_STATUS_VERSIONS, ModelStatus
from trainhouse.events.model.model_gate import DEFAULT_GATE
from trainhouse.events.model.model_key import model_key
from trainhouse.scheduler.core.intake.request_ids import AskedIds
from trainhouse.scheduler.core.protocol.snapshot_steps import REGISTRY_FORMATS, parse

FORMAT: Final = REGISTRY_FORMATS.newest
MAX_MODELS: Final = 10_000
MAX_VERSIONS: Final = 10_000
MAX_EVALUATIONS: Final = 256
"""Of one version; likewise of comparisons."""
MAX_RESULTS_ALIKE: Final = 4
"""Results of one version, suite, dataset and split that are kept here, the newest; history has all of them."""
MAX_MODEL_BYTES: Final = 8 << 20
"""Of what is kept of one model, as JSON; in memory it is about ten times as much."""
MAX_PROJECT_BYTES: Final = 16 << 20
MAX_STATE_BYTES: Final = 128 << 20
MAX_JOBS: Final = 64
"""Jobs that evaluate one version which are kept here, the newest."""
MAX_APPROVERS: Final = 64
MAX_HELD: Final = 1_000
MAX_STAGES_WAITING: Final = 10_000
PROJECT_SHARE: Final = 10
"""A project has at most one part in so many of what there may be of models, held registrations and waiting stages."""
MAX_STAGES_OF_MODEL: Final = 500
"""Of those that wait: one model whose chain is broken leaves the others theirs."""
MAX_PAST: Final = 256
HELD_FOR_MS: Final = 600_000


@dataclass(frozen=True, slots=True)
class StagedVersion:
    """A version in a stage record."""

    version: int
    semver: str
    content: str


@dataclass(frozen=True, slots=True)
class Approval:
    """A person's word on a version."""

    user: str
    approved: bool


@dataclass(frozen=True, slots=True)
class EvaluationJob:
    """A job that evaluates a version, by the gate. `attempt`: number of the try among those of the version; `evaluation_id`: the result;
    `reason`: why there is none. It runs while it has neither."""

    suite: str
    attempt: int
    job_id: str
    spec_sha256: str
    evaluation_id: str = ""
    reason: str = ""

    @property
    def is_running(self) -> bool:
        """Whether its end was not observed yet."""
        return not (self.evaluation_id or self.reason)

    def as_row(self) -> dict[str, str]:
        """As answers have it: a result, or the reason why there is none, once it has ended."""
        return {"suite": self.suite, "job_id": self.job_id, "evaluation_id": self.evaluation_id, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class RunningEvaluation:
    """A job that evaluates a version and whose end was not observed yet."""

    project: str
    name: str
    version: int
    job: EvaluationJob


@dataclass(frozen=True)
class Version:
    """One version. `was_champion`: at any time. `promoted_by`: last; `emergency`: that one skipped approvals, and awaits review.
    `withdrawn`: a person archived it, so that no rollback goes to it."""

    version: int
    semver: str
    facts: VersionFacts
    stage: ModelStage
    registered_by: str
    registered_at_ms: int
    evaluations: tuple[ModelEvaluated, ...] = ()
    comparisons: tuple[ModelCompared, ...] = ()
    approvals: tuple[Approval, ...] = ()
    was_champion: bool = False
    emergency: bool = False
    promoted_by: str = ""
    notes: str = ""
    tags: tuple[tuple[str, str], ...] = ()
    withdrawn: bool = False
    jobs: tuple[EvaluationJob, ...] = ()

    @cached_property
    def evidence(self) -> str:
        """Hash of all evidence that there is: the content, and each evaluation and comparison of it."""
        parts = [
            self.facts.content,
            *sorted(f"{each.evaluation_id} {each.document}" for each in self.evaluations),
            *sorted(f"{each.evaluation_id} {hashlib.sha256(each.model_dump_json().encode()).hexdigest()}" for each in self.comparisons),
        ]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    @cached_property
    def size_bytes(self) -> int:
        """Size of what is kept of it, as JSON without the fields of its own."""
        parts = (self.facts, *self.evaluations, *self.comparisons)
        jobs_bytes = sum(len(job.suite) + len(job.job_id) + len(job.evaluation_id) + len(job.reason.encode()) + 64 for job in self.jobs)
        return sum(len(part.model_dump_json()) for part in parts) + _texts_bytes(self.notes, self.tags) + jobs_bytes

    def last_job(self, suite: str) -> EvaluationJob | None:
        """The newest job that evaluates it by a suite; None if none ever did."""
        return next((job for job in reversed(self.jobs) if job.suite == suite), None)

    @property
    def approvers(self) -> tuple[str, ...]:
        """People whose approval counts."""
        return tuple(sorted(each.user for each in self.approvals if each.approved))

    @property
    def rejecters(self) -> tuple[str, ...]:
        """People whose rejection counts."""
        return tuple(sorted(each.user for each in self.approvals if not each.approved))

    @property
    def staged(self) -> StagedVersion:
        """As a stage record has it."""
        return StagedVersion(self.version, self.semver, self.facts.content)

    def status(self) -> VersionStatus:
        """As the model's status has it."""
        return VersionStatus(
            version=self.version,
            semver=self.semver,
            content=self.facts.content,
            stage=self.stage,
            job_id=self.facts.job_id,
            commit=self.facts.commit,
            registered_at_ms=self.registered_at_ms,
            emergency=self.emergency,
        )


@dataclass(frozen=True)
class ModelEntry:
    """One model. `versions` are in order, the first has ordinal 1; `past`: champions before this one, the last last."""

    project: str
    name: str
    number: int = 0
    versions: tuple[Version, ...] = ()
    champion: int | None = None
    past: tuple[int, ...] = ()
    gate: ModelGate = DEFAULT_GATE
    gate_version: int = 0
    notes: str = ""
    tags: tuple[tuple[str, str], ...] = ()
    aliases: tuple[tuple[str, int], ...] = ()

    @property
    def key(self) -> str:
        """Key of its records."""
        return model_key(self.project, self.name)

    @cached_property
    def size_bytes(self) -> int:
        """Size of what is kept of it, as JSON without the fields of its own."""
        versions_bytes = sum(version.size_bytes for version in self.versions)
        return versions_bytes + len(self.gate.model_dump_json()) + _texts_bytes(self.notes, self.tags)

    def get(self, version: int | None) -> Version | None:
        """A version by its ordinal."""
        return self.versions[version - 1] if version is not None and 1 <= version <= len(self.versions) else None

    def find(self, selector: str) -> Version | None:
        """A version by its ordinal, its semver or `champion`."""
        if selector == "champion":
            return self.get(self.champion)
        if selector.isascii() and selector.isdecimal():
            return self.get(int(selector))
        return next((version for version in self.versions if version.semver == selector), None)

    def of_content(self, content: str) -> Version | None:
        """The newest version with a content: one that was archived may have been registered again."""
        return next((version for version in reversed(self.versions) if version.facts.content == content), None)

    def put(self, version: Version, **changes: Any) -> "ModelEntry":
        """With a version added or replaced, and other changes."""
        at = version.version - 1
        return replace(self, versions=(*self.versions[:at], version, *self.versions[at + 1 :]), **changes)

    def staging(self) -> Version | None:
        """The newest version in staging."""
        return next((version for version in reversed(self.versions) if version.stage is ModelStage.STAGING), None)

    def status(self, now_ms: int) -> ModelStatus:
        """Its whole status, with its newest versions."""
        champion = self.get(self.champion)
        newest = self.versions[-MOST_STATUS_VERSIONS:]
        if champion is not None and champion not in newest:
            newest = (champion, *newest[1:])
        return ModelStatus(
            project=self.project,
            name=self.name,
            number=self.number,
            champion=champion.status() if champion is not None else None,
            versions=tuple(version.status() for version in newest),
            version_count=len(self.versions),
            gate_version=self.gate_version,
            gate=self.gate,
            updated_at_ms=now_ms,
        )


@dataclass(frozen=True, slots=True)
class HeldRegistration:
    """A registration whose content was not looked at yet."""

    request_id: EventId
    registered: ModelRegistered
    since_ms: int
    digest: str = ""

    @property
    def key(self) -> str:
        """Key while it waits."""
        return held_key(self.digest, self.request_id)


@dataclass(frozen=True, slots=True)
class StageChange:
    """One change of a model's stages, and the stages after it, as its chain in the store gets it. `kind`: as `StageRecord` has it."""

    project: str
    name: str
    decision: int
    kind: str
    subject: StagedVersion
    champion: StagedVersion | None
    staging: StagedVersion | None
    cause: str
    at_ms: int

    @property
    def id(self) -> str:
        """Name of the record while it waits."""
        return stage_id(self.project, self.name, self.decision)


@dataclass(frozen=True, slots=True)
class ProjectUse:
    """Number and size of the models of one project."""

    models: int = 0
    size_bytes: int = 0


@dataclass(slots=True)
class RegistryState:
    """`held` is in order of arrival; `stages`: records that the store's chains do not have yet, in order; `asked`: ids of requests;
    `used`, by project, and `running`, by job, follow from the models."""

    partition: int
    models: dict[str, ModelEntry] = field(default_factory=dict)
    held: dict[str, HeldRegistration] = field(default_factory=dict)
    stages: dict[str, StageChange] = field(default_factory=dict)
    asked: AskedIds = field(default_factory=AskedIds)
    used: dict[str, ProjectUse] = field(default_factory=dict)
    running: dict[str, RunningEvaluation] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.models and not self.used:
            for model in self.models.values():
                self._count(model, None)
                for version in model.versions:
                    self.note_jobs(model, version)

    def put(self, model: ModelEntry) -> None:
        """Adds or replaces a model."""
        self._count(model, self.models.get(model.key))
        self.models[model.key] = model

    def _count(self, model: ModelEntry, before: ModelEntry | None) -> None:
        use = self.used.get(model.project, ProjectUse())
        grown_bytes = model.size_bytes - (before.size_bytes if before is not None else 0)
        self.used[model.project] = ProjectUse(use.models + (before is None), use.size_bytes + grown_bytes)

    def note_jobs(self, model: ModelEntry, version: Version) -> None:
        """Notes which of a version's jobs run."""
        for job in version.jobs:
            if job.is_running:
                self.running[job.job_id] = RunningEvaluation(model.project, model.name, version.version, job)
            else:
                self.running.pop(job.job_id, None)

    def fork(self) -> "RegistryState":
        """A copy to decide on."""
        return self._with(self.asked.fork())

    def copy(self) -> "RegistryState":
        """A copy that keeps what is here now, whatever is folded into this one."""
        return self._with(self.asked.copy())

    def _with(self, asked: AskedIds) -> "RegistryState":
        parts = dict(self.models), dict(self.held), dict(self.stages), asked, dict(self.used), dict(self.running)
        return RegistryState(self.partition, *parts)

    def model(self, project: str, name: str) -> ModelEntry | None:
        """A model by its name."""
        return self.models.get(model_key(project, name))

    def entry(self, project: str, name: str) -> ModelEntry:
        """The same; a new one where there is none."""
        return self.model(project, name) or ModelEntry(project, name)


def _texts_bytes(notes: str, tags: tuple[tuple[str, str], ...]) -> int:
    return len(notes.encode()) + sum(len(key) + len(value.encode()) for key, value in tags)


def held_key(digest: str, request_id: EventId) -> str:
    """Key of a registration that waits: two senders may use one id."""
    return digest or str(request_id)


def stage_id(project: str, name: str, number: int) -> str:
    """Key of a stage record that waits."""
    return f"{model_key(project, name)}@{number}"


def capture_registry(state: RegistryState) -> Callable[[], bytes]:
    """Returns a function that gives the canonical JSON of the state as it is now."""
    kept = state.copy()
    return lambda: _written(kept)


def load_registry(data: bytes) -> RegistryState:
    """Reads it back. Raises BrokenInvariant on a format that no step leads from."""
    raw = REGISTRY_FORMATS.lifted(parse(data))
    models = [_model(each) for each in raw["models"]]
    held = [
        HeldRegistration(EventId(i), read_stored(ModelRegistered, each, "ignore"), since, digest) for i, each, since, digest in raw["held"]
    ]
    stages = [_stage(each) for each in raw["stages"]]
    return RegistryState(
        raw["partition"],
        {model.key: model for model in models},
        {each.key: each for each in held},
        {each.id: each for each in stages},
        AskedIds.load(raw["asked"]),
    )


def _written(state: RegistryState) -> bytes:
    return orjson.dumps(
        {
            "format": FORMAT,
            "partition": state.partition,
            "models": [_model_json(state.models[key]) for key in sorted(state.models)],
            "held": [[str(each.request_id), _json(each.registered), each.since_ms, each.digest] for each in state.held.values()],
            "stages": [_stage_json(each) for each in state.stages.values()],
            "asked": state.asked.dump(),
        },
        option=orjson.OPT_SORT_KEYS,
    )


def _json(part: Any) -> Any:
    return orjson.Fragment(orjson.dumps(part.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS))


def _model_json(model: ModelEntry) -> dict[str, Any]:
    return {
        "project": model.project,
        "name": model.name,
        "number": model.number,
        "champion": model.champion,
        "past": model.past,
        "gate": _json(model.gate),
        "gate_version": model.gate_version,
        "notes": model.notes,
        "tags": model.tags,
        "aliases": model.aliases,
        "versions": [_version_json(version) for version in model.versions],
    }


def _version_json(version: Version) -> dict[str, Any]:
    jobs = {"jobs": [_job_json(job) for job in version.jobs]} if version.jobs else {}  # of level 3; before it there are none
    return jobs | {
        "version": version.version,
        "semver": version.semver,
        "facts": _json(version.facts),
        "stage": version.stage,
        "registered_by": version.registered_by,
        "registered_at_ms": version.registered_at_ms,
        "evaluations": [_json(each) for each in version.evaluations],
        "comparisons": [_json(each) for each in version.comparisons],
        "approvals": [[each.user, each.approved] for each in version.approvals],
        "was_champion": version.was_champion,
        "emergency": version.emergency,
        "promoted_by": version.promoted_by,
        "notes": version.notes,
        "tags": version.tags,
        "withdrawn": version.withdrawn,
    }


def _job_json(job: EvaluationJob) -> list[Any]:
    return [job.suite, job.attempt, job.job_id, job.spec_sha256, job.evaluation_id, job.reason]


def _stage_json(change: StageChange) -> list[Any]:
    places = [[each.version, each.semver, each.content] if each else None for each in (change.subject, change.champion, change.staging)]
    return [change.project, change.name, change.decision, change.kind, *places, change.cause, change.at_ms]


def _stage(raw: list[Any]) -> StageChange:
    project, name, decision, kind, subject, champion, staging, cause, at_ms = raw
    found = [StagedVersion(*each) if each else None for each in (champion, staging)]
    return StageChange(project, name, decision, kind, StagedVersion(*subject), found[0], found[1], cause, at_ms)


def _model(raw: dict[str, Any]) -> ModelEntry:
    return ModelEntry(
        raw["project"],
        raw["name"],
        raw["number"],
        tuple(_version(each) for each in raw["versions"]),
        raw["champion"],
        tuple(raw["past"]),
        read_stored(ModelGate, raw["gate"], "ignore"),
        raw["gate_version"],
        raw["notes"],
        _tags(raw["tags"]),
        tuple((alias, version) for alias, version in raw["aliases"]),
    )


def _version(raw: dict[str, Any]) -> Version:
    return Version(
        raw["version"],
        raw["semver"],
        read_stored(VersionFacts, raw["facts"], "ignore"),
        ModelStage(raw["stage"]),
        raw["registered_by"],
        raw["registered_at_ms"],
        tuple(read_stored(ModelEvaluated, each, "ignore") for each in raw["evaluations"]),
        tuple(read_stored(ModelCompared, each, "ignore") for each in raw["comparisons"]),
        tuple(Approval(user, approved) for user, approved in raw["approvals"]),
        raw["was_champion"],
        raw["emergency"],
        raw["promoted_by"],
        raw["notes"],
        _tags(raw["tags"]),
        raw["withdrawn"],
        tuple(EvaluationJob(*job) for job in raw.get("jobs", ())),
    )


def _tags(raw: list[list[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((key, value) for key, value in raw)


def unmet(conditions: Iterable[GateCondition]) -> list[GateCondition]:
    """Conditions that were not met."""
    return [each for each in conditions if not each.met]
