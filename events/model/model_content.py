"""Content of a model's version: what it is made of, named by the hash of its own bytes; and the keys of models in the object store. Pure.

Holds: a content has no name, person, time or machine in it, so that the same commit with the same files has one hash everywhere, and a
repeated registration stores nothing new. Objects of two projects have no prefix in common.
Never: bytes of a file.
"""

import builtins
import hashlib
import math
import re
from collections.abc import Mapping
from typing import Any, Final

import orjson
from pydantic import Field, JsonValue, ValidationError, ValidationInfo, field_validator, model_validator

from trainhouse.events.model.artifact import ArtifactFile, check_paths
from trainhouse.events.model.base import Model
from trainhouse.events.model.bounds import ByteCount, Count
from trainhouse.events.model.dataset_keys import project_word
from trainhouse.events.model.dataset_names import VersionReference
from trainhouse.events.model.ids import JobId
from trainhouse.events.model.labels import Label, Sha256

FORMAT: Final = 1
MOST_FILES: Final = 1000
MOST_FILES_BYTES: Final = 1 << 30
"""Of all files beside the weights."""
MOST_SCHEMA_BYTES: Final = 64 << 10
MOST_SCHEMA_LEVELS: Final = 32
MOST_NOTES_CHARS: Final = 16_384
MOST_DATASETS: Final = 64
MOST_CONTENT_BYTES: Final = 4 << 20
PREFIX: Final = "models/"
PINS_PREFIX: Final = "model-pins/"
OF_MODEL: Final = "model:"
"""Beginning of the name of a job's tag that a version's content sets; `model:` and the hash of the content."""
RESERVED_PATHS: Final = re.compile(
    r"(?:trainhouse\.json|checkpoint\.pt|\.metadata|(?:ranks|onnx)/.*|[^/]*\.distcp|model[^/]*\.safetensors(?:\.index\.json)?|\.[^/]*\.progress)",
    re.IGNORECASE,
)
"""Paths that the weights and the provenance have in a folder of a version."""
PROVENANCE_PATH: Final = "trainhouse.json"


class ModelContentError(ValueError):
    """A content that no version of a model has. The message says what is wrong, and what to do."""


class ModelContent(Model):
    """Parts of a version: one checkpoint of a job, and the files that belong to it. Stored as canonical JSON under its own hash.

    Without a checkpoint it is files alone, as a client logged them: `commit`, `step` and `bytes` are 0.
    """

    format: int = Field(FORMAT, ge=1, le=FORMAT, description="version of this format")
    project: Label = Field(description="project of the job and of the model")
    job_id: JobId
    commit: Count = Field(description="number of the job's checkpoint; 0: none")
    step: Count = Field(description="training step of the checkpoint")
    checkpoint: Sha256 | None = Field(
        description="SHA-256 of the checkpoint's manifest as the store has it; the manifest names every chunk by hash; none: files alone"
    )
    bytes: ByteCount = Field(description="bytes of the checkpoint's chunks, each once")
    artifact: Sha256 | None = Field(None, description="SHA-256 of the artifact that holds the files; none: no files")
    files: tuple[ArtifactFile, ...] = Field((), max_length=MOST_FILES, description="tokenizer, preprocessing and others, by path")
    input_schema: dict[str, JsonValue] | None = Field(None, description="schema of an input, such as a JSON Schema; none: not given")
    output_schema: dict[str, JsonValue] | None = Field(None, description="schema of an output; none: not given")
    framework: Label | None = Field(None, description="framework and version that the weights are for, such as torch 2.9.1")
    code: Sha256 | None = Field(None, description="SHA-256 of the job's code archive; none: not known")
    datasets: tuple[VersionReference, ...] = Field((), max_length=MOST_DATASETS, description="versions of datasets that the job was given")
    licence: Label | None = Field(None, description="licence of the weights, as an SPDX id; none: not given")
    notes: str = Field("", max_length=MOST_NOTES_CHARS, description="people's text")

    @field_validator("files")
    @classmethod
    def _sorted_and_free(cls, files: tuple[ArtifactFile, ...], info: ValidationInfo) -> tuple[ArtifactFile, ...]:
        check_files([(file.path, file.bytes) for file in files], are_alone=info.data.get("checkpoint") is None)
        if [file.path for file in files] != sorted(file.path for file in files):
            raise ModelContentError("the files of a version stand by their paths; sort them")
        return files

    @field_validator("input_schema", "output_schema")
    @classmethod
    def _bounded(cls, schema: dict[str, JsonValue] | None) -> dict[str, JsonValue] | None:
        if schema is not None:
            check_schema(schema)
        return schema

    @model_validator(mode="after")
    def _of_something(self) -> "ModelContent":
        if self.checkpoint is None and (self.commit or self.step or self.bytes or not self.files):
            raise ModelContentError("a version without a checkpoint is files alone, with neither a commit, a step nor bytes of chunks")
        return self

    def canonical_json(self) -> builtins.bytes:
        """The bytes that are stored and hashed: sorted JSON."""
        return orjson.dumps(self.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS)

    def sha256(self) -> str:
        """Hex SHA-256 of the canonical JSON: the hash that names the version's content."""
        return hashlib.sha256(self.canonical_json()).hexdigest()


def parse_content(body: builtins.bytes, name: str) -> ModelContent:
    """Reads a stored content. `name`: for the message. Raises ModelContentError for anything but the canonical bytes of one."""
    if len(body) > MOST_CONTENT_BYTES:
        raise ModelContentError(f"{name} has {len(body)} bytes, and the content of a version has {MOST_CONTENT_BYTES} at most")
    try:
        content = ModelContent.model_validate(orjson.loads(body))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ModelContentError(f"{name} is no content of a version, or a newer program's: {where}: {first['msg']}") from error
    except ValueError as error:
        raise ModelContentError(f"{name} is no JSON: {error}") from error
    if content.canonical_json() != body:
        raise ModelContentError(f"{name} is not written as the content of a version is: sorted JSON without spaces, each field once")
    return content


def check_files(files: list[tuple[str, int]], are_alone: bool = False) -> None:
    """Raises ModelContentError where paths, with their sizes in bytes, are none of a version's files, or are too many. `are_alone`: they
    are all of it, the weights among them."""
    if not files:
        return
    try:
        check_paths([path for path, _ in files])
    except ValueError as error:
        raise ModelContentError(str(error)) from error
    if len(files) > MOST_FILES:
        raise ModelContentError(f"{len(files)} files beside the weights, and a version has {MOST_FILES} at most; pack them into one")
    if are_alone:
        if any(path.casefold() == PROVENANCE_PATH for path, _ in files):
            raise ModelContentError(f"{PROVENANCE_PATH} is what describes a fetched version; rename the file")
        return
    if (total := sum(size for _, size in files)) > MOST_FILES_BYTES:
        raise ModelContentError(
            f"the files beside the weights have {total} bytes, and may have {MOST_FILES_BYTES}; `trainhouse artifact put` takes large ones"
        )
    for path, _ in files:
        if RESERVED_PATHS.fullmatch(path):
            raise ModelContentError(f"{path!r} is where the weights of a version are written to, or what describes them; rename the file")


def check_schema(schema: Mapping[str, Any]) -> None:
    """Raises ModelContentError for a schema that is too large or too deep, or has a number that JSON does not hold."""
    if (levels := _levels(schema, MOST_SCHEMA_LEVELS + 1)) > MOST_SCHEMA_LEVELS:
        raise ModelContentError(f"the schema has more than {MOST_SCHEMA_LEVELS} levels ({levels}); give a flatter one")
    size_bytes = len(orjson.dumps(schema))
    if size_bytes > MOST_SCHEMA_BYTES:
        raise ModelContentError(f"the schema has {size_bytes} bytes as JSON, and may have {MOST_SCHEMA_BYTES}; leave out descriptions")


def _levels(value: Any, most: int) -> int:
    """Levels of a JSON value, no further than `most`."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ModelContentError(f"the schema has the number {value}, which JSON does not hold; leave it out")
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else None
    if inner is None:
        return 0
    return most if most <= 1 else 1 + max((_levels(each, most - 1) for each in inner), default=0)


def models_prefix(project: str) -> str:
    """Prefix of all that a project's models are, but for the pins."""
    return f"{PREFIX}{project_word(project)}/"


def content_key(project: str, sha256: str) -> str:
    """Key of the content of a version."""
    return f"{models_prefix(project)}contents/{sha256}.json"


def chain_prefix(project: str, name: str) -> str:
    """Prefix of the chain of a model's stages."""
    return f"{models_prefix(project)}chains/{name}/"


def pins_prefix(project: str) -> str:
    """Prefix of the pins of a project's models."""
    return f"{PINS_PREFIX}{project_word(project)}/"


def pin_key(project: str, job_id: str, commit: int, sha256: str) -> str:
    """Key of the copy of a checkpoint's manifest that the content with this hash keeps, and which keeps the checkpoint's chunks."""
    return f"{pins_prefix(project)}{job_id}/{commit:010d}/{sha256}"
