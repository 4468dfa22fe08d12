"""Making of a version's content from a job's checkpoint and local files, or of files of the store alone, and reading of one.

Holds: a content is stored last, once its checkpoint is pinned and its files are there, so that what was cut off shows nowhere and goes on
when it is begun again; the same parts give the same hash. Nothing is stored of a commit that is damaged, of another project's job, or
with a file that is seen to run code when it is loaded.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from trainhouse.checkpointing.artifacts.artifact_store import ArtifactStore, HashedStore
from trainhouse.checkpointing.chain.chunks import ChunkStore, prefix_of
from trainhouse.checkpointing.chain.commits import commit_key
from trainhouse.checkpointing.chain.manifest import Manifest, decode
from trainhouse.checkpointing.chain.model_pins import keep_for_model, model_tag_key, pinned_body, pinned_manifest
from trainhouse.checkpointing.chain.restore_candidates import checkpoint_named
from trainhouse.checkpointing.errors import DamagedError, NoArtifactError, NoCheckpointError, ObjectMissingError
from trainhouse.checkpointing.lease.lease_facts import owner_of
from trainhouse.checkpointing.models.pickled_files import check_no_pickle
from trainhouse.checkpointing.stores.object_store import ObjectStore, exists, get_or_none
from trainhouse.checkpointing.stores.stored_file import StoredFile
from trainhouse.events.model.artifact import OF_MODEL_CONTENT, ArtifactError, ArtifactFile, ArtifactManifest
from trainhouse.events.model.artifact_keys import object_key, reference_key
from trainhouse.events.model.model_content import ModelContent, ModelContentError, check_files, content_key, parse_content, pin_key
from trainhouse.events.model.resume_ref import ResumeFrom

KIND: Final = "model-files"
"""Kind of the artifact that holds a version's files."""
_BESIDE: Final = "weights come from the checkpoint: leave it out, and write the rest as JSON, safetensors or text"
_ALONE: Final = (
    "log the model again in a format without one, such as skops for scikit-learn, ONNX, safetensors, or a `python_model` that is the path "
    "of a program, or register a job's checkpoint"
)


@dataclass(frozen=True)
class VersionParts:
    """Parts of a version that its checkpoint does not have. `files`: local files by their paths in the version; the other fields are those
    of `ModelContent`."""

    files: Mapping[str, Path] = field(default_factory=dict)
    input_schema: Mapping[str, Any] | None = None
    output_schema: Mapping[str, Any] | None = None
    framework: str | None = None
    code: str | None = None
    datasets: tuple[str, ...] = ()
    licence: str | None = None
    notes: str = ""


NO_PARTS: Final = VersionParts()


@dataclass(frozen=True)
class PreparedVersion:
    """A content that is in the store, with its hash."""

    sha256: str
    content: ModelContent


def prepare_version(
    objects: HashedStore, project: str, which: ResumeFrom, parts: VersionParts, checks_bytes: bool = True
) -> PreparedVersion:
    """Stores the content of a version: of the checkpoint that `which` names, of a job of this project, with these parts. Blocks.

    `checks_bytes`: reads every chunk and compares it with its hash; else only looks whether each is there at its size. The same call again
    stores nothing new. Raises NoCheckpointError, DamagedError, InvalidStateError (a part that no version has), ModelContentError,
    ArtifactError.
    """
    job_id = str(which.job_id)
    _check_owner(objects, project, job_id)
    manifest, body = _checkpoint(objects, which)
    _check_chunks(objects, manifest, checks_bytes)
    artifact = _described(parts.files)
    content = _content(project, manifest, body, artifact, parts)
    sha256 = content.sha256()
    if artifact is not None:
        ArtifactStore(objects, project).refer(parts.files, artifact, f"{OF_MODEL_CONTENT}{sha256}")
    keep_for_model(objects, project, sha256, manifest, body)
    _store(objects, project, content)
    if not exists(objects, pin_key(project, job_id, manifest.commit, sha256)):
        keep_for_model(objects, project, sha256, manifest, body)
    return PreparedVersion(sha256, content)


def prepare_files(
    objects: HashedStore, project: str, job_id: str, files: Sequence[ArtifactFile], parts: VersionParts = NO_PARTS
) -> PreparedVersion:
    """Stores the content of a version that is files alone, which the project has in the store already; none is copied. Blocks.

    `job_id`: run that made them. The same call again stores nothing new. Raises InvalidStateError (a pickle), ModelContentError,
    ArtifactError (no such path, or a file that is not there), DamagedError.
    """
    if not files:
        raise ModelContentError(f"{job_id} has no files, of which a version would be made; log them first")
    check_files([(file.path, file.bytes) for file in files], are_alone=True)
    artifact = ArtifactManifest.of(KIND, files)
    for file in artifact.files:
        try:
            with StoredFile(objects, object_key(project, file.sha256), file.bytes) as opened:
                check_no_pickle(file.path, opened, _ALONE)
        except ObjectMissingError as error:
            raise ArtifactError(f"{file.path} is not in the store; log it again") from error
    content = _content(project, _NoCheckpoint(job_id), None, artifact, parts)
    sha256 = content.sha256()
    ArtifactStore(objects, project).refer_stored(artifact, f"{OF_MODEL_CONTENT}{sha256}")
    _store(objects, project, content)
    return PreparedVersion(sha256, content)


def _store(objects: ObjectStore, project: str, content: ModelContent) -> None:
    """Stores a content under its hash, once all that it names is kept. Raises DamagedError."""
    sha256 = content.sha256()
    key = content_key(project, sha256)
    if not objects.put_if_absent(key, content.canonical_json()):
        raise DamagedError(f"{objects.uri(key)} has other bytes than its name says; remove it, and register the version again", sha256)


def check_version(objects: HashedStore, project: str, sha256: str) -> ModelContent:
    """The content with this hash, all that it names being there and kept: any client may store one by itself. Blocks.

    Looks whether chunks and files are there at their sizes, without reading them; sets the pin anew where it is not there. Raises
    NoCheckpointError (another project's job, or a checkpoint that is gone), DamagedError, InvalidStateError.
    """
    content = read_content(objects, project, sha256)
    job_id = str(content.job_id)
    if content.checkpoint is None:
        _check_files(objects, project, sha256, content)
        return content
    _check_owner(objects, project, job_id)
    manifest = pinned_manifest(objects, project, job_id, content.commit, sha256, content.checkpoint)
    if (manifest.step, manifest.bytes_total) != (content.step, content.bytes):
        raise DamagedError(f"the content {sha256[:12]}… says another step or size than {job_id}@{content.commit} has", sha256)
    _check_chunks(objects, manifest, reads=False)
    _check_files(objects, project, sha256, content)
    pin = pin_key(project, job_id, content.commit, sha256)
    if not exists(objects, pin) or not exists(objects, model_tag_key(job_id, sha256)):
        body = pinned_body(objects, project, job_id, content.commit, sha256, content.checkpoint)
        keep_for_model(objects, project, sha256, manifest, body)
    return content


def read_content(objects: ObjectStore, project: str, sha256: str) -> ModelContent:
    """The content with this hash. Blocks. Raises DamagedError where it is missing, another, or not written as one."""
    key = content_key(project, sha256)
    body = get_or_none(objects, key)
    if body is None:
        raise DamagedError(f"{objects.uri(key)} is missing; register the version again from its job", sha256)
    if hashlib.sha256(body).hexdigest() != sha256:
        raise DamagedError(f"{objects.uri(key)} has other bytes than its name says", sha256)
    try:
        content = parse_content(body, objects.uri(key))
    except ModelContentError as error:
        raise DamagedError(str(error), sha256) from error
    if content.project != project:
        raise DamagedError(f"{objects.uri(key)} says that it is of project {content.project}", sha256)
    return content


def _check_owner(objects: ObjectStore, project: str, job_id: str) -> None:
    """Raises NoCheckpointError, alike for a job of another project and one that is not known."""
    owner = owner_of(objects, job_id)
    if owner is None or owner.project != project:
        raise NoCheckpointError(
            f"no job {job_id} of project {project!r} has saved a checkpoint, of which a version is made; a model and the job that trained "
            "it are of one project: give --project"
        )


def _checkpoint(objects: ObjectStore, which: ResumeFrom) -> tuple[Manifest, bytes]:
    """The checkpoint that is named, and the bytes of its manifest in the chain."""
    try:
        commit = checkpoint_named(objects, which).commit
        key = commit_key(str(which.job_id), commit)
        body = objects.get(key)
    except (NoCheckpointError, ObjectMissingError) as error:
        raise NoCheckpointError(f"{which}: no such readable checkpoint; `trainhouse checkpoints {which.job_id}` lists them") from error
    entry = decode(body, objects.uri(key))
    if not isinstance(entry, Manifest) or (entry.job_id, entry.commit) != (which.job_id, commit):
        raise NoCheckpointError(f"{which}: the checkpoint was given up just now; name another one")
    return entry, body


def _check_chunks(objects: ObjectStore, manifest: Manifest, reads: bool) -> None:
    """Raises DamagedError that names a chunk which is missing, cut or changed."""
    distinct = list({chunk.sha256: chunk for chunk in manifest.chunks}.values())
    chunks = ChunkStore(objects, manifest.job_id)
    problems = chunks.verify(distinct, prefix_of(manifest)) if reads else chunks.missing(distinct, prefix_of(manifest))
    if problems:
        raise DamagedError(
            f"{manifest.job_id}@{manifest.commit} is damaged: {problems[0]}{f', and {len(problems) - 1} more' * (len(problems) > 1)}; "
            f"nothing is registered: name another checkpoint, `trainhouse checkpoint verify {manifest.job_id}` shows which are sound",
            problems[0].sha256,
        )


def _described(files: Mapping[str, Path]) -> ArtifactManifest | None:
    if not files:
        return None
    check_files([(path, file.stat().st_size) for path, file in files.items()])
    for path, file in files.items():
        with file.open("rb") as opened:
            check_no_pickle(path, opened, _BESIDE)
    return ArtifactManifest.of(KIND, ArtifactStore.described(files))


def _check_files(objects: HashedStore, project: str, sha256: str, content: ModelContent) -> None:
    """Raises DamagedError where files that a content names are not there, or nothing keeps them."""
    if not content.files and content.artifact is None:
        return
    artifacts = ArtifactStore(objects, project)
    try:
        found = artifacts.manifest(content.artifact or "")
    except NoArtifactError as error:
        raise DamagedError(
            f"the content {sha256[:12]}… names files of an artifact that is missing; register the version again", sha256
        ) from error
    if found.files != content.files or not all(map(artifacts.has, found.files)):
        raise DamagedError(f"the content {sha256[:12]}… names files that are not in the store; register the version again", sha256)
    objects.put(reference_key(project, found.sha256(), f"{OF_MODEL_CONTENT}{sha256}"), b"")


@dataclass(frozen=True)
class _NoCheckpoint:
    """In place of a checkpoint's manifest, where files are all of a version."""

    job_id: str
    commit: int = 0
    step: int = 0
    bytes_total: int = 0


def _content(
    project: str, manifest: Manifest | _NoCheckpoint, body: bytes | None, artifact: ArtifactManifest | None, parts: VersionParts
) -> ModelContent:
    try:
        return ModelContent.model_validate(
            {
                "project": project,
                "job_id": manifest.job_id,
                "commit": manifest.commit,
                "step": manifest.step,
                "checkpoint": hashlib.sha256(body).hexdigest() if body is not None else None,
                "bytes": manifest.bytes_total,
                "artifact": artifact.sha256() if artifact is not None else None,
                "files": artifact.files if artifact is not None else (),
                "input_schema": _plain(parts.input_schema),
                "output_schema": _plain(parts.output_schema),
                "framework": parts.framework,
                "code": parts.code,
                "datasets": tuple(sorted(set(parts.datasets))),
                "licence": parts.licence,
                "notes": parts.notes,
            }
        )
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ModelContentError(f"{where}: {first['msg'].removeprefix('Value error, ')}") from error


def _plain(schema: Mapping[str, Any] | None) -> Any:
    """A schema as JSON gives it, so that tuples and lists hash alike. Raises ModelContentError."""
    if schema is None:
        return None
    try:
        return json.loads(json.dumps(schema, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ModelContentError(f"the schema is none that JSON holds: {error}") from error
