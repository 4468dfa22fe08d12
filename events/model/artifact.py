"""Artifacts: tokenizers, preprocessing, models and other files, each version a manifest whose hash is its id; and their keys in the store.

Holds: a manifest is about contents alone (no name, person, job, time or machine), so equal files have equal ids everywhere; its paths stay
below the folder that they are put into, and name different files on every file system. Objects of two projects have no prefix in common,
so that a hash says nothing of what another project has. What names a version is a key in the store, and `is_kept` the one rule of what
stays.
Never: content of a file.
"""

import builtins
import hashlib
import re
import unicodedata
from collections.abc import Collection, Iterable
from typing import Annotated, Final, Literal

import orjson
from pydantic import Field, StringConstraints, field_validator

from trainhouse.events.model.base import Event, Model
from trainhouse.events.model.bounds import ByteCount, SmallCount, TimestampMs
from trainhouse.events.model.default_project import DEFAULT_PROJECT
from trainhouse.events.model.ids import AttemptNumber, Epoch, JobId, NodeId
from trainhouse.events.model.labels import Label, Sha256
from trainhouse.events.model.version_names import NAME_PATTERN

FORMAT: Final = 1
MOST_FILES: Final = 10_000
MOST_PATH_BYTES: Final = 1024
MOST_FOLDERS: Final = 64
"""Folders that a file may be in, one inside the other."""
MOST_MANIFEST_BYTES: Final = 16 << 20
BY_JOB: Final = "job."
BY_USER: Final = "user"
"""What keeps a version under a name: a job that stored it, or a person."""
OF_DATASET: Final = "dataset."
OF_MODEL_CONTENT: Final = "model."
ROOTS: Final = (OF_DATASET, OF_MODEL_CONTENT)
"""Beginnings of references that count for as long as what they name is there."""
_REFERENCE: Final = re.compile(rf"(?P<name>{NAME_PATTERN})(?:@(?:sha256:)?(?P<sha256>[0-9a-f]{{8,64}}))?")

ArtifactName = Annotated[str, StringConstraints(max_length=128, pattern=rf"^{NAME_PATTERN}$")]
KIND_PATTERN: Final = "[a-z][a-z0-9_-]{0,31}"
ArtifactKind = Annotated[str, StringConstraints(max_length=32, pattern=rf"^{KIND_PATTERN}$")]
"""tokenizer, preprocessing, model, profile, file, or another word."""


class ArtifactError(ValueError):
    """A path, a name or a manifest that no artifact has. The message says which, and what to do."""


class ArtifactFile(Model):
    """One file of an artifact."""

    path: str = Field(min_length=1, max_length=MOST_PATH_BYTES, description="path below the artifact's folder, with / between its parts")
    bytes: ByteCount = Field(description="size of the file")
    sha256: Sha256 = Field(description="SHA-256 of the file, in hexadecimal")


class ArtifactManifest(Model):
    """The whole description of a version, stored as canonical JSON under its own hash."""

    format: int = Field(FORMAT, ge=1, le=FORMAT, description="version of this format")
    kind: ArtifactKind = Field(description="tokenizer, preprocessing, model, profile, file, or another word")
    files: tuple[ArtifactFile, ...] = Field(min_length=1, max_length=MOST_FILES, description="files, by path")

    @classmethod
    def of(cls, kind: str, files: Iterable[ArtifactFile]) -> "ArtifactManifest":
        """A manifest of these files, in whatever order they come. Raises ArtifactError, ValueError."""
        listed = sorted(files, key=lambda file: file.path)
        check_paths([file.path for file in listed])
        return cls(kind=kind, files=tuple(listed))

    @field_validator("files")
    @classmethod
    def _sorted_and_below(cls, files: tuple[ArtifactFile, ...]) -> tuple[ArtifactFile, ...]:
        paths = [file.path for file in files]
        check_paths(paths)
        if paths != sorted(paths):
            raise ArtifactError("the files of an artifact stand by their paths; sort them")
        return files

    @property
    def bytes(self) -> int:
        """Bytes of all files, those of equal files each time."""
        return sum(file.bytes for file in self.files)

    def canonical_json(self) -> builtins.bytes:
        """The bytes that are stored and hashed: sorted JSON."""
        return orjson.dumps(self.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS)

    def sha256(self) -> str:
        """Hex SHA-256 of the canonical JSON: the version's id."""
        return hashlib.sha256(self.canonical_json()).hexdigest()


def facts_of(sha256: str, manifest: ArtifactManifest | None) -> dict[str, str | int]:
    """Fields of an event that are about a version itself. `manifest`: None where it is missing, of a version that loses its name."""
    if manifest is None:
        return {"sha256": sha256, "kind": "file", "bytes": 0, "files": 0}
    return {"sha256": sha256, "kind": manifest.kind, "bytes": manifest.bytes, "files": len(manifest.files)}


def check_paths(paths: Collection[str]) -> None:
    """Raises ArtifactError where one leads out of its folder, or two would be one file on some file system, or there are none, or too
    many."""
    if not paths:
        raise ArtifactError("an artifact has at least one file; this folder has none")
    if len(paths) > MOST_FILES:
        raise ArtifactError(f"{len(paths)} files, and an artifact has {MOST_FILES} at most; pack them into one file, or store several")
    seen, folders = dict[str, str](), set[str]()
    for path in paths:
        parts = path.split("/")
        if len(parts) > MOST_FOLDERS + 1:
            raise ArtifactError(
                f"{path[:200]!r} is in {len(parts) - 1} folders, one inside the other, and may be in {MOST_FOLDERS}; pack them in one file"
            )
        if len(path.encode("utf-8", "surrogatepass")) > MOST_PATH_BYTES or any(_is_no_part(part) for part in parts):
            raise ArtifactError(
                f"{path[:200]!r} is no path of an artifact: name folders and a file below it, with / between them, of printable "
                f"characters, without . and .., in at most {MOST_PATH_BYTES} bytes"
            )
        same = _folded(path)
        if same in seen:
            raise ArtifactError(f"{seen[same]!r} and {path!r} are one file where case does not count; rename one")
        seen[same] = path
    for same, path in seen.items():
        above = same.rpartition("/")[0]
        # What is above a folder that is known was looked at with it.
        while above and above not in folders:
            if above in seen:
                raise ArtifactError(f"{seen[above]!r} is a file, and {path!r} needs a folder of that name; rename one")
            folders.add(above)
            above = above.rpartition("/")[0]


def parse_reference(text: str) -> tuple[str, str]:
    """Name and hash, or the beginning of one, of `NAME` or `NAME@[sha256:]HASH`; the hash is empty where none is given. Raises
    ArtifactError."""
    found = _REFERENCE.fullmatch(text)
    if found is None:
        raise ArtifactError(
            f"{text[:200]!r} names no artifact: write NAME or NAME@sha256:HASH, NAME of letters, digits, '.', '_' and '-', and of the hash "
            "at least its first 8 digits"
        )
    return found["name"], found["sha256"] or ""


def is_kept(named_by: Iterable[str], deleted_runs: Collection[str], roots: Collection[str]) -> bool:
    """Whether what these name stays. `deleted_runs`: jobs whose runs were deleted, and whose grace is over. `roots`: hashes of the
    manifests of datasets and of the contents of models' versions that are there. A name by anything else keeps it for as long as it
    stands."""
    for by in named_by:
        if by.startswith(BY_JOB) and by.removeprefix(BY_JOB) in deleted_runs:
            continue
        if by.startswith(ROOTS) and by.partition(".")[2] not in roots:
            continue
        return True
    return False


class ArtifactStored(Event, type="trainhouse.artifact.stored.v1"):
    """A version of an artifact is whole in the store, or was removed from its name."""

    name: ArtifactName = Field(description="name of the artifact")
    kind: ArtifactKind = Field(description="tokenizer, preprocessing, model, profile, file, or another word")
    sha256: Sha256 = Field(description="SHA-256 of the manifest, in hexadecimal: the version's id")
    project: Label = Field(DEFAULT_PROJECT, description="project that owns it")
    bytes: ByteCount = Field(description="bytes of its files")
    files: SmallCount = Field(description="number of its files")
    job_id: JobId | None = Field(None, description="job or run that it was stored for; none: for no job")
    user: str = Field("", max_length=256, description="person who stored or removed it")
    deleted: bool = Field(False, description="whether it lost this name")
    at_ms: TimestampMs

    def subject(self) -> str:
        return str(self.job_id) if self.job_id is not None else str(self.name)


class ArtifactRecorded(Event, type="trainhouse.artifact.recorded.v1"):
    """A rank stored a version of an artifact, or read one."""

    job_id: JobId
    attempt: AttemptNumber
    epoch: Epoch
    rank: SmallCount
    node_id: NodeId | None = None
    action: Literal["stored", "used"] = Field("stored", description="whether it was stored, or read")
    name: ArtifactName = Field(description="name of the artifact")
    kind: ArtifactKind = Field(description="tokenizer, preprocessing, model, profile, file, or another word")
    sha256: Sha256 = Field(description="SHA-256 of the manifest, in hexadecimal: the version's id")
    bytes: ByteCount = Field(description="bytes of its files")
    files: SmallCount = Field(description="number of its files")
    at_ms: TimestampMs


def _is_no_part(part: str) -> bool:
    return part in ("", ".", "..") or not part.isprintable() or "\\" in part


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())
