"""The registry's port to the object store: contents of versions, and chains of stages; the scheduler knows nothing of checkpointing."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import orjson

from trainhouse.events import ModelEvaluated, ModelRegistered, VersionFacts
from trainhouse.scheduler.core.registry.evaluation_jobs import EvaluatedJob
from trainhouse.scheduler.core.registry.job_registrations import RegisteredCheckpoint
from trainhouse.scheduler.core.registry.registry_state import StageChange
from trainhouse.scheduler.stream.model_interfaces import ContentRefusedError

if TYPE_CHECKING:
    from trainhouse.checkpointing.stores.s3 import S3ObjectStore
    from trainhouse.events.model.model_content import ModelContent


MOST_GET_BYTES: Final = 64 << 20
"""Of one object: ranks write what is read here, into the memory of the process that admits all jobs."""


class ObjectModelStore:
    """Opens the store at the first question: intake needs none before."""

    def __init__(self, objects: "S3ObjectStore | None" = None) -> None:
        self._objects = objects
        self._known: dict[tuple[str, str], int] = {}

    @property
    def objects(self) -> "S3ObjectStore":
        """The store that settings name."""
        if self._objects is None:
            from trainhouse.checkpointing.settings import StoreSettings
            from trainhouse.checkpointing.stores.s3 import S3ObjectStore

            self._objects = S3ObjectStore(StoreSettings(), MOST_GET_BYTES)
        return self._objects

    def prepare(self, checkpoint: RegisteredCheckpoint) -> str:
        """Stores the content of a version that a checkpoint is, as `trainhouse models register` does; returns its hash."""
        from trainhouse.checkpointing.models.version_content import VersionParts, prepare_version
        from trainhouse.events.model.resume_ref import parse_resume_from

        with _refusals():
            which = parse_resume_from(f"{checkpoint.job_id}@{checkpoint.commit}")
            parts = VersionParts(code=checkpoint.code, datasets=checkpoint.data)
            return prepare_version(self.objects, checkpoint.project, which, parts, checks_bytes=False).sha256

    def facts(self, registered: ModelRegistered) -> VersionFacts:
        """Facts of a content, which is made of the job's checkpoint where the registration names none."""
        from trainhouse.checkpointing.models.version_content import VersionParts, check_version, prepare_version
        from trainhouse.events.model.resume_ref import parse_resume_from

        project = registered.project
        with _refusals():
            if registered.content is not None:
                content = check_version(self.objects, project, registered.content)
                _check_named(registered, content)
                return facts_of(content, registered.content, registered.splits)
            commit = "" if registered.commit is None else f"@{registered.commit}"
            which = parse_resume_from(f"{registered.job_id}{commit}")
            prepared = prepare_version(self.objects, project, which, VersionParts(), checks_bytes=False)
            return facts_of(prepared.content, prepared.sha256, registered.splits)

    def evaluated(self, job: EvaluatedJob) -> ModelEvaluated:
        """The result that a job stored as an artifact, and which is kept from now on for as long as the version's content is there."""
        from trainhouse.checkpointing.artifacts.artifact_store import ArtifactStore, hashed_content
        from trainhouse.events.model.artifact import BY_JOB, OF_MODEL_CONTENT
        from trainhouse.events.model.artifact_keys import object_key, reference_key
        from trainhouse.workers.evaluation.errors import InvalidEvaluationError
        from trainhouse.workers.evaluation.result import MOST_RESULT_BYTES, RESULT_NAME, artifact_name, read_result
        from trainhouse.workers.evaluation.result_event import evaluation_event

        name, artifacts = artifact_name(job.suite), ArtifactStore(self.objects, job.project)
        with _refusals():
            found = [each for each in artifacts.versions(name) if f"{BY_JOB}{job.job_id}" in each.by]
            if not found:
                raise ContentRefusedError(f"it is SUCCEEDED, and stored no artifact {name}: look at its output (`trainhouse logs`)")
            if len(found) > 1:
                raise ContentRefusedError(
                    f"{len(found)} versions of {name} are named by job {job.job_id}, which stores one: whose they are is not known"
                )
            (stored,) = found
            manifest = artifacts.manifest(stored.sha256)
            file = next((each for each in manifest.files if each.path == RESULT_NAME), None)
            if file is None or file.bytes > MOST_RESULT_BYTES:
                raise ContentRefusedError(f"{stored} has no {RESULT_NAME} of at most {MOST_RESULT_BYTES} bytes")
            body = b"".join(hashed_content(self.objects, object_key(job.project, file.sha256), file.sha256, file.bytes, file.path))
            try:
                result = read_result(body, str(stored))
            except InvalidEvaluationError as error:
                raise ContentRefusedError(str(error)) from error
            if result.sha256 != file.sha256:
                raise ContentRefusedError(f"{stored}: {RESULT_NAME} is not written as a result is: sorted JSON, each field once")
            self.objects.put(reference_key(job.project, manifest.sha256(), f"{OF_MODEL_CONTENT}{job.content}"), b"")
            return evaluation_event(result, job.project, job.name, job.ended_at_ms, job.user[:128] or "unknown", job.job_id)

    def append(self, change: StageChange) -> None:
        """Appends a change of stages."""
        from trainhouse.checkpointing.models import stage_chain

        record = stage_chain.StageRecord.model_validate(
            {
                "project": change.project,
                "name": change.name,
                "decision": change.decision,
                "kind": change.kind,
                "subject": _staged(change.subject),
                "champion": _staged(change.champion),
                "staging": _staged(change.staging),
                "cause": change.cause[:128],
                "at_ms": change.at_ms,
            }
        )
        place = change.project, change.name
        self._known[place] = stage_chain.append(self.objects, record, self._known.get(place, -1))


@contextmanager
def _refusals() -> Iterator[None]:
    """Makes a refusal of what no later try would do; what the store may do later is raised as it is: so is its own refusal, since keys are
    changed and rights are mended."""
    from trainhouse.checkpointing.errors import CheckpointError, ObjectStoreRefusedError, RetryableError
    from trainhouse.events.model.artifact import ArtifactError
    from trainhouse.events.model.model_content import ModelContentError

    try:
        yield
    except (RetryableError, ObjectStoreRefusedError):
        raise
    except (CheckpointError, ModelContentError, ArtifactError, ValueError) as error:
        raise ContentRefusedError(str(error)) from error


def model_store() -> ObjectModelStore:
    """The store that settings name."""
    return ObjectModelStore()


def facts_of(content: "ModelContent", sha256: str, splits: tuple[str, ...] = ()) -> VersionFacts:
    """Facts of a content; who trained it is not in it."""
    schemas = {"input": content.input_schema, "output": content.output_schema}
    has_schema = content.input_schema is not None or content.output_schema is not None
    schema = hashlib.sha256(orjson.dumps(schemas, option=orjson.OPT_SORT_KEYS)).hexdigest() if has_schema else None
    known = {"code": content.code is not None, "data": bool(content.datasets)}
    return VersionFacts(
        content=sha256,
        job_id=content.job_id,
        commit=content.commit,
        project=content.project,
        schema_sha256=schema,
        code_sha256=content.code,
        data=content.datasets,
        splits=splits,
        framework=content.framework or "",
        size_bytes=content.bytes + sum(file.bytes for file in content.files),
        missing=tuple(name for name, is_known in known.items() if not is_known),
    )


def _check_named(registered: ModelRegistered, content: "ModelContent") -> None:
    """Raises ContentRefusedError where the registration names another job or commit than its content."""
    for what, named, found in (("job", registered.job_id, content.job_id), ("commit", registered.commit, content.commit)):
        if named is not None and named != found:
            raise ContentRefusedError(f"the registration names {what} {named}, and its content is of {what} {found}: leave one of them out")


def _staged(version: object) -> dict[str, object] | None:
    if version is None:
        return None
    return {name: getattr(version, name) for name in ("version", "semver", "content")}
