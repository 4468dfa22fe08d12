"""Files of versions of models, for MLflow's downloads: they come from the version's content, whatever became of the run that logged them.

Holds: a version of a project that its asker may not see does not exist for it; a file is verified against its hash while it is sent.
Never: weights of a checkpoint; those are fetched by `trainhouse models fetch`.
"""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from trainhouse.checkpointing.artifacts.artifact_store import ArtifactStore
from trainhouse.checkpointing.errors import DamagedError
from trainhouse.checkpointing.models.version_content import read_content
from trainhouse.events.model.artifact import ArtifactFile
from trainhouse.events.model.dataset_keys import project_word
from trainhouse.events.model.model_content import ModelContent
from trainhouse.gateway.mlflow import schemas
from trainhouse.gateway.mlflow.errors import MlflowError, invalid, missing
from trainhouse.gateway.mlflow.request_scope import RequestScope
from trainhouse.scheduler.core.registry.registry_state import ModelEntry, Version

if TYPE_CHECKING:
    from trainhouse.checkpointing.stores.s3 import S3ObjectStore

_PLACE: Final = re.compile(r"models/(?P<project>[^/]+)/(?P<name>[^/]+)/(?P<version>[1-9][0-9]{0,9})(?:/(?P<path>.*))?")


@dataclass(frozen=True)
class VersionFiles:
    """Files of one version. `where`: the version in messages."""

    where: str
    content: ModelContent

    def listed(self, under: str) -> list[dict[str, Any]]:
        """Direct entries of a folder."""
        return schemas.files_at(under, ((file.path, file.bytes) for file in self.content.files))

    def file(self, path: str) -> ArtifactFile:
        """The file under a path. Raises MlflowError."""
        found = next((file for file in self.content.files if file.path == path), None)
        if found is None and self.content.checkpoint is not None:
            raise MlflowError(
                "RESOURCE_DOES_NOT_EXIST",
                f"{self.where} is checkpoint {self.content.commit} of job {self.content.job_id}, and has no file {path!r}: "
                "`trainhouse models fetch` gives its weights",
            )
        if found is None:
            raise missing(f"file {path!r} of {self.where}")
        return found

    def opened(self, objects: "S3ObjectStore", file: ArtifactFile) -> Iterator[bytes]:
        """The content of a file, of which the first piece was read. Blocks. Raises DamagedError."""
        pieces = ArtifactStore(objects, self.content.project).content(file)
        return chain([next(pieces, b"")], pieces)


def place_of(model: ModelEntry, version: Version) -> str:
    """Address of a version's files, for clients: a path on this server."""
    return f"mlflow-artifacts:/models/{project_word(model.project)}/{model.name}/{version.version}"


def version_placed(place: str) -> tuple[str, str, str, str] | None:
    """Project, name, version and path of the address of a version's file; None of another one. Raises MlflowError."""
    match = _PLACE.fullmatch(place.strip("/"))
    return (match["project"], match["name"], match["version"], cleaned(match["path"] or "")) if match is not None else None


async def version_of(desk: RequestScope, word: str, name: str, number: str) -> VersionFiles:
    """The version at an address, with its content. `word`: of the project. Raises MlflowError."""
    await desk.models.ready()
    visible = (each for each in desk.models.view.models() if desk.principal.sees(each.project))
    model = next((each for each in visible if (project_word(each.project), each.name) == (word, name)), None)
    version = model.get(int(number)) if model is not None else None
    if model is None or version is None:
        raise missing(f"version {number} of model {name!r}")
    return VersionFiles(f"version {number} of model {name!r}", await content_of(desk, model, version))


async def content_of(desk: RequestScope, model: ModelEntry, version: Version) -> ModelContent:
    """Reads a version's content in the store. Raises MlflowError."""
    try:
        return await asyncio.to_thread(read_content, desk.ports.objects, model.project, version.facts.content)
    except DamagedError as error:
        raise MlflowError("DATA_LOSS", f"version {version.version} of model {model.name!r}: {error}") from error


def cleaned(path: str) -> str:
    """A path within a run. Raises MlflowError where it leads out of it, or names nothing."""
    path = path.rstrip("/")
    parts = path.split("/") if path else []
    if len(path) > 1024 or any(p in ("", ".", "..") or not p.isprintable() or "\\" in p for p in parts):
        raise invalid(f"{path[:200]!r} is no path of an artifact: name folders and a file, with / between them, at most 1024 characters")
    return path
